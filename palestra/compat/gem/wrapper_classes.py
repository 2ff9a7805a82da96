"""GEM's wrappers: `ObservationWrapper`, `EpisodeTrackingWrapper`, and the ten names in `WRAPPER_FACTORY`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from palestra.compat.gem.base import EnvWrapper
from palestra.compat.gem.tool_classes import PythonCodeTool, SearchTool, ToolEnvWrapper
from palestra.core import Env, Reset
from palestra.errors import BadValue
from palestra.types import Step, text_of


class ObservationWrapper(EnvWrapper):
    """Return the conversation so far as one string, as plain text or in the tokenizer's chat template."""

    def __init__(
        self,
        env: Env,
        include_action: bool = True,
        include_chat_template: bool = True,
        apply_chat_template_on_reset: bool = False,
        max_history_length: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(env)
        if include_chat_template and apply_chat_template_on_reset:
            raise ValueError("include_chat_template and apply_chat_template_on_reset cannot both be True")
        if (include_chat_template or apply_chat_template_on_reset) and tokenizer is None:
            raise ValueError("a chat template needs a tokenizer; pass tokenizer=...")
        if include_chat_template and not include_action:
            raise ValueError("include_chat_template needs include_action=True")
        self.include_action = include_action
        self.include_chat_template = include_chat_template
        self.apply_chat_template_on_reset = apply_chat_template_on_reset
        self.tokenizer = tokenizer
        longest = None if not max_history_length else max_history_length + 1
        # Observations, and whether a tool returned them.
        self.obs_queue: deque[tuple[str, bool]] = deque(maxlen=longest)
        self.act_queue: deque[str] = deque(maxlen=max_history_length)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        observation, info = self.env.reset(seed=seed, options=options)
        text = _without_state(text_of(observation), info)
        if self.apply_chat_template_on_reset:
            text = self._render([{"role": "user", "content": text}])
        self.act_queue.clear()
        self.obs_queue.clear()
        self.obs_queue.append((text, bool(info.get("use_tool"))))
        return self.observation(info), info

    def step(self, action: str) -> Step:
        step = Step(*self.env.step(action))
        self.act_queue.append(step.info.get("parsed_action", action))
        text = _without_state(text_of(step.observation), step.info)
        self.obs_queue.append((text, bool(step.info.get("use_tool"))))
        return Step(self.observation(step.info), step.reward, step.terminated, step.truncated, step.info)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the episode and its history, for `set_state`."""
        return {**self._inner_state(), "obs_queue": list(self.obs_queue), "act_queue": list(self.act_queue)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that `get_state` returned."""
        self._set_inner_state(state)
        for queue, items in ((self.obs_queue, state["obs_queue"]), (self.act_queue, state["act_queue"])):
            queue.clear()
            queue.extend(items)

    def observation(self, info: dict[str, Any]) -> str:
        """Return the history as one string."""
        return f"{info.get('prefix', '')}{self._history()}{info.get('suffix', '')}"

    def _history(self) -> str:
        observations, actions = list(self.obs_queue), list(self.act_queue)
        if not self.include_action:
            return "".join(_line(text) for text, _ in observations)
        turns = zip(observations, [*actions, None], strict=True)
        if not self.include_chat_template:
            return "".join(_line(text) + _line(action or "") for (text, _), action in turns)
        messages = []
        for (text, from_tool), action in turns:
            messages.append({"role": "tool" if from_tool else "user", "content": text})
            if action is not None:
                messages.append({"role": "assistant", "content": action})
        return self._render(messages)

    def _render(self, messages: list[dict[str, str]]) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text


class EpisodeTrackingWrapper(EnvWrapper):
    """Add the number of steps and the sum of rewards to `info`; must be the outermost wrapper."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.step_counter = 0
        self.cumulative_rewards = 0.0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        observation, info = self.env.reset(seed=seed, options=options)
        info |= {
            "step_counter": 0,
            "cumulative_rewards": 0.0,
            "prev_ep_step_counter": self.step_counter,
            "prev_ep_cumulative_rewards": self.cumulative_rewards,
        }
        self.step_counter, self.cumulative_rewards = 0, 0.0
        return observation, info

    def step(self, action: str) -> Step:
        step = Step(*self.env.step(action))
        self.step_counter += 1
        self.cumulative_rewards += step.reward
        info = {**step.info, "step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}
        return step._replace(info=info)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the episode and its counters, for `set_state`."""
        counters = {"step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}
        return {**self._inner_state(), **counters}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that `get_state` returned."""
        self._set_inner_state(state)
        self.step_counter, self.cumulative_rewards = state["step_counter"], state["cumulative_rewards"]


def _python(**options: Any) -> Callable[..., Env]:
    def wrap(env: Env, **more: Any) -> Env:
        tool = PythonCodeTool(timeout=5, keep_error_last_line=options.get("last_line", False))
        rewards = {"tool_reward": 0.05, "tool_success_reward": 0.25} if options.get("rewards") else {}
        return ToolEnvWrapper(env, tools=[tool], **{"max_tool_uses": 5, **rewards, **more})

    return wrap


def _search(tool_reward: float) -> Callable[..., Env]:
    def wrap(env: Env, **more: Any) -> Env:
        tool = SearchTool(topk=3, timeout=5)
        return ToolEnvWrapper(env, tools=[tool], **{"max_tool_uses": 5, "tool_reward": tool_reward, **more})

    return wrap


_plain = partial(ObservationWrapper, include_chat_template=False)
WRAPPER_FACTORY: dict[str, Callable[..., Env]] = {
    "python_tool": _python(rewards=True),
    "python_tool_no_int_reward": _python(),
    "python_tool_no_int_reward_last_line_error": _python(last_line=True),
    "search_tool": _search(0.3),
    "search_tool_no_int_reward": _search(0.0),
    "concat": partial(_plain, include_action=False),
    "concat_chat": partial(ObservationWrapper, include_action=True, include_chat_template=True),
    "concat_with_action": partial(_plain, include_action=True),
    "concat_chat_on_reset": partial(_plain, include_action=True, apply_chat_template_on_reset=True),
    "episode_tracking": EpisodeTrackingWrapper,
}
TOKENIZER_REQUIRED = ["concat_chat", "concat_chat_on_reset"]


def get_wrapper_fns(wrappers: str, tokenizer: Any = None) -> list[Callable[..., Env]]:
    """Return the wrappers in a comma-separated list of names, in order."""
    functions = []
    for name in filter(None, (part.strip() for part in wrappers.split(","))):
        if name not in WRAPPER_FACTORY:
            raise BadValue(f"no wrapper {name!r}; the wrappers are {', '.join(WRAPPER_FACTORY)}")
        function = WRAPPER_FACTORY[name]
        needs_tokenizer = name in TOKENIZER_REQUIRED and tokenizer is not None
        functions.append(partial(function, tokenizer=tokenizer) if needs_tokenizer else function)
    return functions


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _without_state(text: str, info: dict[str, Any]) -> str:
    """Remove the part that describes the current state, which `observation` adds once, at the end."""
    state = info.get("suffix")
    if not state or state not in text:
        return text
    before, _, after = text.rpartition(state)
    return "\n".join(part.strip("\n") for part in (before, after) if part.strip("\n"))
