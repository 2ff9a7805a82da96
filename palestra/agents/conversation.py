"""Build a conversation's prompts: each consists of the previous prompt, the sampled ids and the new message's ids.

A prompt is rendered from scratch only if the template rewrites earlier messages (for example, strips thinking), if the
sampled ids are unknown, or if the context policy dropped messages. `Prompt.split` is then the reason: "template",
"tokens" or "context".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from palestra.agents.render import Renderer, Tail, call_message, tool_message
from palestra.agents.tokens import Encoded, unguarded
from palestra.engines.base import Completion
from palestra.parsing import tool_calls
from palestra.types import Message, Observation, text_of

_PLACEHOLDER = "Zreply7q"


@dataclass(slots=True, kw_only=True)  # not frozen, because frozen dataclasses are slow to create
class Prompt:
    """The next prompt, and the messages it adds to the conversation."""

    ids: list[int]  # empty if the engine takes chat messages
    split: str | None
    messages: list[Message]  # the added messages; after a restart, all messages
    text: str | None = None  # the rendered text, if the prompt was rendered
    plain: bool = True  # whether the messages contain none of the strings that the template tests for
    restart: bool = False  # whether this prompt replaces the conversation so far


class TokenConversation:
    """A conversation in tokens: `open` and `next` build a prompt, `send` makes it current, `record` adds the reply.

    With `keep_thinking`, prompts extend the previous prompt even if the template would remove earlier thoughts.
    """

    def __init__(self, renderer: Renderer, *, keep_thinking: bool = False) -> None:
        self._keep_thinking = keep_thinking
        self.takes_system = renderer.takes_system
        self.takes_tools = bool(renderer.tools)
        self.codec = renderer.codec
        self._renderer = renderer
        self._messages: list[Message] = []
        self._text: str | None = None
        self._encoded: Encoded | None = None  # the last prompt that was rendered from scratch
        self._plain = True
        self._system = False
        self._last: tuple[list[int], list[int]] = ([], [])  # the previous prompt and its reply
        self.prompt_ids: list[int] = []
        self._split: str | None = None
        self._ids: list[int] = []
        self._reply = ""
        self._calls: Sequence[dict[str, Any]] = ()

    @property
    def tokens(self) -> int:
        """Length of the last prompt."""
        return len(self.prompt_ids)

    def message(self, role: str, content: Observation) -> Message:
        """Return a message whose content cannot introduce special tokens."""
        return {"role": role, "content": self._renderer.codec.guard(text_of(content))}  # type: ignore[typeddict-item]

    def tool_result(self, content: Observation) -> Message:
        """Return a tool result for the last reply, or a user message if the template has no tool messages."""
        form = self._renderer.tool_turns
        if form == "structured" and self._calls:
            return tool_message(self._renderer.codec.guard(text_of(content)), _call_id(0))
        return self.message("tool" if form == "written" else "user", content)

    def open(self, messages: Sequence[Message], *, split: str | None = None) -> Prompt:
        """Start or restart the conversation with these messages; `split` is the reason for a restart."""
        if self.prompt_ids:
            text, ids = self._whole(self._renderer.render(messages))
            split = None if self._extends(ids) else split
        else:
            text, ids = self._renderer.prompt(messages)
            split = None
        plain = all(isinstance(m["content"], str) and len(m) == 2 and self._is_plain(m["content"]) for m in messages)
        return Prompt(ids=list(ids), split=split, messages=list(messages), text=text, plain=plain, restart=True)

    def next(self, message: Message) -> Prompt:
        """Return the prompt that continues after the last reply with `message`."""
        reply = self._reply_message()
        added = [reply, message]
        content = message["content"]
        if self._ids and self._plain and len(reply) == len(message) == 2 and isinstance(content, str):
            tail = self._renderer.tail(system=self._system, role=message["role"], content=content)
            if tail is not None and self._is_plain(self._reply):
                return Prompt(ids=self._extended(tail), split=None, messages=added)
        return self._rendered(added)

    def send(self, prompt: Prompt) -> None:
        """Make `prompt` the current prompt."""
        if prompt.restart:
            self._messages = list(prompt.messages)
            self._system = self._messages[0]["role"] == "system"
            self._plain = prompt.plain
        else:
            self._messages += prompt.messages
            self._plain = self._plain and prompt.plain
        self._text = prompt.text
        self._last = self.prompt_ids, self._ids
        self._split = prompt.split
        self.prompt_ids = prompt.ids

    def record(self, completion: Completion, calls: Sequence[dict[str, Any]] = ()) -> str | None:
        """Add the reply. Return None if its prompt extends the previous one, otherwise the reason why it does not."""
        self._reply = completion.text
        self._ids = completion.ids
        self._calls = calls
        read = completion.prompt_ids
        if not read or read == self.prompt_ids:
            return self._split
        self.prompt_ids = read  # the reply was sampled from this prompt, not from the one that was sent
        prompt, ids = self._last
        return self._split or "tokens" if prompt and not _extends(read, prompt, ids) else None

    def _is_plain(self, text: Any) -> bool:
        return self._renderer.plain(text)

    def _reply_message(self) -> Message:
        """Return the last reply as a message."""
        if self._calls and self._renderer.tool_turns == "structured":
            return call_message("", self._calls, [_call_id(i) for i in range(len(self._calls))])
        renderer = self._renderer
        text = renderer.codec.guard(self._reply)
        if text != self._reply:
            ids = self._ids[:-1] if self._ids and self._ids[-1] in renderer.stops else self._ids
            text = renderer.codec.guard_sampled(self._reply, ids)
        return {"role": "assistant", "content": text}

    def _rendered(self, added: list[Message]) -> Prompt:
        """Render the whole conversation; extend the previous prompt if the rendered text allows it."""
        renderer = self._renderer
        text = renderer.render([*self._messages, *added])
        if self._ids:
            before = self._text if self._text is not None else renderer.render(self._messages)
            tail = self._tail(before, text, added)
            if tail is None and self._keep_thinking:
                tail = self._tail_after_placeholder(added)
            if tail is not None:
                ids = renderer.codec.encode(tail, inside=True)
                extended = self._extended(Tail(ids, renderer.codec.leading(ids)))
                return Prompt(ids=extended, split=None, messages=added, text=text, plain=False)
        _, ids = self._whole(text)
        split = None if self._ids and self._extends(ids) else "template" if self._ids else "tokens"
        return Prompt(ids=ids, split=split, messages=added, text=text, plain=False)

    def _whole(self, text: str) -> tuple[str, list[int]]:
        self._encoded = self._renderer.codec.encoded(text, self._encoded)
        return text, list(self._encoded.ids)

    def _tail(self, before: str, after: str, added: list[Message]) -> str | None:
        """Return the part of `after` that follows the reply; None if `after` changes the reply or earlier text."""
        if not after.startswith(before):
            return None
        reply, message = added
        if len(reply) > 2:  # a structured tool call, formatted by the template
            end = self._renderer.end
            shown, end_token, rest = after[len(before) :].partition(end) if end else ("", "", "")
            same = end_token and tool_calls(unguarded(shown)) == [_name_and_arguments(call) for call in self._calls]
            return end + rest if same else None
        placeholder: Message = {"role": "assistant", "content": _PLACEHOLDER}
        gap, marker, tail = self._renderer.render([*self._messages, placeholder, message])[len(before) :].partition(
            _PLACEHOLDER
        )
        if gap.strip() or not marker or not after.endswith(tail) or len(after) < len(before) + len(tail):
            return None
        shown = after[len(before) : len(after) - len(tail)]
        if "".join(shown.split()) != "".join(str(reply["content"]).split()):
            return None
        return self._renderer.trim(tail)

    def _tail_after_placeholder(self, added: list[Message]) -> str | None:
        """Return the text that would follow a short reply instead of the last one; None if the template changes it."""
        reply, message = added
        if len(reply) > 2 or _PLACEHOLDER in str(message["content"]):
            return None
        placeholder: Message = {"role": "assistant", "content": _PLACEHOLDER}
        _, marker, tail = self._renderer.render([*self._messages, placeholder, message]).rpartition(_PLACEHOLDER)
        return self._renderer.trim(tail) if marker else None

    def _extended(self, tail: Tail) -> list[int]:
        """Return the ids of the last prompt, its reply and `tail`, without the tokens in `tail` that end the reply."""
        new, sampled = tail.ids, self._ids
        for count in range(min(tail.leading, len(sampled)), 0, -1):
            if sampled[-count:] == new[:count]:
                return [*self.prompt_ids, *sampled, *new[count:]]
        return [*self.prompt_ids, *sampled, *new]

    def _extends(self, ids: list[int]) -> bool:
        return _extends(ids, self.prompt_ids, self._ids)


class MessageConversation:
    """A conversation for engines that take chat messages and do not report token ids."""

    tokens = 0
    takes_system = True
    takes_tools = True

    def __init__(self) -> None:
        self.prompt_ids: list[int] = []
        self._split: str | None = None
        self.messages: list[Message] = []
        self._reply: Message = {"role": "assistant", "content": ""}
        self._calls: list[str] = []

    def message(self, role: str, content: Observation) -> Message:
        return {"role": role, "content": content}  # type: ignore[typeddict-item]

    def tool_result(self, content: Observation) -> Message:
        """Return a tool message if the last reply was a tool call, as servers require; otherwise a user message."""
        return tool_message(content, self._calls[0]) if self._calls else self.message("user", content)

    def open(self, messages: Sequence[Message], *, split: str | None = None) -> Prompt:
        return Prompt(ids=[], split=split if self.messages else None, messages=list(messages), restart=True)

    def next(self, message: Message) -> Prompt:
        added = [self._reply, message]
        if message["role"] == "tool":
            # Servers require a result for every call, but the environment returned a single one.
            added += [tool_message("(answered above)", call_id) for call_id in self._calls[1:]]
        return Prompt(ids=[], split=None, messages=added)

    def send(self, prompt: Prompt) -> None:
        self.messages = list(prompt.messages) if prompt.restart else [*self.messages, *prompt.messages]
        self._split = prompt.split

    def record(self, completion: Completion, calls: Sequence[dict[str, Any]] = ()) -> str | None:
        text = completion.text
        self._calls = [str(call.get("id") or _call_id(i)) for i, call in enumerate(calls)]
        self._reply = call_message(text, calls, self._calls) if calls else {"role": "assistant", "content": text}
        return self._split


Conversation: TypeAlias = TokenConversation | MessageConversation


def _extends(ids: list[int], prompt: list[int], reply: list[int]) -> bool:
    length = len(prompt)
    return ids[:length] == prompt and ids[length : length + len(reply)] == reply


def _call_id(index: int) -> str:
    return f"call{index:05d}"


def _name_and_arguments(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["name"], "arguments": call["arguments"]}
