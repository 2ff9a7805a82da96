"""Run a submission against many tests in one sandbox program (`batch_program`)."""

from __future__ import annotations

import functools
import json
import marshal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.tools.sandbox import Limits, Sandbox

_NAMES = {  # names that solutions to call-based problems often use without importing them
    "typing": ["List", "Dict", "Tuple", "Set", "Optional", "Any", "Union", "Callable", "Iterable", "Deque"],
    "collections": ["defaultdict", "deque", "Counter", "OrderedDict", "collections."],
    "heapq": ["heappush", "heappop", "heapify", "heapq."],
    "bisect": ["bisect_left", "bisect_right", "bisect", "insort"],
    "itertools": ["accumulate", "combinations", "permutations", "product", "groupby", "itertools."],
    "functools": ["lru_cache", "cache", "reduce", "cmp_to_key", "functools."],
    "math": ["gcd", "sqrt", "ceil", "floor", "inf", "comb", "isqrt", "math."],
    "random": ["random."],
    "re": ["re."],
    "string": ["string."],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutput:
    """Outcome of one test's process."""

    __test__ = False  # prevents pytest from collecting this class

    exit_code: int  # negative signal number if a signal killed the process
    limit: str  # the limit that the process exceeded, or ""
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.limit


def run_batch(
    sandbox: Sandbox, source: str, tests: Sequence[dict[str, Any]], *, limits: Limits, stop: bool = False
) -> list[TestOutput]:
    """Run each test in its own process within one sandbox; with `stop`, stop after the first test that fails.

    If a test terminates the whole sandbox program (for example by exceeding the memory limit), no later test is run.
    """
    work = {"tests": list(tests), "stop": stop, "cpu": limits.cpu, "wall": limits.wall, "output": int(limits.output)}
    count = len(tests)
    total = replace(
        limits,
        wall=count * limits.wall + 5.0,
        cpu=count * limits.cpu + 5.0,
        output=count * (6 * int(limits.output) + 20_000),  # maximum size when encoded as JSON
    )
    result = sandbox.run(f"{_batch_program()}main({source!r}, {_NAMES!r})\n", stdin=json.dumps(work), limits=total)
    outputs = []
    for line in result.stdout.splitlines()[:count]:
        try:
            output = json.loads(line)
            outputs.append(
                TestOutput(exit_code=output["exit"], limit=output["limit"], out=output["out"], err=output["err"])
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            break  # the submission wrote this line; the remaining tests count as failed
    if len(outputs) < count and not (stop and outputs and not outputs[-1].ok):
        outputs.append(
            TestOutput(exit_code=1, limit=result.limit or "", out="", err=result.stderr or "the sandbox exited early")
        )
    return outputs


@functools.cache
def _batch_program() -> str:
    """Return source code that contains `batch_program` as bytecode; the sandbox uses the same interpreter."""
    source = Path(__file__).with_name("batch_program.py").read_text("utf-8")
    code = compile(source, "batch_program.py", "exec", dont_inherit=True)
    return f"import marshal\nexec(marshal.loads({marshal.dumps(code)!r}))\n"
