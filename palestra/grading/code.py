"""A program and its hidden tests -> a Grade, by running it in sandboxes, a process of its own for every test.

What is expected never enters a sandbox in which the submission runs: outputs and returned values come out and are
compared here, and what an `assert` asks of them is decided in a sandbox without the submission. The exception is a test
that is itself a program (classes, several statements): it runs beside the submission, as it must.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue
from palestra.grading.asserts import VALUES, Parted, parted
from palestra.grading.base import Grade
from palestra.grading.driver import Ran, run_batch
from palestra.grading.hidden import AssertTest, CallTest, HiddenTest, StdinTest, read_tests
from palestra.grading.outputs import decoded, same_text, same_value
from palestra.parsing import clip

if TYPE_CHECKING:
    from palestra.tools.sandbox import Limits, Sandbox

LONGEST_PROGRAM = 1_000_000  # characters
BATCH = 32  # tests in one sandbox
BATCH_STOPPING = 4  # where one failure ends it all


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
    """Correct where every hidden test passes; the score is the share of all tests that passed.

    `tests`: see `palestra.grading.hidden`. `function`: the one to call, where the tests do not name it. `limits`: of
    each test. `stop_early`: begin no more tests once one has failed. `tolerance`: within which numbers count as equal,
    relative or absolute. `max_tests`: the longest that many. `parallel`: tests at a time. `sandbox`: the shared one
    unless given. SandboxDied, an InfrastructureError, where the sandbox breaks.
    """
    from palestra.tools.sandbox import Limits, shared_sandbox

    every = read_tests(tests, function=function)
    if max_tests is not None:
        if max_tests < 1:
            raise BadValue(f"max_tests is a whole number from 1 up, got {max_tests!r}")
        every = sorted(every, key=_size, reverse=True)[:max_tests]
    if len(program) > LONGEST_PROGRAM:
        return Grade(correct=False, score=0.0, why=f"a program of {len(program)} characters is too long to run")
    if "\0" in program:
        return Grade(correct=False, score=0.0, why="the program has a NUL character in it", hint="It does not compile.")
    box = sandbox or shared_sandbox()
    judge = _Judge(program, box, limits or Limits(wall=10.0, cpu=4.0), tolerance, stop_early=stop_early)
    at_once = parallel or min(8, 2 * (os.cpu_count() or 1))
    outcomes = _all(judge, every, at_once=at_once)
    passed = sum(outcome.passed for outcome in outcomes.values())
    if passed == len(every):
        return Grade(correct=True, score=1.0, why=f"passed all {passed} hidden tests")
    number, failed = min(((n, o) for n, o in outcomes.items() if not o.passed), key=lambda found: found[0])
    run = "" if len(outcomes) == len(every) else f" of {len(outcomes)} run"
    why = f"passed {passed}{run} of {len(every)} hidden tests; test {number + 1}: {failed.why}"
    hint = f"It passed {passed} of {len(outcomes)} hidden tests. One of them: {failed.hint}"
    return Grade(correct=False, score=passed / len(every), why=why, hint=hint)


def _size(test: HiddenTest) -> int:
    match test:
        case StdinTest():
            return len(test.stdin)
        case CallTest():
            return len(repr(test.args))
        case AssertTest():
            return len(test.source)


def _all(judge: _Judge, tests: list[HiddenTest], *, at_once: int) -> dict[int, _Outcome]:
    """The outcome of every test by its index; of those that were begun, where one failure ends it all."""
    numbered = list(enumerate(tests))
    outcomes: dict[int, _Outcome] = {}
    if judge.stop_early:  # most wrong programs fail the first test
        outcomes |= judge.judged(numbered[:1])
        numbered = numbered[1:]
    batches = _batches(numbered, at_once=at_once, most=BATCH_STOPPING if judge.stop_early else BATCH)
    lock = threading.Lock()
    stop = threading.Event()

    def work() -> None:
        while not (stop.is_set() or (judge.stop_early and any(not outcome.passed for outcome in outcomes.values()))):
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            try:
                found = judge.judged(batch)
            except BaseException:
                stop.set()
                raise
            with lock:
                outcomes.update(found)

    if min(at_once, len(numbered)) <= 1:
        work()
        return outcomes
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(at_once, len(numbered)), thread_name_prefix="palestra-grading") as pool:
        workers = [pool.submit(work) for _ in range(min(at_once, len(numbered)))]
    for worker in workers:
        worker.result()
    return outcomes


def _batches(
    numbered: list[tuple[int, HiddenTest]], *, at_once: int, most: int
) -> Iterator[list[tuple[int, HiddenTest]]]:
    """Parts of about the same size, enough of them for all who work."""
    size = max(1, min(most, -(-len(numbered) // at_once)))
    for at in range(0, len(numbered), size):
        yield numbered[at : at + size]


class _Judge:
    """One submission against batches of tests; from any thread."""

    def __init__(
        self, program: str, box: Sandbox, limits: Limits, tolerance: float | None, *, stop_early: bool
    ) -> None:
        self._program = program
        self._box = box
        self._limits = limits
        self._tolerance = tolerance
        self.stop_early = stop_early

    def judged(self, batch: Sequence[tuple[int, HiddenTest]]) -> dict[int, _Outcome]:
        """Outcomes by number; where one failure ends it all, of those that were run."""
        outcomes: dict[int, _Outcome] = {}
        left = list(batch)
        while left:
            tasks = [_Task(test) for _, test in left]
            ran = run_batch(
                self._box, self._program, [task.work for task in tasks], limits=self._limits, stop=self.stop_early
            )
            for (number, _), task, said in zip(left, tasks, ran, strict=False):
                outcomes[number] = self._outcome(task, said)
            if self.stop_early and not all(outcome.passed for outcome in outcomes.values()):
                return outcomes
            left = left[len(ran) :]
        return outcomes

    def _outcome(self, task: _Task, said: Ran) -> _Outcome:
        if not said.ok:
            return _broke(said)
        match task.test:
            case StdinTest() as test:
                return self._printed(test, said.out)
            case CallTest() as test:
                value = task.said(said.out)
                return _CUT_SHORT if value is _NOTHING else self._returned(test, value)
            case AssertTest() as test:
                values = task.said(said.out)
                if values is _NOTHING:
                    return _CUT_SHORT
                return _Outcome(passed=True) if task.halves is None else self._asserted(test, task.halves, values)

    def _printed(self, test: StdinTest, out: str) -> _Outcome:
        if same_text(out, test.expected, tolerance=self._tolerance):
            return _Outcome(passed=True)
        why = f"printed {clip(out, 60)!r}, expected {clip(test.expected, 60)!r}"
        return _Outcome(passed=False, why=why, hint="wrong output.")

    def _returned(self, test: CallTest, value: Any) -> _Outcome:
        if any(same_value(value, expected, tolerance=self._tolerance) for expected in test.expected):
            return _Outcome(passed=True)
        why = f"returned {clip(repr(value), 60)}, expected {clip(repr(test.expected[0]), 60)}"
        return _Outcome(passed=False, why=why, hint="wrong return value.")

    def _asserted(self, test: AssertTest, halves: Parted, values: Any) -> _Outcome:
        strange = "an object of class" in repr(values)
        if strange and halves.own:
            task = _Task(test, whole=True)
            ran = run_batch(self._box, self._program, [task.work], limits=self._limits)
            return self._outcome(task, ran[0])
        if halves.is_data:
            passed = same_value(values[0], halves.expected, tolerance=self._tolerance, strict=True)
        else:
            judgement = f"{halves.setup}\n{VALUES} = {values!r}\nassert {halves.judgement}"
            passed = not strange and self._box.run(judgement, limits=self._limits).ok
        if passed:
            return _Outcome(passed=True)
        why = f"{clip(test.source, 80)} fails: got {clip(', '.join(map(repr, values)), 60)}"
        return _Outcome(passed=False, why=why, hint="an assertion fails.")


_NOTHING = object()
_CUT_SHORT = _Outcome(passed=False, why="ended before the test was over", hint="the program ended by itself.")


class _Task:
    """One test as the sandbox gets it: what to type or to call, and a key that tells that it came to its end."""

    def __init__(self, test: HiddenTest, *, whole: bool = False) -> None:
        self.test = test
        self.halves: Parted | None = None
        self._key = secrets.token_hex(8)
        self.work: dict[str, Any]
        match test:
            case StdinTest():
                self.work = {"stdin": test.stdin}
            case CallTest():
                self.work = {"key": self._key, "function": test.function, "args": list(test.args)}
            case AssertTest():
                self.halves = None if whole else parted(test.source, test.setup)
                values = () if self.halves is None else self.halves.values
                run = [test.source] if self.halves is None else []
                self.work = {"key": self._key, "setup": test.setup, "run": run, "values": list(values)}

    def said(self, out: str) -> Any:
        """What came back, _NOTHING where the program ended by itself."""
        try:
            found = decoded(out)
        except (ValueError, TypeError, RecursionError):
            return _NOTHING
        return found[1] if isinstance(found, list) and len(found) == 2 and found[0] == self._key else _NOTHING


def _broke(said: Ran) -> _Outcome:
    if said.limit:
        what = f"stopped at its limit of {said.limit}"
        return _Outcome(passed=False, why=what, hint=f"{what}.")
    last = said.err.strip().rpartition("\n")[2]
    what = clip(last, 200) or (f"exit code {said.exit_code}" if said.exit_code >= 0 else f"signal {-said.exit_code}")
    return _Outcome(passed=False, why=f"failed with {what}", hint=f"it failed with {what}.")
