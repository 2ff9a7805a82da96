"""Process that runs reasoning-gym: it reads requests from standard input and writes replies to standard output.

The package is imported only in this process. It may therefore use the global random generators, its imports do not slow
down other processes, and a scorer that hangs can be killed. The hash seed and the random generators are fixed, so that
an item depends only on its dataset, level, settings and seed. A message is JSON, preceded by its length in four bytes.
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
import types
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import fields
from tempfile import TemporaryDirectory
from typing import Any

from palestra.envs.rg import overrides
from palestra.envs.rg.scoring import score
from palestra.envs.rg.solutions import solution

MAX_MEMORY = 4 << 30  # bytes of address space; some answers make scorers use too much memory
MAX_ATTEMPTS = 20  # maximum number of seeds tried per item
PLOTTING = (
    "matplotlib",
    "matplotlib.animation",
    "matplotlib.collections",
    "matplotlib.pyplot",
    "mpl_toolkits",
    "mpl_toolkits.mplot3d",
)
CACHED_ITEMS = 64
CACHED_DATASETS = 16  # maximum number of cached datasets, some of which are large
# Datasets with slow constructors. One instance is cached and reseeded; tests verify that the items are the same.
RESEEDED = frozenset(
    {"arc_agi", "codeio", "figlet_font", "group_anagrams", "n_queens", "rush_hour", "spell_backward", "word_ladder"}
)


class DatasetService:
    """Service that generates items and scores answers."""

    def __init__(self) -> None:
        with _without_plotting():
            importlib.import_module("reasoning_gym")  # registers all datasets
        self.factory: Any = importlib.import_module("reasoning_gym.factory")
        overrides.install()
        self._datasets: OrderedDict[str, Any] = OrderedDict()
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def item(
        self,
        name: str,
        level: int | None,
        config: dict[str, Any],
        seed: int,
        size: int | None = None,
        index: int = 0,
    ) -> dict[str, Any]:
        """Return a question, an answer that the scorer should accept, and the entry that `score` needs.

        With `size`, the item is entry `index` in the dataset with that size and this seed.
        """
        key = json.dumps([name, level, config, seed, size, index])
        item = self._items.get(key)
        if item is None:
            if size is None:
                item = self._draw(name, level, config, seed)
            else:
                _reset_global_state(seed + index)
                dataset = self._dataset(name, level, config, seed, size)
                item = self._packed(name, level, config, dict(dataset[index]))
            self._items[key] = item
            if len(self._items) > CACHED_ITEMS:
                self._items.popitem(last=False)
        return item

    def score(self, name: str, level: int | None, config: dict[str, Any], answer: str, entry: str) -> float:
        """Return the score of an answer, from 0 to 1."""
        _reset_global_state(0)
        value = pickle.loads(base64.b64decode(entry))  # noqa: S301  # the pickle was created by `item`
        scored = score(name, self._dataset(name, level, config), answer, value)
        return min(1.0, max(0.0, float(scored)))

    def check(self, name: str, level: int | None, config: dict[str, Any]) -> str | None:
        """Return the reason why the package rejects these settings, or None if it accepts them."""
        allowed = {field.name for field in fields(self.factory.DATASETS[name][1])}
        wrong = sorted(set(config) - allowed)
        if wrong:
            return f"unknown {', '.join(wrong)}; accepted: {', '.join(sorted(allowed - {'seed', 'size'}))}"
        try:
            self._dataset(name, level, config)
        except (AssertionError, TypeError, ValueError) as err:
            return f"{type(err).__name__}: {err}"
        return None

    def _draw(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> dict[str, Any]:
        for attempt in range(MAX_ATTEMPTS):
            try:
                entry = self._entry(name, level, config, seed + attempt)
                break
            except Exception:  # some generators fail or do not terminate with some seeds
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        return self._packed(name, level, config, entry)

    def _packed(self, name: str, level: int | None, config: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
        answer = solution(name, self._dataset(name, level, config), entry)
        packed = base64.b64encode(pickle.dumps(entry)).decode("ascii")
        return {"question": str(entry["question"]), "answer": answer, "entry": packed}

    def _entry(self, name: str, level: int | None, config: dict[str, Any], seed: int) -> dict[str, Any]:
        _reset_global_state(seed)
        if name in RESEEDED:
            dataset = self._dataset(name, level, config)
            dataset.seed = seed
        else:
            dataset = self._create(name, level, config, seed)
        if name != "codeio":
            return dict(dataset[0])
        # codeio runs programs, some of which write files to the working directory.
        with TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            return dict(dataset[0])

    def _dataset(self, name: str, level: int | None, config: dict[str, Any], seed: int = 0, size: int = 1) -> Any:
        key = json.dumps([name, level, config, seed, size])
        dataset = self._datasets.get(key)
        if dataset is None:
            dataset = self._datasets[key] = self._create(name, level, config, seed, size)
            if len(self._datasets) > CACHED_DATASETS:
                self._datasets.popitem(last=False)
        return dataset

    def _create(self, name: str, level: int | None, config: dict[str, Any], seed: int, size: int = 1) -> Any:
        settings = {**config, "seed": seed, "size": size}
        if level is None:
            return self.factory.create_dataset(name, **settings)
        curriculum = self.factory.create_curriculum(name)
        curriculum.set_global_level(level)
        level_config = curriculum.generate_configuration(settings)
        if name == "game_of_life":  # the package fills ten cells at every level, so most boards would become empty
            cells = level_config.grid_size_x * level_config.grid_size_y
            level_config.filled_cells = int(level_config.filled_cells_weights * cells)
        for key, value in config.items():
            setattr(level_config, key, value)  # explicit settings override the level's settings
        if hasattr(level_config, "validate"):
            level_config.validate()
        return self.factory.DATASETS[name][0](config=level_config)


@contextlib.contextmanager
def _without_plotting() -> Iterator[None]:
    """Replace matplotlib while cellpylib is imported, which would import it to define plots that nothing here draws.

    The import would take half of the time that the process needs to start.
    """
    added = {name: types.ModuleType(name) for name in PLOTTING if name not in sys.modules}
    for name, module in added.items():
        parent, _, child = name.rpartition(".")
        vars(module)["Axes3D"] = object  # the only name that cellpylib imports from one of these modules
        if parent in added:
            setattr(added[parent], child, module)
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def _reset_global_state(seed: int) -> None:
    """Reset the global random generators and the decimal context, because some datasets modify or use them."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    decimal.setcontext(decimal.Context(prec=28))


