"""Tapes: what an episode was, action by action, so that it can be played again and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, NoReturn

from palestra.conformance.rates import Player, next_action
from palestra.core import Env
from palestra.errors import ConformanceError, EpisodeOver, InfrastructureError
from palestra.spec import EnvSpec
from palestra.types import Step

ENDLESS = 1_000  # turns after which an episode without a budget is left alone

DETERMINISM = "law 1: determinism"
TOTAL = "law 2: any action"
FLAGS = "law 3: flags and rewards"
VALIDITY = "law 4: validity"
FORK = "law 5: fork"
PROMPT = "law 6: prompt"
TIDINESS = "tidiness"


@dataclass(frozen=True, slots=True)
class Tape:
    seed: int
    prompt: str
    actions: tuple[str, ...]
    shown: tuple[str, ...]  # repr of observation, reward, flags after each action
    rewards: tuple[float, ...]
    success: bool | None  # None: not played to the end

    @property
    def record(self) -> list[str]:
        """All the player could tell, in order."""
        return [self.prompt, *self.shown]


@dataclass(slots=True)
class Subject:
    """The environment under test, and how to say what was done to it."""

    make: Callable[[], Env]
    code: str  # an expression that makes it
    spec: EnvSpec | None
    recipe: dict[str, Any] | None  # how another process makes it; None: it cannot
    busy_since: float = 0.0  # for the watchdog: when the call now running began, 0 when none
    doing: tuple[int, tuple[str, ...]] = (0, ())  # its seed and actions

    def broken(
        self, law: str, defect: str, seed: int | None = None, actions: Sequence[str] = (), more: Sequence[str] = ()
    ) -> NoReturn:
        raise ConformanceError(law, defect, self.reproduce(seed, actions, more))

    def reproduce(self, seed: int | None, actions: Sequence[str], more: Sequence[str] = ()) -> str:
        lines = ["import palestra", f"env = {self.code}"]
        if seed is not None:
            lines.append(f"env.reset(seed={seed})")
        if len(actions) > 30:
            lines.append(f"for action in {[_code(a) for a in actions[:-1]]}: env.step(action)")
            actions = actions[-1:]
        lines += [f"env.step({_code(action)})" for action in actions]
        return "\n".join(f"    {line}" for line in [*lines, *more])

    def reset(self, env: Env, seed: int) -> str:
        self.doing = (seed, ())
        self.busy_since = monotonic()
        try:
            result = env.reset(seed=seed)
        except InfrastructureError:
            raise
        except Exception as err:  # noqa: BLE001  # whatever an env under test raises is the finding
            self.broken(TOTAL, f"reset raised {type(err).__name__}: {err}", seed)
        finally:
            self.busy_since = 0.0
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            self.broken(FLAGS, f"reset must return (observation, info), got {type(result).__name__}", seed)
        prompt, info = result
        if not prompt:
            self.broken(PROMPT, "reset returned an empty observation", seed)
        if info.get("seed") != seed:
            self.broken(FLAGS, f'reset must tell the seed it used as info["seed"], got {info.get("seed")!r}', seed)
        return prompt if isinstance(prompt, str) else repr(prompt)

    def step(self, env: Env, action: str, seed: int, actions: Sequence[str]) -> Step:
        """One step, with everything law 3 says of a single step checked. `actions` includes `action`."""
        self.doing = (seed, tuple(actions))
        self.busy_since = monotonic()
        try:
            step = env.step(action)
        except InfrastructureError:
            raise
        except Exception as err:  # noqa: BLE001
            self.broken(TOTAL, f"step raised {type(err).__name__}: {err}", seed, actions)
        finally:
            self.busy_since = 0.0
        if not isinstance(step, Step):
            self.broken(
                FLAGS,
                f"step must return a palestra.Step or a five-tuple, got {type(step).__name__}",
                seed,
                actions,
            )
        self._check_step(env, step, seed, actions)
        return step

    def _check_step(self, env: Env, step: Step, seed: int, actions: Sequence[str]) -> None:
        observation, reward, terminated, truncated, info = step
        if not (isinstance(terminated, bool) and isinstance(truncated, bool) and isinstance(info, dict)):
            self.broken(FLAGS, "terminated and truncated are bools, info is a dict", seed, actions)
        if terminated and truncated:
            self.broken(FLAGS, "a step is terminated or truncated, never both", seed, actions)
        if not observation:
            self.broken(TOTAL, "the observation is empty: tell the agent what happened", seed, actions)
        if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not isfinite(reward):
            self.broken(FLAGS, f"the reward must be a finite number, got {reward!r}", seed, actions)
        low, high = env.reward_range
        if not low - 1e-9 <= reward <= high + 1e-9:
            self.broken(FLAGS, f"the reward {reward} lies outside the stated range {low} to {high}", seed, actions)
        if (terminated or truncated) and not isinstance(info.get("success"), bool):
            self.broken(FLAGS, 'the last step must carry info["success"], True or False', seed, actions)
        if env.max_turns is not None and len(actions) >= env.max_turns and not (terminated or truncated):
            self.broken(FLAGS, f"the episode goes on after its budget of {env.max_turns} turns", seed, actions)

    def record(self, env: Env, seed: int, player: Player) -> Tape:
        """Let `player` play, and tape it."""
        return self._tape(env, seed, self._chosen(env, seed, player))

    def replay(self, env: Env, tape: Tape) -> Tape:
        """The same seed and actions again."""
        return self._tape(
            env, tape.seed, lambda taken: tape.actions[len(taken)] if len(taken) < len(tape.actions) else None
        )

    def _chosen(self, env: Env, seed: int, player: Player) -> Callable[[Sequence[str]], str | None]:
        def choose(taken: Sequence[str]) -> str | None:
            if len(taken) >= ENDLESS and env.max_turns is None:
                return None
            self.doing = (seed, tuple(taken))
            self.busy_since = monotonic()
            try:
                return next_action(env, player)
            except Exception as err:  # noqa: BLE001
                self.broken(VALIDITY, f"the {player} player raised {type(err).__name__}: {err}", seed, taken)
            finally:
                self.busy_since = 0.0

        return choose

    def _tape(self, env: Env, seed: int, choose: Callable[[Sequence[str]], str | None]) -> Tape:
        prompt = self.reset(env, seed)
        actions: list[str] = []
        shown: list[str] = []
        rewards: list[float] = []
        success: bool | None = None
        while success is None:
            action = choose(actions)
            if action is None:
                break
            actions.append(action)
            step = self.step(env, action, seed, actions)
            shown.append(shown_by(step))
            rewards.append(step.reward)
            if step.done:
                success = step.info["success"]
        return Tape(seed, prompt, tuple(actions), tuple(shown), tuple(rewards), success)

    def must_refuse(self, env: Env, seed: int, actions: Sequence[str]) -> None:
        """After the end, a step has to raise EpisodeOver."""
        try:
            env.step(actions[-1])
        except EpisodeOver:
            return
        except Exception as err:  # noqa: BLE001
            self.broken(
                FLAGS, f"step after the end must raise EpisodeOver, not {type(err).__name__}: {err}", seed, actions
            )
        self.broken(FLAGS, "step after the end must raise EpisodeOver; it went on", seed, [*actions, actions[-1]])


def retrace(env: Env, actions: Iterable[str]) -> list[str]:
    """What `actions` show from here on, as far as the episode goes."""
    shown = []
    for action in actions:
        step = env.step(action)
        shown.append(shown_by(step))
        if step.done:
            break
    return shown


def shown_by(step: Step) -> str:
    return repr((step.observation, step.reward, step.terminated, step.truncated))


def first_difference(one: Iterable[str], other: Iterable[str]) -> tuple[int, str, str] | None:
    """Index and both sides of the first place where two records part, or None."""
    left, right = list(one), list(other)
    for i in range(max(len(left), len(right))):
        a = left[i] if i < len(left) else "(nothing)"
        b = right[i] if i < len(right) else "(nothing)"
        if a != b:
            return i, a, b
    return None


def _code(action: str) -> str:
    from palestra.conformance.strings import STRANGE

    if len(action) <= 200:
        return ascii(action)
    for code, value in STRANGE:
        if value == action:
            return code
    return f"{action[:80]!a} + ...  # {len(action)} characters"
