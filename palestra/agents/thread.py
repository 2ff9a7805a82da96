"""One conversation in tokens: each prompt is the one before, what was sampled, and the ids of what is new.

A prompt is rendered anew only where the template itself rewrites what came before (it strips earlier thinking, say),
where the sampled ids are not known, or where the conversation was cut. Then `Prompt.split` says so: "template",
"tokens", "context".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from palestra.agents.render import Renderer, answered, called
from palestra.agents.tokens import Encoded, unguarded
from palestra.engines.base import Completion
from palestra.parsing import tool_calls
from palestra.types import Message, Observation, text_of

_STAND_IN = "Zreply7q"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What to send next, and what the conversation is then."""

    ids: list[int]  # empty for engines that take messages
    split: str | None
    messages: list[Message]  # all, for a conversation begun anew; otherwise those that are added
    text: str | None = None  # as rendered, where it was
    plain: bool = True  # nothing in it that the template looks for
    anew: bool = False


class Thread:
    """The tokens of one conversation. `open` or `next` propose a prompt, `send` takes it, `record` adds the reply."""

    def __init__(self, renderer: Renderer) -> None:
        self.takes_system = renderer.takes_system
        self.takes_tools = bool(renderer.tools)
        self.codec = renderer.codec
        self._renderer = renderer
        self._messages: list[Message] = []
        self._text: str | None = None
        self._encoded: Encoded | None = None  # the last prompt that was rendered as a whole
        self._plain = True
        self._system = False
        self._last: tuple[list[int], list[int]] = ([], [])  # the prompt before this one, and its reply
        self.prompt_ids: list[int] = []
        self._split: str | None = None
        self._ids: list[int] = []
        self._reply = ""
        self._calls: Sequence[dict[str, Any]] = ()

    @property
    def tokens(self) -> int:
        """Of the last prompt."""
        return len(self.prompt_ids)

    def message(self, role: str, content: Observation) -> Message:
        """A message for this conversation; it cannot smuggle in special tokens."""
        return {"role": role, "content": self._renderer.codec.guard(text_of(content))}  # type: ignore[typeddict-item]

    def answer(self, content: Observation) -> Message:
        """A tool's answer to the last reply, or a user's message where the template knows no such thing."""
        way = self._renderer.tool_turns
        if way == "structured" and self._calls:
            return answered(self._renderer.codec.guard(text_of(content)), _call_id(0))
        return self.message("tool" if way == "written" else "user", content)

    def open(self, messages: Sequence[Message], *, split: str | None = None) -> Prompt:
        """Begin, or begin anew, with these messages; `split` says why."""
        if self.prompt_ids:
            text, ids = self._whole(self._renderer.render(messages))
            split = None if self._extends(ids) else split
        else:
            text, ids = self._renderer.prompt(messages)
            split = None
        plain = all(isinstance(m["content"], str) and len(m) == 2 and self._is_plain(m["content"]) for m in messages)
        return Prompt(ids=list(ids), split=split, messages=list(messages), text=text, plain=plain, anew=True)

    def next(self, message: Message) -> Prompt:
        """The last reply stands; `message` follows."""
        reply = self._said()
        added = [reply, message]
        content = message["content"]
        if self._ids and self._plain and len(reply) == len(message) == 2 and isinstance(content, str):
            glue = self._renderer.glue(system=self._system, role=message["role"])
            if glue is not None and self._is_plain(self._reply) and self._is_plain(content):
                if glue.edges == "strip":
                    content = content.strip()
                if glue.edges != "ask" or content == content.strip():
                    return Prompt(
                        ids=self._extended(glue.left + content + glue.right), split=None, messages=added, text=None
                    )
        return self._rendered(added)

    def send(self, prompt: Prompt) -> None:
        """`prompt` goes to the engine."""
        if prompt.anew:
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
        """Add the reply. Returns why its prompt does not extend the last one, or None."""
        self._reply = completion.text
        self._ids = completion.ids
        self._calls = calls
        read = completion.prompt_ids
        if not read or read == self.prompt_ids:
            return self._split
        self.prompt_ids = read  # not what was sent, but it is what the reply was sampled from
        prompt, ids = self._last
        return self._split or "tokens" if prompt and not _extends(read, prompt, ids) else None

    def _is_plain(self, text: Any) -> bool:
        return self._renderer.plain(text)

    def _said(self) -> Message:
        """The last reply as a message of the conversation."""
        if self._calls and self._renderer.tool_turns == "structured":
            return called("", self._calls, [_call_id(i) for i in range(len(self._calls))])
        renderer = self._renderer
        text = renderer.codec.guard(self._reply)
        if text != self._reply:
            ids = self._ids[:-1] if self._ids and self._ids[-1] in renderer.stops else self._ids
            text = renderer.codec.guard_sampled(self._reply, ids)
        return {"role": "assistant", "content": text}

    def _rendered(self, added: list[Message]) -> Prompt:
        """The whole conversation as the template renders it; extended all the same where that says the same."""
        renderer = self._renderer
        text = renderer.render([*self._messages, *added])
        if self._ids:
            before = self._text if self._text is not None else renderer.render(self._messages)
            tail = self._tail(before, text, added)
            if tail is not None:
                return Prompt(ids=self._extended(tail), split=None, messages=added, text=text, plain=False)
        _, ids = self._whole(text)
        split = None if self._ids and self._extends(ids) else "template" if self._ids else "tokens"
        return Prompt(ids=ids, split=split, messages=added, text=text, plain=False)

    def _whole(self, text: str) -> tuple[str, list[int]]:
        self._encoded = self._renderer.codec.encoded(text, self._encoded)
        return text, list(self._encoded.ids)

    def _tail(self, before: str, after: str, added: list[Message]) -> str | None:
        """What `after` adds behind the reply; None where it changes what came `before`, or what the reply says."""
        if not after.startswith(before):
            return None
        reply, message = added
        if len(reply) > 2:  # a structured call: the template writes it in its own way, and ends it as any reply
            end = self._renderer.end
            shown, found, rest = after[len(before) :].partition(end) if end else ("", "", "")
            same = found and tool_calls(unguarded(shown)) == [_bare(call) for call in self._calls]
            return end + rest if same else None
        stand_in: Message = {"role": "assistant", "content": _STAND_IN}
        gap, found, tail = self._renderer.render([*self._messages, stand_in, message])[len(before) :].partition(
            _STAND_IN
        )
        if gap.strip() or not found or not after.endswith(tail) or len(after) < len(before) + len(tail):
            return None
        shown = after[len(before) : len(after) - len(tail)]
        if "".join(shown.split()) != "".join(str(reply["content"]).split()):
            return None
        return self._renderer.trim(tail)

    def _extended(self, tail: str) -> list[int]:
        """The last prompt, the sampled ids, and `tail`, whose first tokens may have been sampled already."""
        codec = self._renderer.codec
        new = codec.encode(tail, inside=True)
        sampled = self._ids
        same = 0
        for count in range(min(codec.leading(new), len(sampled)), 0, -1):
            if sampled[-count:] == new[:count]:
                same = count
                break
        return [*self.prompt_ids, *sampled, *(new[same:] if same else new)]

    def _extends(self, ids: list[int]) -> bool:
        return _extends(ids, self.prompt_ids, self._ids)


