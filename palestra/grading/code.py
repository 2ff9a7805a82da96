"""Grade a program with hidden tests; each test runs in a separate process in a sandbox.

Expected results are never passed to a sandbox in which the submission runs: outputs and return values are compared in
this process, the check of an `assert` is evaluated in a sandbox without the submission, and a test that is itself a
program calls the submission's functions in another sandbox. The only exception is a test that uses the submission's
classes, which has to run together with the submission.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from palestra.errors import BadValue
from palestra.grading.asserts import VALUES, SplitAssert, remote_functions, split_assert, uses_classes
from palestra.grading.base import Grade
from palestra.grading.call_program import NOT_PLAIN
from palestra.grading.hidden_tests import AssertTest, CallTest, HiddenTest, StdinTest, read_tests
from palestra.grading.outputs import decode_output, is_opaque, same_text, same_value, to_source
from palestra.grading.sandbox_code import calls_of, remote_test, server_of
from palestra.machine import usable_cores
from palestra.parsing import clip

if TYPE_CHECKING:
    from palestra.tools.sandbox import Limits, Result, Sandbox

MAX_PROGRAM = 1_000_000  # maximum number of characters in a program
BATCH = 32  # tests per sandbox program
STOP_EARLY_BATCH = 4  # tests per sandbox program with `stop_early`


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    passed: bool
    why: str = ""
    hint: str = ""


def grade_code(
    program: str,
    tests: Any,
    *,
    function: str | None = None,
    limits: Limits | None = None,
    stop_early: bool = False,
    tolerance: float | None = None,
    max_tests: int | None = None,
    parallel: int | None = None,
    sandbox: Sandbox | None = None,
) -> Grade:
    """Grade a program: it is correct if all hidden tests pass; the score is the fraction of tests that passed.

    Raises SandboxDied, which is an InfrastructureError, if the sandbox fails.

    - `tests`: the hidden tests, in a format that `palestra.grading.hidden_tests` supports
    - `function`: name of the function to call, if the tests do not contain it
    - `limits`: resource limits per test
    - `stop_early`: start no more tests after a failure
    - `tolerance`: relative or absolute difference up to which numbers count as equal
    - `max_tests`: maximum number of tests to run; the longest tests are selected
    - `parallel`: number of concurrent tests
    - `sandbox`: sandbox to use instead of the shared one
    """
    from palestra.tools.sandbox import Limits, shared_sandbox

    hidden_tests = read_tests(tests, function=function)
    if max_tests is not None:
        if max_tests < 1:
            raise BadValue(f"`max_tests` must be at least 1, got {max_tests!r}")
        hidden_tests = sorted(hidden_tests, key=_size, reverse=True)[:max_tests]
    if len(program) > MAX_PROGRAM:
        return Grade(
            correct=False, score=0.0, why=f"the program has {len(program)} characters; the maximum is {MAX_PROGRAM}"
        )
    if "\0" in program:
        return Grade(correct=False, score=0.0, why="the program contains a NUL character", hint="It does not compile.")
    sandbox = sandbox or shared_sandbox()
    submission = _Submission(program, sandbox, limits or Limits(wall=10.0, cpu=4.0), tolerance, stop_early=stop_early)
    parallel = parallel or min(8, usable_cores() + 1)
    outcomes = _run_all(submission, hidden_tests, parallel=parallel)
    passed = sum(outcome.passed for outcome in outcomes.values())
    if passed == len(hidden_tests):
        return Grade(correct=True, score=1.0, why=f"passed all {passed} hidden tests")
    number, failed = min(((n, o) for n, o in outcomes.items() if not o.passed), key=lambda pair: pair[0])
    executed = "" if len(outcomes) == len(hidden_tests) else f" ({len(outcomes)} executed)"
    why = f"passed {passed} of {len(hidden_tests)} hidden tests{executed}; test {number + 1}: {failed.why}"
    hint = f"It passed {passed} of {len(outcomes)} hidden tests. One failure: {failed.hint}"
    return Grade(correct=False, score=passed / len(hidden_tests), why=why, hint=hint)


def _size(test: HiddenTest) -> int:
    match test:
        case StdinTest():
            return len(test.stdin)
        case CallTest():
            return len(repr(test.args))
        case AssertTest():
            return len(test.source)


def _run_all(submission: _Submission, tests: list[HiddenTest], *, parallel: int) -> dict[int, _Outcome]:
    """Return the outcomes by test index; with `stop_early`, tests that were not started are missing."""
    numbered = list(enumerate(tests))
    outcomes: dict[int, _Outcome] = {}
    if submission.stop_early:  # most incorrect programs fail the first test
        outcomes |= submission.run_tests(numbered[:1])
        numbered = numbered[1:]
    batches = _batches(numbered, parallel=parallel, limit=STOP_EARLY_BATCH if submission.stop_early else BATCH)
    lock = threading.Lock()
    stop = threading.Event()

    def work() -> None:
        while not (
            stop.is_set() or (submission.stop_early and any(not outcome.passed for outcome in outcomes.values()))
        ):
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            try:
                new_outcomes = submission.run_tests(batch)
            except BaseException:
                stop.set()
                raise
            with lock:
                outcomes.update(new_outcomes)

    if min(parallel, len(numbered)) <= 1:
        work()
        return outcomes
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(parallel, len(numbered)), thread_name_prefix="palestra-grading") as pool:
        workers = [pool.submit(work) for _ in range(min(parallel, len(numbered)))]
    for worker in workers:
        worker.result()
    return outcomes


def _batches(
    numbered: list[tuple[int, HiddenTest]], *, parallel: int, limit: int
) -> Iterator[list[tuple[int, HiddenTest]]]:
    """Split the tests into batches of similar size, at least one per thread if possible."""
    size = max(1, min(limit, -(-len(numbered) // parallel)))
    for at in range(0, len(numbered), size):
        yield numbered[at : at + size]


class _Submission:
    """A program that can be run against batches of tests from any thread."""

    def __init__(
        self, program: str, sandbox: Sandbox, limits: Limits, tolerance: float | None, *, stop_early: bool
    ) -> None:
        self._program = program
        self._sandbox = sandbox
        self._limits = limits
        self._tolerance = tolerance
        self.stop_early = stop_early

    def run_tests(self, batch: Sequence[tuple[int, HiddenTest]]) -> dict[int, _Outcome]:
        """Return the outcomes by test index; with `stop_early`, tests that were not run are missing."""
        outcomes: dict[int, _Outcome] = {}
        tasks = [(number, _TestTask(test)) for number, test in batch]
        for mode in dict.fromkeys(task.mode for _, task in tasks):
            group = [(number, task) for number, task in tasks if task.mode == mode]
            results = self._run([task for _, task in group], mode)
            for (number, task), result in zip(group, results, strict=False):
                outcomes[number] = self._outcome(task, result)
            if self.stop_early and not all(outcome.passed for outcome in outcomes.values()):
                return outcomes
        return outcomes

    def _run(self, tasks: Sequence[_TestTask], mode: _Mode) -> list[Result]:
        peer = server_of(self._program) if mode == "remote" else ""
        code = {
            "stdin": lambda: self._program,
            "call": lambda: calls_of(self._program),
            "remote": remote_test,
        }[mode]()
        inputs = [task.stdin for task in tasks]
        return self._sandbox.run_each(code, inputs, self._limits, peer=peer, stop=self.stop_early)

    def _outcome(self, task: _TestTask, result: Result) -> _Outcome:
        if task.mode == "remote" and result.exit_code == NOT_PLAIN:
            return self._run_whole(task.test)
        if not result.ok:
            return _failure(result)
        match task.test:
            case StdinTest() as test:
                return self._check_output(test, result.stdout)
            case CallTest() as test:
                value = task.result(result.stdout)
                return _ENDED_EARLY if value is _MISSING else self._check_value(test, value)
            case AssertTest() as test:
                values = task.result(result.stdout)
                if values is _MISSING:
                    return _ENDED_EARLY
                if task.split is None:
                    return _Outcome(passed=True)
                if not isinstance(values, list) or len(values) != len(task.split.values):
                    return _ENDED_EARLY
                return self._check_assert(test, task.split, values)

    def _run_whole(self, test: HiddenTest) -> _Outcome:
        """Run a test together with the submission."""
        task = _TestTask(test, whole=True)
        return self._outcome(task, self._run([task], task.mode)[0])

    def _check_output(self, test: StdinTest, out: str) -> _Outcome:
        if same_text(out, test.expected, tolerance=self._tolerance):
            return _Outcome(passed=True)
        why = f"printed {clip(out, 60)!r}, expected {clip(test.expected, 60)!r}"
        return _Outcome(passed=False, why=why, hint="wrong output.")

    def _check_value(self, test: CallTest, value: Any) -> _Outcome:
        if any(same_value(value, expected, tolerance=self._tolerance) for expected in test.expected):
            return _Outcome(passed=True)
        why = f"returned {clip(repr(value), 60)}, expected {clip(repr(test.expected[0]), 60)}"
        return _Outcome(passed=False, why=why, hint="wrong return value.")

    def _check_assert(self, test: AssertTest, split: SplitAssert, values: list[Any]) -> _Outcome:
        opaque = is_opaque(values)
        if opaque and split.compares_values and uses_classes(test.source, test.setup):
            return self._run_whole(test)
        if split.is_data:
            passed = same_value(values[0], split.expected, tolerance=self._tolerance, strict=True)
        else:
            check = f"{split.setup}\n{VALUES} = {to_source(values)}\nassert {split.check}"
            passed = not opaque and self._sandbox.run(check, limits=self._limits).ok
        if passed:
            return _Outcome(passed=True)
        why = f"{clip(test.source, 80)} fails: got {clip(', '.join(map(repr, values)), 60)}"
        return _Outcome(passed=False, why=why, hint="an assertion fails.")


_MISSING = object()
_ENDED_EARLY = _Outcome(
    passed=False, why="ended before the test was complete", hint="the program exited during the test."
)


_Mode = Literal["stdin", "call", "remote"]


class _TestTask:
    """The standard input of a sandboxed program that runs a test. A genuine result contains the secret key.

    The program depends on `mode`: "stdin" is the submission itself, "call" is `call_program.call_submission`, and
    "remote" is `call_program.run_remote_test`, which runs in parallel with the submission. `whole` runs an assertion
    in the same program as the submission.
    """

    def __init__(self, test: HiddenTest, *, whole: bool = False) -> None:
        self.test = test
        self.split: SplitAssert | None = None
        self.mode: _Mode = "call"
        self._key = secrets.token_hex(8)
        job: dict[str, Any]
        match test:
            case StdinTest():
                self.mode = "stdin"
                self.stdin = test.stdin
                return
            case CallTest():
                job = {"function": test.function, "args": list(test.args)}
            case AssertTest():
                job = self._assert_job(test, whole=whole)
        self.stdin = json.dumps({"key": self._key, **job})

    def _assert_job(self, test: AssertTest, *, whole: bool) -> dict[str, Any]:
        split = None if whole else split_assert(test.source, test.setup)
        if not whole and (split is None or not split.plain_setup):
            functions = remote_functions(test.source, test.setup)
            if functions is not None:
                self.mode = "remote"
                return {"functions": functions, "program": f"{test.setup}\n{test.source}"}
        self.split = split
        values = [] if split is None else list(split.values)
        return {"setup": test.setup, "run": [test.source] if split is None else [], "values": values}

    def result(self, out: str) -> Any:
        """Return the result, or _MISSING if the program exited before it wrote a result."""
        try:
            result = decode_output(out)
        except ValueError:
            return _MISSING
        return result[1] if isinstance(result, list) and len(result) == 2 and result[0] == self._key else _MISSING


def _failure(result: Result) -> _Outcome:
    if result.limit:
        reason = f"exceeded its {result.limit} limit"
        return _Outcome(passed=False, why=reason, hint=f"it {reason}.")
    last = result.stderr.strip().rpartition("\n")[2]
    reason = clip(last, 200) or (f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}")
    return _Outcome(passed=False, why=f"failed with {reason}", hint=f"it failed with {reason}.")
