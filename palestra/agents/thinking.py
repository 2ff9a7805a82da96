"""Find out whether a chat template makes a model think before it replies, and turn thinking on or off.

Some templates have a switch, a variable such as `enable_thinking` (Qwen3). Other models always think; their template
opens a `<think>` block or removes earlier ones from the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from palestra.engines.base import Tokenizer
from palestra.errors import BadValue

Mode = Literal["auto", "on", "off"]
SWITCHES = ("enable_thinking", "thinking")  # names of the template variable in common models
REPLY_TOKENS = 512  # default maximum reply length in tokens
THINKING_REPLY_TOKENS = 4096  # default maximum reply length for a reply that starts with a thought


class Thinking(NamedTuple):
    """A chat template's support for thinking."""

    switch: str | None  # the variable that turns thinking on and off, if the template has one
    default: bool  # whether the model thinks if the switch is not set


def thinking_of(tokenizer: Tokenizer, options: Mapping[str, Any] | None = None) -> Thinking:
    """Detect the support for thinking in a tokenizer's chat template; `options` sets other template variables."""
    fixed = {name: value for name, value in (options or {}).items() if name not in SWITCHES}

    def prompt(**variables: Any) -> str:
        messages = [{"role": "user", "content": "task"}]
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **{**fixed, **variables}
            )
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  # templates may raise any exception; `Renderer` reports it
            return ""
        return str(text)

    for name in SWITCHES:
        with_thinking = prompt(**{name: True})
        if with_thinking != prompt(**{name: False}):
            return Thinking(name, prompt() == with_thinking)
    return Thinking(None, "</think>" in str(fixed.get("chat_template") or tokenizer.chat_template))


def template_options(tokenizer: Tokenizer, mode: Mode, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables `given` with thinking turned on or off; "auto" turns it off if there is a switch.

    Raises BadValue if the template has no switch, unless the model always thinks and `mode` is "on".
    """
    thinking = thinking_of(tokenizer, given)
    if thinking.switch is None:
        if mode == "off" or (mode == "on" and not thinking.default):
            behavior = "always thinks" if thinking.default else "does not think"
            raise BadValue(
                f"thinking cannot be turned {mode}: the chat template has no switch for it, and the model {behavior}"
            )
        return dict(given)
    if thinking.switch in given:
        if mode != "auto":
            raise BadValue(f"pass either --thinking or the template variable {thinking.switch}, not both")
        return dict(given)
    return {**given, thinking.switch: mode == "on"}


def thinks(tokenizer: Tokenizer, options: Mapping[str, Any]) -> bool:
    """Return whether the model thinks before it replies, given the template variables."""
    thinking = thinking_of(tokenizer, options)
    return bool(options.get(thinking.switch, thinking.default)) if thinking.switch else thinking.default


def default_max_tokens(tokenizer: Tokenizer | None, options: Mapping[str, Any]) -> int:
    """Return the default maximum reply length, which leaves room for a thought if the model thinks."""
    return THINKING_REPLY_TOKENS if tokenizer is not None and thinks(tokenizer, options) else REPLY_TOKENS
