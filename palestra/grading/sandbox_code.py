"""Build the source code of the programs that run a submission and its tests in the sandbox (`call_program`)."""

from __future__ import annotations

import functools
import marshal
from pathlib import Path

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


def calls_of(submission: str) -> str:
    """Return a program that calls functions in the submission and writes their values."""
    return f"{_call_program()}call_submission({submission!r}, {_NAMES!r})\n"


def server_of(submission: str) -> str:
    """Return a program that calls functions in the submission at the request of a test in another process."""
    return f"{_call_program()}serve_submission({submission!r}, {_NAMES!r})\n"


def remote_test() -> str:
    """Return a program that runs a test whose submission is in another process."""
    return f"{_call_program()}run_remote_test()\n"


@functools.cache
def _call_program() -> str:
    """Return source code that contains `call_program` as bytecode; the sandbox uses the same interpreter."""
    source = Path(__file__).with_name("call_program.py").read_text("utf-8")
    code = compile(source, "call_program.py", "exec", dont_inherit=True)
    return f"import marshal\nexec(marshal.loads({marshal.dumps(code)!r}))\n"
