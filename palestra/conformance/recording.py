"""Record episodes action by action, so that they can be replayed and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, NoReturn

from palestra.conformance.rates import MAX_TURNS_WITHOUT_BUDGET, Player, next_action
from palestra.core import Env
from palestra.errors import ConformanceError, EpisodeOver, InfrastructureError
from palestra.spec import EnvSpec
from palestra.types import Step

DETERMINISM = "determinism"
ANY_ACTION = "any action"
FLAGS = "flags and rewards"
VALIDITY = "validity"
FORK = "fork"
PROMPT = "prompt"
CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Recording:
    seed: int
    prompt: str
    actions: tuple[str, ...]
    shown: tuple[str, ...]  # repr of the observation, reward and flags after each action
    rewards: tuple[float, ...]
    success: bool | None  # None if the episode did not end

    @property
    def record(self) -> list[str]:
        """The prompt and all steps that the agent observed, in order."""
        return [self.prompt, *self.shown]


@dataclass(slots=True)
class Subject:
    """Environment under test. Keeps track of the calls, so that a failure can be reproduced."""

    make: Callable[[], Env]
    code: str  # Python expression that builds the environment
    spec: EnvSpec | None
    factory: Callable[[], Env] | None  # builds the environment in a fresh process; None if that is impossible
    make_split: Callable[[str | None], Env] | None = (
        None  # builds the environment with `split=`; None if it has no splits
    )
    busy_since: float = 0.0  # start time of the current call, for the watchdog; 0 if no call is running
    current_call: tuple[int, tuple[str, ...]] = (0, ())  # seed and actions of the current call
    resetting: bool = False  # whether the current call is a reset

    def fail(
        self,
        invariant: str,
        defect: str,
        seed: int | None = None,
        actions: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> NoReturn:
        raise ConformanceError(invariant, defect, self.reproduce(seed, actions, more))

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
        self.current_call, self.resetting = (seed, ()), True
        self.busy_since = monotonic()
        try:
            result = env.reset(seed=seed)
        except InfrastructureError:
            raise
        except (Exception, SystemExit) as err:  # noqa: BLE001  # any exception raised by the environment under test is a defect
            self.fail(ANY_ACTION, f"reset raised {type(err).__name__}: {err}", seed)
        finally:
            self.busy_since, self.resetting = 0.0, False
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            self.fail(FLAGS, f"reset must return (observation, info), got {type(result).__name__}", seed)
        prompt, info = result
        if not prompt:
            self.fail(PROMPT, "reset returned an empty observation", seed)
        if info.get("seed") != seed:
            self.fail(FLAGS, f'reset must return the seed it used as info["seed"], got {info.get("seed")!r}', seed)
        return prompt if isinstance(prompt, str) else repr(prompt)

    def step(self, env: Env, action: str, seed: int, actions: Sequence[str]) -> Step:
        """Take one step and check its flags, reward and info. `actions` includes `action`."""
        self.current_call = (seed, tuple(actions))
        self.busy_since = monotonic()
        try:
            result: Any = env.step(action)
        except InfrastructureError:
            raise
        except (Exception, SystemExit) as err:  # noqa: BLE001
            self.fail(ANY_ACTION, f"step raised {type(err).__name__}: {err}", seed, actions)
        finally:
            self.busy_since = 0.0
        if not (isinstance(result, tuple) and len(result) == 5):
            shown = f"{result!r:.200}"
            self.fail(FLAGS, f"step must return a palestra.Step or a plain five-tuple, got {shown}", seed, actions)
        step = Step(*result)
        self._check_step(env, step, seed, actions)
        return step

    def _check_step(self, env: Env, step: Step, seed: int, actions: Sequence[str]) -> None:
        observation, reward, terminated, truncated, info = step
        if not (isinstance(terminated, bool) and isinstance(truncated, bool) and isinstance(info, dict)):
            self.fail(FLAGS, "terminated and truncated must be bools, info must be a dict", seed, actions)
        if terminated and truncated:
            self.fail(FLAGS, "a step must not be both terminated and truncated", seed, actions)
        if not observation:
            self.fail(ANY_ACTION, "the observation must not be empty", seed, actions)
        if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not isfinite(reward):
            self.fail(FLAGS, f"the reward must be a finite number, got {reward!r}", seed, actions)
        low, high = env.reward_range
        if not low - 1e-9 <= reward <= high + 1e-9:
            self.fail(FLAGS, f"the reward {reward} is outside the stated range {low} to {high}", seed, actions)
        if (terminated or truncated) and not isinstance(info.get("success"), bool):
            self.fail(FLAGS, 'info["success"] must be True or False in the last step', seed, actions)
        if env.max_turns is not None and len(actions) >= env.max_turns and not (terminated or truncated):
            self.fail(FLAGS, f"the episode must end within its budget of {env.max_turns} turns", seed, actions)

    def record(self, env: Env, seed: int, player: Player) -> Recording:
        """Record one episode played by `player`."""
        return self._play(env, seed, self._chosen(env, seed, player))

    def replay(self, env: Env, recording: Recording) -> Recording:
        """Replay the actions of `recording` with its seed, and return the new recording."""
        return self._play(
            env,
            recording.seed,
            lambda taken: recording.actions[len(taken)] if len(taken) < len(recording.actions) else None,
        )

    def _chosen(self, env: Env, seed: int, player: Player) -> Callable[[Sequence[str]], str | None]:
        def choose(taken: Sequence[str]) -> str | None:
            if len(taken) >= MAX_TURNS_WITHOUT_BUDGET and env.max_turns is None:
                return None
            self.current_call = (seed, tuple(taken))
            self.busy_since = monotonic()
            try:
                return next_action(env, player)
            except (Exception, SystemExit) as err:  # noqa: BLE001
                self.fail(VALIDITY, f"the {player} player raised {type(err).__name__}: {err}", seed, taken)
            finally:
                self.busy_since = 0.0

        return choose

    def _play(self, env: Env, seed: int, choose: Callable[[Sequence[str]], str | None]) -> Recording:
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
            shown.append(summarize_step(step))
            rewards.append(step.reward)
            if step.done:
                success = step.info["success"]
        return Recording(seed, prompt, tuple(actions), tuple(shown), tuple(rewards), success)

    def must_refuse(self, env: Env, seed: int, actions: Sequence[str]) -> None:
        """Check that a step after the last step raises EpisodeOver."""
        try:
            env.step(actions[-1])
        except EpisodeOver:
            return
        except Exception as err:  # noqa: BLE001
            self.fail(
                FLAGS, f"step after the end must raise EpisodeOver, not {type(err).__name__}: {err}", seed, actions
            )
        self.fail(
            FLAGS, "step after the end must raise EpisodeOver; it returned normally", seed, [*actions, actions[-1]]
        )


def replay_actions(env: Env, actions: Iterable[str]) -> list[str]:
    """Take `actions` until the episode ends or none are left, and return a summary of each step."""
    shown = []
    for action in actions:
        step = env.step(action)
        shown.append(summarize_step(step))
        if step.done:
            break
    return shown


def summarize_step(step: Step) -> str:
    return repr((step.observation, step.reward, step.terminated, step.truncated))


def first_difference(one: Iterable[str], other: Iterable[str]) -> tuple[int, str, str] | None:
    """Return the index and both values of the first difference between two records, or None."""
    left, right = list(one), list(other)
    for i in range(max(len(left), len(right))):
        a = left[i] if i < len(left) else "(nothing)"
        b = right[i] if i < len(right) else "(nothing)"
        if a != b:
            return i, a, b
    return None


def _code(action: str) -> str:
    from palestra.conformance.hostile_actions import HOSTILE_ACTIONS

    if len(action) <= 200:
        return ascii(action)
    for code, value in HOSTILE_ACTIONS:
        if value == action:
            return code
    return f"{action[:80]!a} + ...  # {len(action)} characters"
