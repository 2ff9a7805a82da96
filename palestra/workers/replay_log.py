"""Record an episode that runs in another process, to replay it or report its loss if the process crashes."""

from __future__ import annotations

from typing import Any

from palestra.errors import EnvFailed
from palestra.workers.env_runner import episode_seed
from palestra.workers.types import (
    CALL,
    NO_REWARD,
    REPLACE,
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
    """Seed, options and actions of an env's running episode, and the command in flight."""

    def __init__(self, index: int, name: str, root: int, autoreset: Autoreset) -> None:
        self.index = index
        self.name = name
        self.root = root
        self.autoreset = autoreset
        self.episode = -1
        self.options: dict[str, Any] | None = None
        self.actions: list[str] = []
        self.last: Any = None  # the latest observation, which a replay must reproduce
        self.pending_reset = False  # whether the next step ignores its action and starts an episode
        self.over = False  # whether the episode has ended, so that a replay is not needed
        self.command: Command | None = None  # the command in flight, if any
        self.stale = False  # whether the env must be restored because its worker was replaced
        self.lost: EnvFailure | None = None  # failure to report with the next step

    def state(self, *, replay: bool) -> tuple[Any, ...]:
        """Return the arguments for `EnvRunner._restore`. Without `replay`, only the episode counter is restored."""
        replay = replay and not (self.over or self.pending_reset or self.episode < 0)
        actions = self.actions if replay else None
        return (self.root, self.episode, self.options, actions, self.last, self.pending_reset)

    def record(self, command: Command, reply: Reply) -> None:
        """Update the log from a command and its reply."""
        _, kind, payload = command
        if kind == CALL:
            return
        _, observation, _, terminated, truncated, info, episode = reply
        if kind == RESET and payload[0] is not None:
            self.root = payload[0]
        if kind == STEP and episode == self.episode and not self.pending_reset:
            self.actions.append(payload)
        else:
            self.episode = episode
            self.options = payload[1] if kind == RESET else None
            self.actions = []
        self.last = observation
        self.pending_reset = self.over = False
        if terminated or truncated:
            self._record_end(info)

    def _record_end(self, info: dict[str, Any]) -> None:
        if self.autoreset == "same_step":
            self.pending_reset = "failure" in info and self.last == ""  # True if no episode could be started
        else:
            self.pending_reset = self.autoreset == "next_step"
            self.over = self.autoreset == "disabled"

    def prepare(self, command: Command) -> Command:
        """Return the command to send. If the env must be restored first, this is a RESTORE that contains `command`.

        They are not sent as two commands, because the worker could run these concurrently in two threads.
        """
        index, kind, payload = command
        if self.lost is not None and kind != CALL:
            failure, self.lost = self.lost, None
            if kind == STEP:
                self.stale = False
                self.command = (index, REPLACE, (self.root, self.episode, failure))
                return self.command
        if not self.stale or kind == REPLACE:
            self.stale = False
            return command
        self.stale = False
        return (index, RESTORE, (self.state(replay=kind != RESET), kind, payload))

    def blame(self, command: Command, cause: Cause, message: str) -> Reply | None:
        """Replace the command in flight, which made the worker fail, with REPLACE. For a CALL, return its reply."""
        _, kind, payload = command
        root, episode = self.root, self.episode
        if kind == RESET:
            root, episode = (root, episode + 1) if payload[0] is None else (payload[0], 0)
        elif kind == REPLACE:
            root, episode = payload[0], payload[1] + 1
        failure = self.failure(cause, message, root, episode, payload if kind == STEP else None)
        if kind == CALL:
            self.lost, self.command = failure, None
            return (self.index, None, NO_REWARD, False, False, {"failure": failure}, episode)
        self.root = root
        self.command = (self.index, REPLACE, (root, episode, payload[2] if kind == REPLACE else failure))
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
