"""Messages to prompt ids with a model's own chat template, and what the template puts between a reply and the next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.agents.template import Tests, tests_of
from palestra.agents.tokens import Codec
from palestra.engines.base import Tokenizer
from palestra.errors import BadValue
from palestra.types import Message

_REPLY, _SAID, _TASK, _RULE = "Zreply7q", "Zsaid7q", "Ztask7q", "Zrule7q"  # stand-ins no template would write
_ODD = "Za \"b\" 'c' \\d <e> &f; {{g}} %h \u00e9\u4f60\U0001f600\n\n\tI|j~ #k_*l Zz"
_KEPT = 512  # first prompts remembered: members of a group ask for the same one
_ID = "Z0000000q"  # of a tool call; Mistral's template insists on nine letters or digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Glue:
    """What the template writes between the end of a reply and the place of the next, around one message."""

    left: str  # the end of the reply's turn, and the message's header
    right: str  # the end of the message, and the header of the next reply
    edges: str  # of the message's text: "keep" or "strip" the blanks there, or "ask" the template


class Renderer:
    """A chat template with its tools and options fixed."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
        shortcuts: bool = True,
    ) -> None:
        """`options` are variables for the template. `shortcuts=False` renders every prompt in full."""
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        fixed = sorted({"tokenize", "add_generation_prompt", "tools", "return_dict"} & self._options.keys())
        if fixed:
            raise BadValue(f"template_options must leave {', '.join(fixed)} to the agent")
        if not (self._options.get("chat_template") or tokenizer.chat_template):
            raise BadValue(
                "the engine's tokenizer has no chat template; set tokenizer.chat_template, or give one with "
                'template_options={"chat_template": ...}'
            )
        self.codec = Codec(tokenizer)
        self.tools: list[dict[str, Any]] = []
        if tools:
            plain = self._rendered([_message("user", _TASK)])
            self.tools = [dict(tool) for tool in tools]
            if self._rendered([_message("user", _TASK)]) == plain:
                self.tools = []  # the template takes no tools; the agent has to tell the model itself
        self.tests: Tests | None = self._read_template() if shortcuts else None
        self._within = re.compile("|".join(map(re.escape, self.tests.within)) or "(?!)") if self.tests else None
        self._prompts: dict[Any, tuple[str, list[int]]] = {}
        self._glue: dict[tuple[bool, str], Glue | None] = {}
        self.takes_system = self._shows([_message("system", _RULE), _message("user", _TASK)], _RULE, _TASK)
        self.tool_turns = self._find_tool_turns()
        self.end = self._find_end()
        eos = tokenizer.eos_token_id
        self.stops = {*(eos if isinstance(eos, list | tuple) else [eos]), self.codec.special.get(self.end)} - {None}

    def prompt(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """The conversation up to the place of the next reply, as text and as ids. The ids are shared: do not change."""
        key = tuple([(message["role"], message["content"]) for message in messages if len(message) == 2])
        found = self._prompts.get(key) if len(key) == len(messages) else None
        if found is None:
            text = self.render(messages)
            found = text, self.codec.encode(text)
            if len(key) == len(messages):
                if len(self._prompts) >= _KEPT:
                    self._prompts.clear()
                self._prompts[key] = found
        return found

    def render(self, messages: Sequence[Message]) -> str:
        """As `prompt`, text alone. Texts come guarded (see `tokens`)."""
        return self._rendered(messages)

    def plain(self, text: str) -> bool:
        """The template would treat this text as it treats any other."""
        return (
            self._within is not None
            and self.tests is not None
            and self._within.search(text) is None
            and bool(text.strip())
            and not (self.tests.whole and text.strip() in self.tests.whole)
        )

    def glue(self, *, system: bool, role: str) -> Glue | None:
        """What stands between any plain reply and the next, around any plain message; None where that varies."""
        key = system, role
        if key not in self._glue:
            self._glue[key] = self._find_glue(system, role)
        return self._glue[key]

    # How the template behaves, found out by trial

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
        except Exception as err:  # templates raise what they like
            raise BadValue(f"the chat template refuses this conversation: {err}") from err

    def _tried(self, messages: Sequence[Message]) -> str:
        try:
            return self._rendered(messages)
        except BadValue:
            return ""

    def _shows(self, messages: Sequence[Message], *texts: str) -> bool:
        rendered = self._tried(messages)
        return all(text in rendered for text in texts)

    def _read_template(self) -> Tests | None:
        template = self._options.get("chat_template")
        if template is None:
            choose = getattr(self._tokenizer, "get_chat_template", None)
            template = self._tokenizer.chat_template if choose is None else choose(None, self.tools or None)
        if not isinstance(template, str):
            return None
        given = {**self._options, "tools": self.tools or None, "documents": None, "add_generation_prompt": True}
        return tests_of(template, given=given)

    def _find_tool_turns(self) -> str:
        """How a tool's answer can be shown: after the call as "written", after a "structured" call, or as a "user"."""
        start = [_message("user", _TASK)]
        after = [_message("assistant", _REPLY), _message("user", "Znext7q")]
        written = [*start, _message("assistant", "Zcall7q"), _message("tool", _SAID), *after]
        if self._shows(written, _TASK, "Zcall7q", _SAID, _REPLY, "Znext7q"):
            return "written"
        call = called("", [{"name": "Zcall7q", "arguments": {}}], [_ID])
        if self._shows([*start, call, answered(_SAID, _ID), *after], _TASK, "Zcall7q", _SAID, _REPLY, "Znext7q"):
            return "structured"
        return "user"

    def _find_end(self) -> str:
        """The special token the template writes after a reply, or ""."""
        text = self._tried([_message("user", _TASK), _message("assistant", _REPLY), _message("user", _SAID)])
        return self.codec.first_special(text[text.find(_REPLY) + len(_REPLY) :].lstrip()) if _REPLY in text else ""

    def _find_glue(self, system: bool, role: str) -> Glue | None:
        if self.tests is None or (role == "tool" and self.tool_turns != "written"):
            return None
        head = [_message("system", _RULE)] if system else []
        head.append(_message("user", _TASK))
        before, after = self._tried(head), self._tried([*head, _message("assistant", _REPLY), _message(role, _SAID)])
        if not before or not after.startswith(before):
            return None  # the template does not extend its own prompt
        gap, found, rest = after[len(before) :].partition(_REPLY)
        left, said, right = rest.partition(_SAID)
        if gap.strip() or not (found and said):
            return None
        if not self._always(head, role, gap, left, right):
            return None
        edged = f"\n \t{_SAID} \n"
        shown = self._tried([*head, _message("assistant", _REPLY), _message(role, edged)])
        if shown == f"{before}{gap}{_REPLY}{left}{edged}{right}":
            edges = "keep"
        else:
            edges = "strip" if shown == after else "ask"
        return Glue(left=self.trim(left), right=right, edges=edges)

    def _always(self, head: list[Message], role: str, gap: str, left: str, right: str) -> bool:
        """A trial of `glue` after histories of all kinds: the reading of the template is not trusted alone."""
        rng = Random(7)
        roles = ["user", "tool"] if self.tool_turns == "written" else ["user"]

        def text() -> str:
            return _ODD if rng.random() < 0.3 else "".join(rng.choices("aZ 9\n<>\"'\\.\u00e9", k=9)).strip() or "z"

        for turns in (0, 1, 2, 3, 5):
            history = list(head)
            for _ in range(turns):
                history += [_message("assistant", text()), _message(rng.choice(roles), text())]
            reply, said = text(), text()
            before = self._tried(history)
            after = self._tried([*history, _message("assistant", reply), _message(role, said)])
            if not before or after != f"{before}{gap}{reply}{left}{said}{right}":
                return False
        return True

    def trim(self, tail: str) -> str:
        """What follows a reply, less the blanks before the token that ends it: those belong to the reply."""
        bare = tail.lstrip()
        return bare if self.codec.first_special(bare) else tail


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}  # type: ignore[typeddict-item]


def called(text: str, calls: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> Message:
    """An assistant's message with tool calls in the form that templates and servers take."""
    functions = [
        {"id": call_id, "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call, call_id in zip(calls, ids, strict=True)
    ]
    return {"role": "assistant", "content": text, "tool_calls": functions}  # type: ignore[typeddict-unknown-key]


def answered(text: Any, call_id: str) -> Message:
    """A tool's answer to the call with that id."""
    return {"role": "tool", "content": text, "tool_call_id": call_id}  # type: ignore[typeddict-unknown-key]
