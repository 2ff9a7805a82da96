"""ReplayLog: what the keeper of an env in another process writes down, to have it back or to report it lost."""

from __future__ import annotations

from typing import Any

from palestra.errors import EnvFailed
from palestra.workers.env_runner import episode_seed
from palestra.workers.types import (
    CALL,
    FRESH,
    NO_REWARD,
    RESET,
    RESTORE,
    STEP,
    Autoreset,
    Cause,
    Command,
    EnvFailure,
    Reply,
)

_KINDS: dict[Cause, str] = {
    "deadline": TimeoutError.__name__,
    "memory": MemoryError.__name__,
    "died": "WorkerDied",
    "node": "NodeLost",
    "lost": EnvFailed.__name__,
}


class ReplayLog:
    """What it takes to have one env back: where it is, and how it got there."""

    def __init__(self, index: int, name: str, root: int, autoreset: Autoreset) -> None:
        self.index = index
        self.name = name
        self.root = root
        self.autoreset = autoreset
        self.episode = -1
        self.options: dict[str, Any] | None = None
        self.actions: list[str] = []
        self.last: Any = None  # the latest observation: a replay must end there
        self.pending = False  # as in EnvRunner
        self.over = False  # nothing to have back but the count of episodes
        self.command: Command | None = None  # under way
        self.stale = False  # its worker has not heard of it
        self.lost: EnvFailure | None = None  # reported with the next step

    def restore(self, *, replay: bool) -> tuple[Any, ...]:
        """What EnvRunner needs; without a replay, only to go on counting."""
        replay = replay and not (self.over or self.pending or self.episode < 0)
        return (self.root, self.episode, self.options, self.actions if replay else None, self.last, self.pending)

    def note(self, command: Command, reply: Reply) -> None:
        """`command` led to `reply`."""
        _, kind, payload = command
        if kind == CALL:
            return
        _, observation, _, terminated, truncated, info, episode = reply
        if kind == RESET and payload[0] is not None:
            self.root = payload[0]
        if kind == STEP and episode == self.episode and not self.pending:
            self.actions.append(payload)
        else:
            self.episode = episode
            self.options = payload[1] if kind == RESET else None
            self.actions = []
        self.last = observation
        self.pending = self.over = False
        if terminated or truncated:
            self._note_end(info)

    def _note_end(self, info: dict[str, Any]) -> None:
        if self.autoreset == "same_step":
            self.pending = "failure" in info and self.last == ""  # no episode could be begun
        else:
            self.pending = self.autoreset == "next_step"
            self.over = self.autoreset == "disabled"

    def needs(self, command: Command) -> list[Command]:
        """`command`, behind what a worker that has not heard of this env must be told first."""
        index, kind, _ = command
        if self.lost is not None and kind != CALL:
            failure, self.lost = self.lost, None
            if kind == STEP:
                self.stale = False
                self.command = (index, FRESH, (self.root, self.episode, failure))
                return [self.command]
        if not self.stale or kind == FRESH:
            self.stale = False
            return [command]
        self.stale = False
        return [(index, RESTORE, self.restore(replay=kind != RESET)), command]

    def blame(self, command: Command, cause: Cause, message: str) -> Reply | None:
        """Turn `command`, which was under way, into a report; a reply where that is all there is to say."""
        _, kind, payload = command
        root, episode = self.root, self.episode
        if kind == RESET:
            root, episode = (root, episode + 1) if payload[0] is None else (payload[0], 0)
        elif kind == FRESH:
            root, episode = payload[0], payload[1] + 1
        failure = self.failure(cause, message, root, episode, payload if kind == STEP else None)
        if kind == CALL:
            self.lost, self.command = failure, None
            return (self.index, None, NO_REWARD, False, False, {"failure": failure}, episode)
        self.root = root
        self.command = (self.index, FRESH, (root, episode, payload[2] if kind == FRESH else failure))
        return None

    def failure(self, cause: Cause, message: str, root: int, episode: int, action: str | None) -> EnvFailure:
        return EnvFailure(
            index=self.index,
            env=self.name,
            boundary="env",
            cause=cause,
            kind=_KINDS[cause],
            message=message,
            seed=episode_seed(root, episode) if episode >= 0 else None,
            action=action,
        )
