"""Write each episode to a JSONL file, one line per episode."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.errors import StoreFailed
from palestra.plain_data import plain_data
from palestra.types import Observation, Step

SCHEMA = 1


class Record(Wrapper):
    """Append one JSON line to `path` when an episode ends, or when `reset` or `close` abandons it.

    A line contains the env's id and keyword arguments, the seed, the prompt, every action with its observation, reward,
    flags and info, and the totals; the seed and the actions suffice to reproduce the episode. Each line is written
    under a file lock as soon as the episode ends, so that several processes can share a file and a crash loses at most
    the current episode.
    """

    def __init__(self, env: Env, path: str | Path) -> None:
        super().__init__(env)
        self.path = Path(path)
        self._episode: dict[str, Any] | None = None
        self._turns: list[dict[str, Any]] = []

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        self._write()
        inner = self.env.unwrapped
        self._turns = []
        self._episode = {
            "schema": SCHEMA,
            "env": inner.spec.id if inner.spec is not None else repr(inner),
            "kwargs": plain_data(inner._call[1], show=_show),
            "seed": info.get("seed"),
            "prompt": observation,
            "info": plain_data(info, show=_show),
        }
        return observation, info

    def after_step(self, action: str, step: Step) -> Step:
        info = plain_data(step.info, show=_show)
        self._turns.append({"action": action, **step._asdict(), "info": info})
        if step.done:
            self._write()
        return step

    def close(self) -> None:
        self._write()
        super().close()

    def _write(self) -> None:
        """Write the current episode if it has at least one turn."""
        if self._episode is None or not self._turns:
            return
        last = self._turns[-1]
        line = {
            **self._episode,
            "turns": self._turns,
            "return": sum(turn["reward"] for turn in self._turns),
            "finished": last["terminated"] or last["truncated"],
            "success": bool(last["info"].get("success", False)),
        }
        data = json.dumps(line, default=_show, ensure_ascii=True).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # the lock is released when the file is closed
                written = os.write(handle, data)
                if written != len(data):
                    os.ftruncate(handle, os.fstat(handle).st_size - written)  # remove the incomplete line
                    raise OSError(f"only {written} of {len(data)} bytes were written")
            finally:
                os.close(handle)
        except OSError as err:
            raise StoreFailed(f"cannot write the episode to {self.path}: {err}") from err
        self._episode = None


def _show(value: Any) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value)
