"""Sample operations for generated programs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from palestra.envs.code import operations_numbers, operations_text
from palestra.envs.code.operation import Operation

KINDS = ("numbers", "words", "text", "number")
_LETTERS = "aabcdeeghiilmnooprstu"


@dataclass(frozen=True, slots=True)
class DrawnOperation:
    """An operation with its placeholders filled in."""

    gives: str
    instruction: str
    code: tuple[str, ...]


def draw_operation(rng: Random, takes: str, *, ending: bool = False, signed: bool = False) -> DrawnOperation:
    """Sample an operation on a value of kind `takes`.

    With `ending`, the code of the operation ends with a return statement. Otherwise, the operation does not change the
    kind of the value. With `signed`, numbers may be negative, so operations on decimal digits are excluded.
    """
    candidates = (_ENDINGS if ending else _STEPS)[takes]
    if signed:
        candidates = [operation for operation in candidates if "str(value)" not in " ".join(operation.code)]
    operation = rng.choice(candidates)
    k = str(rng.randint(2, operation.max_k))
    c, d = rng.sample(_LETTERS, 2)
    if c == d:
        d = "x"

    def filled(text: str) -> str:
        return text.replace("{k}", k).replace("{c}", c).replace("{d}", d)

    return DrawnOperation(operation.gives, filled(operation.instruction), tuple(map(filled, operation.code)))


def _by_kind(*, ending: bool) -> dict[str, list[Operation]]:
    groups: dict[str, list[Operation]] = {}
    for operation in (*operations_numbers.OPERATIONS, *operations_text.OPERATIONS):
        if operation.code[-1].startswith("return") == ending:
            groups.setdefault(operation.takes, []).append(operation)
    return groups


_STEPS, _ENDINGS = _by_kind(ending=False), _by_kind(ending=True)
