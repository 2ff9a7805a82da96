"""Interface for vector backends, and the backend that runs commands in the calling thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.types import finite_reward
from palestra.workers.env_runner import EnvRunner
from palestra.workers.types import Autoreset, BoolList, Command, Factory, Limits, Reply, VectorStep

INFINITY = float("inf")


class Backend(ABC):
    """Runs commands, one at a time per env, and returns the replies in the order in which the commands finish."""

    tick: float | None = None  # maximum seconds between calls to `collect`, which enforces deadlines

    immediate = False  # whether all commands have finished when `submit` returns

    @abstractmethod
    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        """Start commands without waiting. With `whole`, the caller waits for all of them, so replies may be batched."""

    @abstractmethod
    def collect(self, timeout: float | None) -> list[Reply]:
        """Wait until a reply is ready or `timeout` has passed, and return all ready replies.

        If no command is in flight, return immediately.
        """

    @abstractmethod
    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `loop` whenever `collect(0)` may return replies. Return a function that stops this."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. May be called more than once."""


class SyncBackend(Backend):
    """Runs every command immediately in the calling thread."""

    immediate = True

    def __init__(
        self, factories: Sequence[Factory], roots: Sequence[int], autoreset: Autoreset, limits: Limits
    ) -> None:
        if limits.step_timeout is not None or limits.reset_timeout is not None or limits.memory is not None:
            raise BadValue("the 'sync' backend supports neither timeouts nor a memory limit; use backend='process'")
        self.runners = [EnvRunner(i, factory, roots[i], autoreset) for i, factory in enumerate(factories)]
        self._done: list[Reply] = []
        self._steps: list[Callable[[str], Any] | None] = []  # for each env, the function that `step_all` calls
        try:
            for runner in self.runners:
                runner.make()
        except BaseException:
            self.close()
            raise
        self._steps = [self._step_of(runner) for runner in self.runners]

    def _step_of(self, runner: EnvRunner) -> Callable[[str], Any] | None:
        """Return the env's `step` method, or None if the runner must start an episode first."""
        return None if runner.env is None or runner.pending_reset else runner.env.step

    def step_all(self, actions: Sequence[str]) -> tuple[VectorStep, list[int]]:
        """Step all envs. Also return the indices of the envs that failed or whose episode ended without an autoreset.

        This method is optimized for many fast envs. It makes few Python calls per env, and unpacks the envs' result
        tuples immediately to save memory.
        """
        observations: list[Any] = []
        rewards: list[float] = []
        terminations, truncations = BoolList(), BoolList()
        infos: list[dict[str, Any]] = []
        marked: list[int] = []
        add_observation, add_reward, add_info = observations.append, rewards.append, infos.append
        add_terminated, add_truncated = terminations.append, truncations.append
        for step, action in zip(self._steps, actions, strict=True):
            try:
                # If `step` is None, the call raises TypeError, which is handled below, so no check for None is needed.
                observation, reward, terminated, truncated, info = step(action)  # type: ignore[misc]
                if type(reward) is not float or not -INFINITY < reward < INFINITY:
                    reward = finite_reward(reward)
                if terminated or truncated:
                    index = len(infos)
                    runner = self.runners[index]
                    observation, reward, terminated, truncated, info = runner.finish(
                        observation, reward, terminated, truncated, info
                    )
                    if runner.env is None or runner.pending_reset or runner.env.step != step:
                        self._steps[index] = self._step_of(runner)
                    if runner.autoreset == "disabled" or "failure" in info:
                        marked.append(index)
            except (Exception, SystemExit) as err:  # noqa: BLE001  # an exception affects only this env
                index = len(infos)
                runner = self.runners[index]
                reply = runner.step(action) if step is None else runner.after_failure(runner.failure_of(err, action))
                _, observation, reward, terminated, truncated, info, _ = reply
                self._steps[index] = self._step_of(runner)
                if truncated or terminated:
                    marked.append(index)
            add_observation(observation)
            add_reward(reward)
            add_terminated(terminated)
            add_truncated(truncated)
            add_info(info)
        return VectorStep(observations, rewards, terminations, truncations, infos), marked

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:  # noqa: ARG002
        for index, kind, payload in commands:
            runner = self.runners[index]
            reply = runner.run(kind, payload)
            self._steps[index] = self._step_of(runner)
            self._done.append(reply)

    def collect(self, timeout: float | None) -> list[Reply]:  # noqa: ARG002  # replies are always ready
        replies, self._done = self._done, []
        return replies

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        return loop.call_soon(callback).cancel

    def close(self) -> None:
        for runner in self.runners:
            runner.discard()
