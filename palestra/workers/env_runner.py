"""Run commands on one env: derive its episode seeds, reset it automatically, and report its failures."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from random import Random
from typing import Any

from palestra.core import Env
from palestra.errors import EnvFailed, InfrastructureError
from palestra.seeding import nth_seed
from palestra.types import Observation, finite_reward
from palestra.workers.types import (
    CALL,
    NO_REWARD,
    REPLACE,
    RESET,
    RESTORE,
    STEP,
    Autoreset,
    Cause,
    EnvFailure,
    Factory,
    Reply,
)

RESET_ATTEMPTS = 3  # maximum number of attempts to start an episode; each attempt uses the next episode's seed
MAX_TRACE = 4_000  # maximum number of characters in a traceback; the start is cut off


def factory_name(factory: Factory) -> str:
    """Return a factory's name for messages: its `name` attribute, or the name of the function or class."""
    name = getattr(factory, "name", None) or getattr(factory, "__name__", None)
    return name if isinstance(name, str) else repr(factory)


def episode_seed(root: int, episode: int) -> int:
    """Return the seed of an episode. Episode 0 uses the root seed, so that `reset(seed)` can reproduce any episode."""
    return root if episode == 0 else nth_seed(root, episode)


def _ignore_phase(_: str) -> None:
    """Ignore the start of a phase. Default for `on_phase`, for runners without timeouts."""


