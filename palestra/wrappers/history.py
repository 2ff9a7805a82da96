"""Include the conversation so far in each observation, for agents that store no history."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue
from palestra.types import Message, Observation, Step, text_of

Mode = Literal["observations", "actions", "messages", "template"]


class ChatTokenizer(Protocol):
    """A tokenizer with an `apply_chat_template` method, as in Hugging Face Transformers."""

    def apply_chat_template(
        self, conversation: Any, /, *, tokenize: bool = ..., add_generation_prompt: bool = ...
    ) -> Any: ...


class History(Wrapper):
    """Replace each observation with the conversation so far, in one of four modes:

    - `observations`: all observations in order;
    - `actions`: alternating observations and actions;
    - `messages`: a list of chat messages (actions have role `assistant`, and tool results have role `tool`);
    - `template`: the same messages rendered by `tokenizer`, with the generation prompt.

    `keep` is the number of most recent turns to include after the first observation, which contains the task; None
    includes all turns. With `latest_state`, the part of an observation that describes the current state
    (`info["suffix"]`, such as a board) is included only for the latest observation, as in GEM: this saves tokens, but a
    prompt is then no longer an extension of the previous prompt. With a `tokenizer`, the `actions` mode applies the
    chat template only to the task (GEM's `concat_chat_on_reset`).
    """

    def __init__(
        self,
        env: Env,
        mode: Mode = "observations",
        *,
        keep: int | None = None,
        latest_state: bool = False,
        tokenizer: ChatTokenizer | None = None,
    ) -> None:
        super().__init__(env)
        if mode not in get_args(Mode):
            raise BadValue(f"`mode` must be one of {', '.join(get_args(Mode))}; got {mode!r}")
        if mode == "template" and tokenizer is None:
            raise BadValue("mode 'template' needs a tokenizer: History(env, 'template', tokenizer=...)")
        if keep is not None and keep < 1:
            raise BadValue(f"`keep` must be an integer of at least 1, or None; got {keep!r}")
        self.mode = mode
        self.keep = keep
        self.latest_state = latest_state
        self.tokenizer = tokenizer
        self._task: Message | None = None
        self._turns: list[tuple[str, Message]] = []
        self._state = ""

    def _copy(self, memo: dict[int, Any]) -> Any:
        memo[id(self.tokenizer)] = self.tokenizer  # forks share the tokenizer, because it is constant and may be large
        return super()._copy(memo)

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        self._turns.clear()
        self._task = self._message(observation, info)
        return self._render(), info

    def after_step(self, action: str, step: Step) -> Step:
        # `parsed_action` is set if the env used only a part of the action.
        text = step.info.get("parsed_action", action)
        self._turns.append((text, self._message(step.observation, step.info)))
        return step._replace(observation=self._render())

    def _message(self, observation: Observation, info: dict[str, Any]) -> Message:
        self._state = str(info.get("suffix", ""))
        if self.latest_state and self._state and isinstance(observation, str) and observation.endswith(self._state):
            observation = observation[: -len(self._state)].rstrip("\n")
        else:
            self._state = ""
        return {"role": "tool" if info.get("use_tool") else "user", "content": observation}

    def _render(self) -> Any:
        task = self._task
        if task is None:
            raise BadValue("call reset() before the first step()")
        turns = self._turns if self.keep is None else self._turns[-self.keep :]
        if self.mode in ("messages", "template"):
            messages: list[Message] = [dict(task)]  # type: ignore[list-item]  # a copy, since the last message may be changed below
            for action, message in turns:
                messages += [{"role": "assistant", "content": action}, dict(message)]  # type: ignore[list-item]
            if self._state:
                messages[-1]["content"] = _lines([text_of(messages[-1]["content"]), self._state])
            return messages if self.mode == "messages" else self._render_template(messages)
        texts = [text_of(task["content"])]
        if self.mode == "actions" and self.tokenizer is not None:
            texts = [self._render_template([task])]
        for action, message in turns:
            if self.mode == "actions":
                texts.append(action)
            texts.append(text_of(message["content"]))
        return _lines([*texts, self._state])

    def _render_template(self, messages: list[Message]) -> str:
        if self.tokenizer is None:
            raise BadValue("a chat template needs a tokenizer")
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _lines(texts: list[str]) -> str:
    return "\n".join(text.rstrip("\n") for text in texts if text)
