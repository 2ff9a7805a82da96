"""The process reasoning-gym runs in: a request a frame on standard input, its answer a frame on standard output.

Everything of the package happens here, so that its items may use the process-wide generators, its imports cost nothing
elsewhere, and a scorer that hangs can be killed. Hash seed and generators are set, so that an item depends on its data
set, level, keywords and seed alone. A frame is its length in four bytes, then JSON.
"""

from __future__ import annotations

import base64
import contextlib
import decimal
import importlib
import json
import os
import pickle
import random
import signal
import struct
import sys
from collections import OrderedDict
from dataclasses import fields
from tempfile import TemporaryDirectory
from typing import Any

from palestra.envs.rg import shields
from palestra.envs.rg.scores import score
from palestra.envs.rg.solutions import solution

MEMORY = 4 << 30  # bytes of address space; an answer that makes a scorer swell fails within them
TRIES = 20  # seeds that are tried for an item
KEPT = 64  # items that are remembered
KEPT_SETS = 16  # and data sets, some of which are large
# Their constructors take long, so one is kept and given a new seed; tests show that this makes no difference.
RESEEDED = frozenset(
    {"arc_agi", "codeio", "figlet_font", "group_anagrams", "n_queens", "rush_hour", "spell_backward", "word_ladder"}
)


class Gym:
    """Draws items and scores answers."""

    def __init__(self) -> None:
        self.factory: Any = importlib.import_module("reasoning_gym.factory")
        importlib.import_module("reasoning_gym")  # which registers all data sets
        shields.put_up()
        self._sets: OrderedDict[str, Any] = OrderedDict()
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def item(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A question, the answer that its scorer should like, and the entry that it scores with."""
        key = json.dumps([name, level, config, seed])
        found = self._items.get(key)
        if found is None:
            found = self._items[key] = self._drawn(name, level, config, seed)
            if len(self._items) > KEPT:
                self._items.popitem(last=False)
        return found

    def score(self, name: str, level: int | None, config: dict[str, Any], answer: str, entry: str) -> float:
        """From 0 to 1."""
        _settle(0)
        value = pickle.loads(base64.b64decode(entry))  # noqa: S301  # what `item` wrote
        scored = score(name, self._set(name, level, config), answer, value)
        return min(1.0, max(0.0, float(scored)))

    def check(self, name: str, level: int | None, config: dict[str, Any]) -> str | None:
        """Why the package does not take these settings, or None."""
        known = {field.name for field in fields(self.factory.DATASETS[name][1])}
        wrong = sorted(set(config) - known)
        if wrong:
            return f"it has no {', '.join(wrong)}, but {', '.join(sorted(known - {'seed', 'size'}))}"
        try:
            self._set(name, level, config)
        except (AssertionError, TypeError, ValueError) as err:
            return f"{type(err).__name__}: {err}"
        return None

    def _drawn(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> dict[str, Any]:
        for again in range(TRIES):
            try:
                entry = self._entry(name, level, config, seed + again)
                break
            except Exception:  # some generators give up, and some would never end: a seed that they cannot use
                if again == TRIES - 1:
                    raise
        answer = solution(name, self._set(name, level, config), entry)
        packed = base64.b64encode(pickle.dumps(entry)).decode("ascii")
        return {"question": str(entry["question"]), "answer": answer, "entry": packed}

    def _entry(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> dict[str, Any]:
        _settle(seed)
        if name in RESEEDED:
            dataset = self._set(name, level, config)
            dataset.seed = seed
        else:
            dataset = self._made(name, level, config, seed)
        if name != "codeio":
            return dict(dataset[0])
        with TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # it runs programs, some of which write files
            return dict(dataset[0])

    def _set(self, name: str, level: int | None, config: dict[str, Any]) -> Any:
        key = json.dumps([name, level, config])
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = self._made(name, level, config, 0)
            if len(self._sets) > KEPT_SETS:
                self._sets.popitem(last=False)
        return found

    def _made(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> Any:
        given = {**config, "seed": seed, "size": 1}
        if level is None:
            return self.factory.create_dataset(name, **given)
        curriculum = self.factory.create_curriculum(name)
        curriculum.set_global_level(level)
        chosen = curriculum.generate_configuration(given)
        for key, value in config.items():
            setattr(chosen, key, value)  # what is given goes before what the level says
        if hasattr(chosen, "validate"):
            chosen.validate()
        return self.factory.DATASETS[name][0](config=chosen)


def _settle(seed: int) -> None:
    """What the whole process shares, as if nothing had been drawn before: some data sets change it, some rely on it."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    decimal.setcontext(decimal.Context(prec=28))


def main() -> None:
    requests, answers = _private_pipes()
    _limit_memory()
    try:
        gym = Gym()
    except ImportError as err:
        _write(answers, {"error": f"{type(err).__name__}: {err}", "missing": err.name})
        return
    _write(answers, {"value": "ready"})
    while (request := _read(requests)) is not None:
        does, limit = request.pop("do"), request.pop("limit")
        # The kernel ends this process should nobody be left to do it: no thread and no lock of Python's is in its way.
        signal.setitimer(signal.ITIMER_REAL, limit + 5.0)
        try:
            answer: dict[str, Any] = {"value": getattr(gym, does)(**request)}
        except Exception as err:  # noqa: BLE001  # whatever the package raises is told to the caller
            answer = {"error": f"{type(err).__name__}: {err}"[:2000]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answer)


def _private_pipes() -> tuple[int, int]:
    """Standard input and output for the frames alone: what the package prints goes nowhere."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(nothing, handle)
    return requests, answers


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, OSError, ValueError):
        pass  # not every system has it; the limit of time remains


def _read(handle: int) -> dict[str, Any] | None:
    head = _exactly(handle, 4)
    if head is None:
        return None
    body = _exactly(handle, struct.unpack(">I", head)[0])
    return None if body is None else json.loads(body)


def _exactly(handle: int, count: int) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < count:
        piece = os.read(handle, count - len(pieces))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _write(handle: int, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    rest = memoryview(struct.pack(">I", len(body)) + body)
    while rest:
        rest = rest[os.write(handle, rest) :]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who closes the pipe
    sys.setrecursionlimit(3_000)
    main()