class EnvRunner:
    """Runs one env in a vector environment, counts its episodes, and resets it according to the autoreset mode.

    `on_phase` is called with "step", "reset" or "make" when such a phase starts, so that a deadline can be set for it.
    With `raise_memory_error`, a MemoryError is raised instead of reported as a failure. The caller must then end the
    process, because it is no longer reliable.
    """

    __slots__ = (
        "autoreset",
        "env",
        "episode",
        "factory",
        "index",
        "lost",
        "on_phase",
        "pending_reset",
        "raise_memory_error",
        "root",
    )

    def __init__(
        self,
        index: int,
        factory: Factory,
        root: int,
        autoreset: Autoreset,
        *,
        on_phase: Callable[[str], None] = _ignore_phase,
        raise_memory_error: bool = False,
    ) -> None:
        self.index = index
        self.factory = factory
        self.root = root
        self.autoreset = autoreset
        self.on_phase = on_phase
        self.raise_memory_error = raise_memory_error
        self.env: Env | None = None
        self.episode = -1  # number of the running episode; -1 before the first one
        self.pending_reset = False  # whether the next step ignores its action and starts an episode
        self.lost: EnvFailure | None = None  # why the running episode cannot continue; reported by the next step

    @property
    def seed(self) -> int | None:
        return episode_seed(self.root, self.episode) if self.episode >= 0 else None

    def make(self) -> None:
        """Create the env if it does not exist yet. Exceptions from its constructor are not caught."""
        if self.env is None:
            self.on_phase("make")
            self.env = self.factory()

    def run(self, kind: int, payload: Any) -> Reply:
        """Run one command and return its reply."""
        try:
            return self._run(kind, payload)
        except KeyboardInterrupt as err:
            if threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C
            failure = self.failure_of(err, payload if kind == STEP else None)  # raised by the env itself
            if kind == CALL:
                return (self.index, None, 0.0, False, False, {"failure": failure}, self.episode)
            return self.after_failure(failure)

    def _run(self, kind: int, payload: Any) -> Reply:
        if kind == STEP:
            return self.step(payload)
        if kind == RESET:
            root, options = payload
            if root is not None:
                self.root, self.episode = root, -1
            self.lost = None
            return self._reply(*self._start_episode(options), {})
        if kind == CALL:
            return self._call(*payload)
        if kind == REPLACE:
            self.root, self.episode, failure = payload
            return self.after_failure(failure)
        if kind == RESTORE:
            state, kind, payload = payload
            self._restore(*state)
            return self._run(kind, payload)
        raise EnvFailed(f"unknown command {kind!r}")

    def step(self, action: str) -> Reply:
        if self.lost is not None:
            failure, self.lost = self.lost, None
            return self.after_failure(failure)
        if self.pending_reset:
            return self._reply(*self._start_episode(), {})
        try:
            self.on_phase("step")
            observation, reward, terminated, truncated, info = self.env.step(action)  # type: ignore[union-attr]
            reward = finite_reward(reward)
        except (Exception, SystemExit) as err:  # noqa: BLE001  # an exception affects only this env
            return self.after_failure(self.failure_of(err, action))
        if terminated or truncated:
            return (self.index, *self.finish(observation, reward, terminated, truncated, info), self.episode)
        return (self.index, observation, reward, terminated, truncated, info, self.episode)

    def finish(
        self, observation: Observation, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Apply the autoreset mode to the result of an episode's last step."""
        if self.autoreset == "same_step":
            first, new_info, failure = self._start_episode()
            info = {**new_info, "final_observation": observation, "final_info": info}
            if failure is not None:
                info["failure"] = failure
            return first, reward, bool(terminated), bool(truncated), info
        self.pending_reset = self.autoreset == "next_step"
        return observation, reward, bool(terminated), bool(truncated), info

    def after_failure(self, failure: EnvFailure) -> Reply:
        """Discard the env and return the reply to a failed step. With `same_step`, also start the next episode."""
        self.discard()
        if self.autoreset == "same_step":
            return self._reply(*self._start_episode(), {"failure": failure}, failed=True)
        self.pending_reset = self.autoreset == "next_step"
        return (self.index, "", NO_REWARD, False, True, {"failure": failure}, self.episode)

    def _start_episode(
        self, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any], EnvFailure | None]:
        """Reset the env and return the first observation, its info, and the first failure, if any.

        In the `same_step` autoreset mode, a failed reset is retried with the seeds of the next episodes. If all
        attempts fail, the observation is empty.
        """
        first_failure = None
        attempts = RESET_ATTEMPTS if self.autoreset == "same_step" else 1
        while attempts:
            attempts -= 1
            self.episode = episode = self.episode + 1
            try:
                if self.env is None:
                    self.make()
                if self.on_phase is not _ignore_phase:
                    self.on_phase("reset")
                seed = nth_seed(self.root, episode) if episode else self.root  # `episode_seed`, inlined for speed
                env: Env = self.env  # type: ignore[assignment]  # set by `make`
                observation, info = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
            except (Exception, SystemExit) as err:  # noqa: BLE001
                first_failure = first_failure or self.failure_of(err, None)
                self.discard()
            else:
                self.pending_reset = False
                return observation, info, first_failure
        self.pending_reset = self.autoreset != "disabled"
        return "", {}, first_failure

    def _reply(
        self,
        observation: Observation,
        info: dict[str, Any],
        failure: EnvFailure | None,
        extra: dict[str, Any],
        failed: bool = False,
    ) -> Reply:
        """Return the reply to a reset."""
        if failure is not None:
            extra = {"failure": failure, **extra}
            failed = True
        info = {**info, **extra} if extra else info
        return (self.index, observation, NO_REWARD if failed else 0.0, False, failed, info, self.episode)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reply:
        """Call a method or read an attribute of the env, and return the value instead of an observation.

        `name` may contain dots (`a.b`). An exception is reported as a failure and does not affect the episode.
        """
        if self.lost is not None:
            return (self.index, None, 0.0, False, False, {"failure": self.lost}, self.episode)
        try:
            self.make()
            self.on_phase("step")
            value = attrgetter(name)(self.env)
            if callable(value):
                value = value(*args, **kwargs)
        except (Exception, SystemExit) as err:  # noqa: BLE001
            return (self.index, None, 0.0, False, False, {"failure": self.failure_of(err, None)}, self.episode)
        return (self.index, value, 0.0, False, False, {}, self.episode)

    def _restore(
        self,
        root: int,
        episode: int,
        options: dict[str, Any] | None,
        actions: list[str] | None,
        last: Observation,
        pending_reset: bool,
    ) -> None:
        """Replay a lost episode up to its last action. If `actions` is None, only restore the episode counter."""
        self.discard()
        self.root, self.episode, self.pending_reset, self.lost = root, episode, pending_reset, None
        if actions is None:
            return
        action = None
        try:
            self.make()
            env: Env = self.env  # type: ignore[assignment]  # set by `make`
            self.on_phase("reset")
            observation, _ = env.reset(seed=self.seed, options=options)
            for action in actions:
                self.on_phase("step")
                observation = env.step(action)[0]
            if observation != last:
                raise EnvFailed("the env is not deterministic: replaying its episode led to a different observation")
        except (Exception, SystemExit) as err:  # noqa: BLE001
            self.lost = self.failure_of(err, action, cause="lost")

    def failure_of(self, err: BaseException, action: str | None, *, cause: Cause = "raised") -> EnvFailure:
        """Convert an exception to an EnvFailure."""
        if isinstance(err, MemoryError):
            if self.raise_memory_error:
                raise err
            cause = "memory"
        trace = "".join(traceback.format_exception(err))[-MAX_TRACE:]
        return EnvFailure(
            index=self.index,
            env=factory_name(self.factory),
            boundary=err.boundary if isinstance(err, InfrastructureError) else "env",
            cause=cause,
            kind=type(err).__name__,
            message=str(err),
            seed=self.seed,
            action=action,
            trace=trace,
        )

    def discard(self) -> None:
        """Close and remove the env. Exceptions raised by its `close` are ignored."""
        env, self.env = self.env, None
        if env is not None:
            with suppress(Exception, SystemExit):
                env.close()


class PlayerRngProxy(Random):
    """Random generator whose `seed` method also seeds an env's random player in another process."""

    _forward: Callable[[Any], object] | None = None

    def __init__(self, forward: Callable[[Any], object]) -> None:
        super().__init__()
        self._forward = forward

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(a, version)
        if self._forward is not None:
            self._forward(a)
