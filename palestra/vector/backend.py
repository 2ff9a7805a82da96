"""Backend: what every backend provides, and the plain one that runs each command at once, in the caller's thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.workers.env_runner import EnvRunner
from palestra.workers.types import Autoreset, BoolList, Command, Factory, Limits, Reply, VectorStep


class Backend(ABC):
    """Takes commands, one at a time for each env, and gives one reply to each, in whatever order they are done."""

    tick: float | None = None  # seconds after which `collect` wants to be called, to see to deadlines

    immediate = False  # every command is done when `submit` returns

    @abstractmethod
    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        """Begin these; does not wait for them. `whole`: the caller waits for all of them, so they may come together."""

    @abstractmethod
    def collect(self, timeout: float | None) -> list[Reply]:
        """What is done: at least one reply, unless `timeout` passes first or nothing is under way."""

    @abstractmethod
    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `loop` when `collect(0)` may have something; returns what ends that."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. May be called twice."""


class SyncBackend(Backend):
    """Every command runs when it is submitted."""

    immediate = True

    def __init__(
        self, factories: Sequence[Factory], roots: Sequence[int], autoreset: Autoreset, limits: Limits
    ) -> None:
        if limits.step_timeout is not None or limits.reset_timeout is not None or limits.memory is not None:
            raise BadValue("backend 'sync' can neither end a step that hangs nor bound its memory; use 'process'")
        self.runners = [EnvRunner(i, factory, roots[i], autoreset) for i, factory in enumerate(factories)]
        self._done: list[Reply] = []
        self._steps: list[Callable[[str], Any] | None] = []  # what `step_all` calls for each env
        try:
            for runner in self.runners:
                runner.make()
        except BaseException:
            self.close()
            raise
        self._steps = [self._step_of(runner) for runner in self.runners]

    def _step_of(self, runner: EnvRunner) -> Callable[[str], Any] | None:
        """The env's own `step`; None where an episode has to begin first, which is the runner's business."""
        return None if runner.env is None or runner.pending else runner.env.step

    def step_all(self, actions: Sequence[str]) -> tuple[VectorStep, list[int]]:
        """Lock-step over all envs, and the indices to be noted: failed, or over and not reset.

        Made for cheap envs, where every call counts, and for many of them, where it counts what is kept: the envs' own
        tuples are taken apart at once.
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
                # None raises too, and costs nothing where it is rare.
                observation, reward, terminated, truncated, info = step(action)  # type: ignore[misc]
                if terminated or truncated:
                    index = len(infos)
                    runner = self.runners[index]
                    observation, reward, terminated, truncated, info = runner.finish(
                        observation, reward, terminated, truncated, info
                    )
                    if runner.env is None or runner.pending or runner.env.step != step:
                        self._steps[index] = self._step_of(runner)
                    if runner.autoreset == "disabled" or "failure" in info:
                        marked.append(index)
            except (Exception, SystemExit) as err:  # noqa: BLE001  # whatever it raises, it costs this env alone
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
            if reply is not None:
                self._done.append(reply)

    def collect(self, timeout: float | None) -> list[Reply]:  # noqa: ARG002  # nothing is ever under way
        done, self._done = self._done, []
        return done

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        return loop.call_soon(callback).cancel

    def close(self) -> None:
        for runner in self.runners:
            runner.discard()
