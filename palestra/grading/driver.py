"""A submission and tests -> one sandbox program that runs them all, and what it says back; see `inside.batch`."""

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

_NAMES = {  # what solutions to call-based problems use without importing it, as their judges import it for them
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
class Ran:
    """What came of one test's program."""

    exit_code: int  # minus a signal
    limit: str  # it was stopped for this, or ""
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.limit


def run_batch(
    box: Sandbox, source: str, tests: Sequence[dict[str, Any]], *, limits: Limits, stop: bool = False
) -> list[Ran]:
    """Every test in a process of its own, in one sandbox; all of them, or up to the first that fails where `stop`.

    A test that breaks the sandbox itself (its memory, say) is the last of the list; the others can be run again.
    """
    work = {"tests": list(tests), "stop": stop, "cpu": limits.cpu, "wall": limits.wall, "output": int(limits.output)}
    count = len(tests)
    whole = replace(
        limits,
        wall=count * limits.wall + 5.0,
        cpu=count * limits.cpu + 5.0,
        output=count * (6 * int(limits.output) + 20_000),  # as JSON writes it
    )
    result = box.run(f"{_inside()}main({source!r}, {_NAMES!r})\n", stdin=json.dumps(work), limits=whole)
    found = []
    for line in result.stdout.splitlines()[:count]:
        try:
            said = json.loads(line)
            found.append(Ran(exit_code=said["exit"], limit=said["limit"], out=said["out"], err=said["err"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            break  # the submission has written here itself: what it did not let us read counts as failed
    if len(found) < count and not (stop and found and not found[-1].ok):
        found.append(Ran(exit_code=1, limit=result.limit or "", out="", err=result.stderr or "the sandbox ended early"))
    return found


@functools.cache
def _inside() -> str:
    """`inside.batch`, compiled: the sandbox has this very interpreter, and its time is better spent."""
    source = (Path(__file__).parent / "inside" / "batch.py").read_text("utf-8")
    code = compile(source, "batch.py", "exec", dont_inherit=True)
    return f"import marshal\nexec(marshal.loads({marshal.dumps(code)!r}))\n"