def main() -> None:
    requests, replies = _private_pipes()
    _limit_memory()
    try:
        service = DatasetService()
    except ImportError as err:
        _write(replies, {"error": f"{type(err).__name__}: {err}", "missing": err.name})
        return
    _write(replies, {"value": "ready"})
    while (request := _read(requests)) is not None:
        method, timeout = request.pop("method"), request.pop("timeout")
        # The parent kills this process after the timeout. If the parent has exited, SIGALRM ends the process instead,
        # even while native code is running.
        signal.setitimer(signal.ITIMER_REAL, timeout + 5.0)
        try:
            reply: dict[str, Any] = {"value": getattr(service, method)(**request)}
        except Exception as err:  # noqa: BLE001  # every exception is reported to the caller
            reply = {"error": f"{type(err).__name__}: {err}"[:2000]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(replies, reply)


def _private_pipes() -> tuple[int, int]:
    """Return duplicates of standard input and output for messages, and redirect the standard streams to /dev/null.

    The redirection prevents output printed by a dataset from corrupting the messages.
    """
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    return requests, replies


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    except (ImportError, OSError, ValueError):
        pass  # some systems do not support memory limits; the timeout still applies


def _read(handle: int) -> dict[str, Any] | None:
    head = _read_exactly(handle, 4)
    if head is None:
        return None
    body = _read_exactly(handle, struct.unpack(">I", head)[0])
    return None if body is None else json.loads(body)


def _read_exactly(handle: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(handle, count - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _write(handle: int, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    data = memoryview(struct.pack(">I", len(body)) + body)
    while data:
        data = data[os.write(handle, data) :]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which closes the pipe
    sys.setrecursionlimit(3_000)
    main()
