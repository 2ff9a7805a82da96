"""Render messages with a model's chat template, and determine the text that the template writes between two replies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from palestra.agents.template import TemplateTests, template_tests
from palestra.agents.tokens import Codec
from palestra.engines.base import Tokenizer
from palestra.errors import BadValue
from palestra.types import Message

_REPLY, _OBSERVATION, _TASK, _RULE = (
    "Zreply7q",
    "Zobservation7q",
    "Ztask7q",
    "Zrule7q",
)  # placeholders that no template contains
_UNUSUAL = "Za \"b\" 'c' \\d <e> &f; {{g}} %h \u00e9\u4f60\U0001f600\n\n\tI|j~ #k_*l Zz"
_MAX_PROMPTS = 512  # maximum number of cached first prompts; episodes in a group share the first prompt
_MAX_TAILS = 4096  # maximum number of cached messages between two replies; short observations occur in many episodes
_MAX_TAIL_CHARS = 1000  # longer messages are not cached
_CALL_ID = "Z0000000q"  # tool call id; Mistral's template requires nine letters or digits


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSeparator:
    """The text that a template writes before and after the message between two replies."""

    left: str  # end of the reply, and header of the message
    right: str  # end of the message, and header of the next reply
    edges: str  # whitespace around the message text: "keep", "strip", or "render" (call the template)


class Tail(NamedTuple):
    """The text from the end of a reply to the start of the next one, as ids."""

    ids: list[int]
    leading: int  # number of special tokens at the start, which end the reply


class Renderer:
    """Renders messages with a chat template and a fixed set of tools and options."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
        shortcuts: bool = True,
    ) -> None:
        """Analyze the template with its variables (`options`). `shortcuts=False` always renders whole conversations."""
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        fixed = sorted({"tokenize", "add_generation_prompt", "tools", "return_dict"} & self._options.keys())
        if fixed:
            raise BadValue(f"template_options must not contain {', '.join(fixed)}, which the agent sets")
        if not (self._options.get("chat_template") or tokenizer.chat_template):
            raise BadValue(
                "the engine's tokenizer has no chat template; set tokenizer.chat_template, or pass one with "
                'template_options={"chat_template": ...}'
            )
        self.codec = Codec(tokenizer)
        self.tools: list[dict[str, Any]] = []
        if tools:
            plain = self._rendered([_message("user", _TASK)])
            self.tools = [dict(tool) for tool in tools]
            if self._rendered([_message("user", _TASK)]) == plain:
                self.tools = []  # the template ignores tools; the agent describes them in the prompt
        self.tests: TemplateTests | None = self._read_template() if shortcuts else None
        self._within = re.compile("|".join(map(re.escape, self.tests.within)) or "(?!)") if self.tests else None
        self._prompts: dict[Any, tuple[str, list[int]]] = {}
        self._separators: dict[tuple[bool, str], TurnSeparator | None] = {}
        self._tails: dict[tuple[bool, str, str], Tail | None] = {}
        self._plain: dict[str, bool] = {}  # texts and whether they are plain
        self.takes_system = self._shows([_message("system", _RULE), _message("user", _TASK)], _RULE, _TASK)
        self.tool_turns = self._find_tool_turns()
        self.end = self._find_end_token()
        eos = tokenizer.eos_token_id
        self.stops = {*(eos if isinstance(eos, list | tuple) else [eos]), self.codec.special.get(self.end)} - {None}

    def prompt(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """Return the prompt for the next reply as (text, ids). The ids are shared: do not modify them."""
        key = tuple([(message["role"], message["content"]) for message in messages if len(message) == 2])
        cached = self._prompts.get(key) if len(key) == len(messages) else None
        if cached is None:
            text = self.render(messages)
            cached = text, self.codec.encode(text)
            if len(key) == len(messages):
                if len(self._prompts) >= _MAX_PROMPTS:
                    self._prompts.clear()
                self._prompts[key] = cached
        return cached

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt for the next reply as text. Message contents must be guarded (see `tokens`)."""
        return self._rendered(messages)

    def plain(self, text: str) -> bool:
        """Return whether `text` contains none of the strings that the template tests for."""
        plain = self._plain.get(text)
        if plain is None:
            plain = self._is_plain(text)
            if len(text) <= _MAX_TAIL_CHARS:
                if len(self._plain) >= _MAX_TAILS:
                    self._plain.clear()
                self._plain[text] = plain
        return plain

    def _is_plain(self, text: str) -> bool:
        return (
            self._within is not None
            and self.tests is not None
            and self._within.search(text) is None
            and bool(text.strip())
            and not (self.tests.whole and text.strip() in self.tests.whole)
        )

    def separator(self, *, system: bool, role: str) -> TurnSeparator | None:
        """Return the text around a message with `role` after a reply; None if that text depends on the conversation."""
        key = system, role
        if key not in self._separators:
            self._separators[key] = self._find_separator(system, role)
        return self._separators[key]

    def tail(self, *, system: bool, role: str, content: str) -> Tail | None:
        """Return the ids that follow a reply if the next message has this content (guarded, see `tokens`).

        None if they may depend on the conversation. The result is shared: do not modify it.
        """
        key = system, role, content
        if key in self._tails:
            return self._tails[key]
        tail = self._find_tail(system, role, content)
        if len(content) <= _MAX_TAIL_CHARS:
            if len(self._tails) >= _MAX_TAILS:
                self._tails.clear()
            self._tails[key] = tail
        return tail

    def _find_tail(self, system: bool, role: str, content: str) -> Tail | None:
        separator = self.separator(system=system, role=role)
        if separator is None or not self.plain(content):
            return None
        if separator.edges == "strip":
            content = content.strip()
        elif separator.edges == "render" and content != content.strip():
            return None
        ids = self.codec.encode(separator.left + content + separator.right, inside=True)
        return Tail(ids, self.codec.leading(ids))

    # Probing the template

    def _rendered(self, messages: Sequence[Message]) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=self.tools or None,
                    tokenize=False,
                    add_generation_prompt=True,
                    **self._options,
                )
            )
        except MemoryError:
            raise
        except Exception as err:  # templates may raise any exception
            raise BadValue(f"the chat template cannot render this conversation: {err}") from err

    def _try_render(self, messages: Sequence[Message]) -> str:
        try:
            return self._rendered(messages)
        except BadValue:
            return ""

    def _shows(self, messages: Sequence[Message], *texts: str) -> bool:
        rendered = self._try_render(messages)
        return all(text in rendered for text in texts)

    def _read_template(self) -> TemplateTests | None:
        template = self._options.get("chat_template")
        if template is None:
            choose = getattr(self._tokenizer, "get_chat_template", None)
            template = self._tokenizer.chat_template if choose is None else choose(None, self.tools or None)
        if not isinstance(template, str):
            return None
        variables = {**self._options, "tools": self.tools or None, "documents": None, "add_generation_prompt": True}
        return template_tests(template, variables=variables)

    def _find_tool_turns(self) -> str:
        """Return how to send tool results: after a "written" or "structured" call, or as a "user" message."""
        start = [_message("user", _TASK)]
        after = [_message("assistant", _REPLY), _message("user", "Znext7q")]
        written = [*start, _message("assistant", "Zcall7q"), _message("tool", _OBSERVATION), *after]
        if self._shows(written, _TASK, "Zcall7q", _OBSERVATION, _REPLY, "Znext7q"):
            return "written"
        call = call_message("", [{"name": "Zcall7q", "arguments": {}}], [_CALL_ID])
        if self._shows(
            [*start, call, tool_message(_OBSERVATION, _CALL_ID), *after],
            _TASK,
            "Zcall7q",
            _OBSERVATION,
            _REPLY,
            "Znext7q",
        ):
            return "structured"
        return "user"

    def _find_end_token(self) -> str:
        """Return the special token the template writes after a reply, or ""."""
        text = self._try_render(
            [_message("user", _TASK), _message("assistant", _REPLY), _message("user", _OBSERVATION)]
        )
        return self.codec.first_special(text[text.find(_REPLY) + len(_REPLY) :].lstrip()) if _REPLY in text else ""

    def _find_separator(self, system: bool, role: str) -> TurnSeparator | None:
        if self.tests is None or (role == "tool" and self.tool_turns != "written"):
            return None
        head = [_message("system", _RULE)] if system else []
        head.append(_message("user", _TASK))
        before, after = (
            self._try_render(head),
            self._try_render([*head, _message("assistant", _REPLY), _message(role, _OBSERVATION)]),
        )
        if not before or not after.startswith(before):
            return None  # the prompt of a longer conversation does not extend that of a shorter one
        gap, reply, rest = after[len(before) :].partition(_REPLY)
        left, observation, right = rest.partition(_OBSERVATION)
        if gap.strip() or not (reply and observation):
            return None
        if not self._holds_for_random_histories(head, role, gap, left, right):
            return None
        edged = f"\n \t{_OBSERVATION} \n"
        shown = self._try_render([*head, _message("assistant", _REPLY), _message(role, edged)])
        if shown == f"{before}{gap}{_REPLY}{left}{edged}{right}":
            edges = "keep"
        else:
            edges = "strip" if shown == after else "render"
        return TurnSeparator(left=self.trim(left), right=right, edges=edges)

    def _holds_for_random_histories(self, head: list[Message], role: str, gap: str, left: str, right: str) -> bool:
        """Verify a separator on random histories, in addition to the static analysis of the template."""
        rng = Random(7)
        roles = ["user", "tool"] if self.tool_turns == "written" else ["user"]

        def text() -> str:
            return _UNUSUAL if rng.random() < 0.3 else "".join(rng.choices("aZ 9\n<>\"'\\.\u00e9", k=9)).strip() or "z"

        for turns in (0, 1, 2, 3, 5):
            history = list(head)
            for _ in range(turns):
                history += [_message("assistant", text()), _message(rng.choice(roles), text())]
            reply, observation = text(), text()
            before = self._try_render(history)
            after = self._try_render([*history, _message("assistant", reply), _message(role, observation)])
            if not before or after != f"{before}{gap}{reply}{left}{observation}{right}":
                return False
        return True

    def trim(self, tail: str) -> str:
        """Strip whitespace before the end-of-turn token, because it belongs to the reply."""
        bare = tail.lstrip()
        return bare if self.codec.first_special(bare) else tail


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}  # type: ignore[typeddict-item]


def call_message(text: str, calls: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> Message:
    """Return an assistant message with tool calls in the format that templates and servers expect."""
    functions = [
        {"id": call_id, "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call, call_id in zip(calls, ids, strict=True)
    ]
    return {"role": "assistant", "content": text, "tool_calls": functions}  # type: ignore[typeddict-unknown-key]


def tool_message(text: Any, call_id: str) -> Message:
    """Return the result of the tool call `call_id` as a message."""
    return {"role": "tool", "content": text, "tool_call_id": call_id}  # type: ignore[typeddict-unknown-key]