class Transcript:
    """The same for engines that take messages: nothing is known of their tokens."""

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

    def answer(self, content: Observation) -> Message:
        """Servers take a tool's answer only to a call that was made."""
        return answered(content, self._calls[0]) if self._calls else self.message("user", content)

    def open(self, messages: Sequence[Message], *, split: str | None = None) -> Prompt:
        return Prompt(ids=[], split=split if self.messages else None, messages=list(messages), anew=True)

    def next(self, message: Message) -> Prompt:
        added = [self._reply, message]
        if message["role"] == "tool":  # every call wants an answer; the environment gave one for all
            added += [answered("(answered above)", call_id) for call_id in self._calls[1:]]
        return Prompt(ids=[], split=None, messages=added)

    def send(self, prompt: Prompt) -> None:
        self.messages = list(prompt.messages) if prompt.anew else [*self.messages, *prompt.messages]
        self._split = prompt.split

    def record(self, completion: Completion, calls: Sequence[dict[str, Any]] = ()) -> str | None:
        text = completion.text
        self._calls = [str(call.get("id") or _call_id(i)) for i, call in enumerate(calls)]
        self._reply = called(text, calls, self._calls) if calls else {"role": "assistant", "content": text}
        return self._split


AnyThread: TypeAlias = Thread | Transcript


def _extends(ids: list[int], prompt: list[int], reply: list[int]) -> bool:
    known = len(prompt)
    return ids[:known] == prompt and ids[known : known + len(reply)] == reply


def _call_id(index: int) -> str:
    return f"call{index:05d}"


def _bare(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["name"], "arguments": call["arguments"]}
