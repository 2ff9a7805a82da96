"""EnvRunner: one env of a vector with its seeds, its autoreset and its faults; commands in, replies out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any

from palestra.core import Env
from palestra.errors import EnvFailed, InfrastructureError
from palestra.seeding import nth_seed
from palestra.types import Observation
from palestra.workers.types import (
    CALL,
    FRESH,
    NO_REWARD,
    RESET,
    RESTORE,
    STEP,
    Autoreset,
    Cause,
    EnvFailure,
    Factory,
    Reply,
)

RESET_ATTEMPTS = 3  # each with the seed of another episode; then the env waits for the next command
LONGEST_TRACE = 4_000  # characters, the end of it


def factory_name(factory: Factory) -> str:
    """Return the label of a factory for messages: its `name`, or the name of the function or class."""
    name = getattr(factory, "name", None) or getattr(factory, "__name__", None)
    return name if isinstance(name, str) else repr(factory)


def episode_seed(root: int, episode: int) -> int:
    """Episode 0 has the env's root seed itself, so that one seed repeats one episode."""
    return root if episode == 0 else nth_seed(root, episode)


def _no_phase(_: str) -> None:
    """Nobody watches the clock."""


class EnvRunner:
    """The env at one index.

    `phase` is told what begins ("step", "reset", "make"), so that a deadline can count from there. With
    `fatal_memory`, a MemoryError is raised on: the process is spoiled, and its keeper deals with it.
    """

    __slots__ = ("autoreset", "env", "episode", "factory", "fatal_memory", "index", "lost", "pending", "phase", "root")

    def __init__(
        self,
        index: int,
        factory: Factory,
        root: int,
        autoreset: Autoreset,
        *,
        phase: Callable[[str], None] = _no_phase,
        fatal_memory: bool = False,
    ) -> None:
        self.index = index
        self.factory = factory
        self.root = root
        self.autoreset = autoreset
        self.phase = phase
        self.fatal_memory = fatal_memory
        self.env: Env | None = None
        self.episode = -1  # the number of the running one
        self.pending = False  # the next step begins an episode and takes no action
        self.lost: EnvFailure | None = None  # why the running episode cannot go on; the next step reports it

    @property
    def seed(self) -> int | None:
        return episode_seed(self.root, self.episode) if self.episode >= 0 else None

    def make(self) -> None:
        """Build the env where there is none; raises what its constructor raises."""
        if self.env is None:
            self.phase("make")
            self.env = self.factory()

    def run(self, kind: int, payload: Any) -> Reply | None:
        """Carry out one command."""
        if kind == STEP:
            return self.step(payload)
        if kind == RESET:
            root, options = payload
            if root is not None:
                self.root, self.episode = root, -1
            self.lost = None
            return self._reply(*self._begin(options), {})
        if kind == CALL:
            return self._call(*payload)
        if kind == FRESH:
            self.root, self.episode, failure = payload
            return self.after_failure(failure)
        if kind == RESTORE:
            self._restore(*payload)
        return None

    def step(self, action: str) -> Reply:
        if self.lost is not None:
            failure, self.lost = self.lost, None
            return self.after_failure(failure)
        if self.pending:
            return self._reply(*self._begin(), {})
        try:
            self.phase("step")
            observation, reward, terminated, truncated, info = self.env.step(action)  # type: ignore[union-attr]
        except (Exception, SystemExit) as err:  # noqa: BLE001  # whatever it raises, it costs this env alone
            return self.after_failure(self.failure_of(err, action))
        if terminated or truncated:
            return (self.index, *self.finish(observation, reward, terminated, truncated, info), self.episode)
        return (self.index, observation, reward, terminated, truncated, info, self.episode)

    def finish(
        self, observation: Observation, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """The five of a last step, with what autoreset adds to them."""
        if self.autoreset == "same_step":
            first, fresh, failure = self._begin()
            info = {**fresh, "final_observation": observation, "final_info": info}
            if failure is not None:
                info["failure"] = failure
            return first, reward, bool(terminated), bool(truncated), info
        self.pending = self.autoreset == "next_step"
        return observation, reward, bool(terminated), bool(truncated), info

    def after_failure(self, failure: EnvFailure) -> Reply:
        """The reply to a step that failed; the env is thrown away, and with `same_step` the next episode has begun."""
        self.discard()
        if self.autoreset == "same_step":
            return self._reply(*self._begin(), {"failure": failure}, failed=True)
        self.pending = self.autoreset == "next_step"
        return (self.index, "", NO_REWARD, False, True, {"failure": failure}, self.episode)

    def _begin(self, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any], EnvFailure | None]:
        """Reset: an episode's first observation, and the first failure on the way to it.

        With `same_step` the episodes after a failed one are tried; where none begins, the observation is empty.
        """
        first = None
        attempts = RESET_ATTEMPTS if self.autoreset == "same_step" else 1
        while attempts:
            attempts -= 1
            self.episode = episode = self.episode + 1
            try:
                if self.env is None:
                    self.make()
                if self.phase is not _no_phase:
                    self.phase("reset")
                seed = nth_seed(self.root, episode) if episode else self.root  # episode_seed, without the call
                env: Env = self.env  # type: ignore[assignment]  # made above
                observation, info = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
            except (Exception, SystemExit) as err:  # noqa: BLE001
                first = first or self.failure_of(err, None)
                self.discard()
            else:
                self.pending = False
                return observation, info, first
        self.pending = self.autoreset != "disabled"
        return "", {}, first

    def _reply(
        self,
        observation: Observation,
        info: dict[str, Any],
        failure: EnvFailure | None,
        more: dict[str, Any],
        failed: bool = False,
    ) -> Reply:
        """The reply that a reset leads to."""
        if failure is not None:
            more = {"failure": failure, **more}
            failed = True
        info = {**info, **more} if more else info
        return (self.index, observation, NO_REWARD if failed else 0.0, False, failed, info, self.episode)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reply:
        """What a method returns, or an attribute (`a.b` too), as the observation; an exception costs nothing."""
        if self.lost is not None:
            return (self.index, None, 0.0, False, False, {"failure": self.lost}, self.episode)
        try:
            self.make()
            self.phase("step")
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
        pending: bool,
    ) -> None:
        """Play a lost episode up to where it was; without `actions`, only go on counting from there."""
        self.discard()
        self.root, self.episode, self.pending, self.lost = root, episode, pending, None
        if actions is None:
            return
        action = None
        try:
            self.make()
            env: Env = self.env  # type: ignore[assignment]  # made above
            self.phase("reset")
            observation, _ = env.reset(seed=self.seed, options=options)
            for action in actions:
                self.phase("step")
                observation = env.step(action)[0]
            if observation != last:
                raise EnvFailed("the same seed and actions led elsewhere: the env is not deterministic")
        except (Exception, SystemExit) as err:  # noqa: BLE001
            self.lost = self.failure_of(err, action, cause="lost")

    def failure_of(self, err: BaseException, action: str | None, *, cause: Cause = "raised") -> EnvFailure:
        """`err` as data."""
        if isinstance(err, MemoryError):
            if self.fatal_memory:
                raise err
            cause = "memory"
        trace = "".join(traceback.format_exception(err))[-LONGEST_TRACE:]
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
        """Close the env and forget it; it may be too broken to close."""
        env, self.env = self.env, None
        if env is not None:
            with suppress(Exception):
                env.close()
