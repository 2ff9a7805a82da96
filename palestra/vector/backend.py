"""Pool: what every backend provides, and the plain one that runs each command at once, in the caller's thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.workers.env_factory import Recipe
from palestra.workers.env_runner import Slot
from palestra.workers.types import Autoreset, Command, Flags, Limits, Outcome, Reply


class Pool(ABC):
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


class SyncPool(Pool):
    """Every command runs when it is submitted."""

    immediate = True

    def __init__(self, recipes: Sequence[Recipe], roots: Sequence[int], autoreset: Autoreset, limits: Limits) -> None:
        if limits.step_timeout is not None or limits.reset_timeout is not None or limits.memory is not None:
            raise BadValue("backend 'sync' can neither end a step that hangs nor bound its memory; use 'process'")
        self.slots = [Slot(i, recipe, roots[i], autoreset) for i, recipe in enumerate(recipes)]
        self._done: list[Reply] = []
        self._steps: list[Callable[[str], Any] | None] = []  # what `step_all` calls for each env
        try:
            for slot in self.slots:
                slot.make()
        except BaseException:
            self.close()
            raise
        self._steps = [self._step_of(slot) for slot in self.slots]

    def _step_of(self, slot: Slot) -> Callable[[str], Any] | None:
        """The env's own `step`; None where an episode has to begin first, which is the slot's business."""
        return None if slot.env is None or slot.pending else slot.env.step

    def step_all(self, actions: Sequence[str]) -> tuple[Outcome, list[int]]:
        """Lock-step over all envs, and the indices to be noted: failed, or over and not reset.

        Made for cheap envs, where every call counts, and for many of them, where it counts what is kept: the envs' own
        tuples are taken apart at once.
        """
        observations: list[Any] = []
        rewards: list[float] = []
        terminations, truncations = Flags(), Flags()
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
                    slot = self.slots[index]
                    observation, reward, terminated, truncated, info = slot.finish(
                        observation, reward, terminated, truncated, info
                    )
                    if slot.env is None or slot.pending or slot.env.step != step:
                        self._steps[index] = self._step_of(slot)
                    if slot.autoreset == "disabled" or "failure" in info:
                        marked.append(index)
            except (Exception, SystemExit) as err:  # noqa: BLE001  # whatever it raises, it costs this env alone
                index = len(infos)
                slot = self.slots[index]
                reply = slot.step(action) if step is None else slot.after_failure(slot.failure_of(err, action))
                _, observation, reward, terminated, truncated, info, _ = reply
                self._steps[index] = self._step_of(slot)
                if truncated or terminated:
                    marked.append(index)
            add_observation(observation)
            add_reward(reward)
            add_terminated(terminated)
            add_truncated(truncated)
            add_info(info)
        return Outcome(observations, rewards, terminations, truncations, infos), marked

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:  # noqa: ARG002
        for index, kind, payload in commands:
            slot = self.slots[index]
            reply = slot.run(kind, payload)
            self._steps[index] = self._step_of(slot)
            if reply is not None:
                self._done.append(reply)

    def collect(self, timeout: float | None) -> list[Reply]:  # noqa: ARG002  # nothing is ever under way
        done, self._done = self._done, []
        return done

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        return loop.call_soon(callback).cancel

    def close(self) -> None:
        for slot in self.slots:
            slot.discard()
