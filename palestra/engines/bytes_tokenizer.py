"""Byte-level tokenizer with a ChatML template and no dependencies, for scripts, tests and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.types import text_of

_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")  # ids 256, 257, 258
_SPECIAL_ID = {token: 256 + i for i, token in enumerate(_SPECIAL)}
_SPLIT = re.compile("(" + "|".join(map(re.escape, _SPECIAL)) + ")")

# Jinja equivalent of `apply_chat_template`, for code that renders templates itself. A test compares the two.
_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\nCall one with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- set function = call.function or call %}
{{- '<tool_call>{"name": ' + function.name | tojson + ', "arguments": ' }}
{{- function.arguments if function.arguments is string else function.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


class ByteTokenizer:
    """One id per byte, plus three special tokens: start of message, end of message, padding.

    `decode(encode(text))` returns the text, and concatenating texts concatenates their ids, unless a special token
    forms across the boundary.
    """

    def __init__(self) -> None:
        self.chat_template = _TEMPLATE
        self.bos_token_id = None
        self.eos_token = "<|im_end|>"
        self.eos_token_id = _SPECIAL_ID[self.eos_token]
        self.pad_token_id = _SPECIAL_ID["<|endoftext|>"]
        self.all_special_ids = list(_SPECIAL_ID.values())

    def __len__(self) -> int:
        return 256 + len(_SPECIAL)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`. Special tokens in the text are recognized; none are added."""
        del add_special_tokens
        ids: list[int] = []
        for part in _SPLIT.split(text):
            special = _SPECIAL_ID.get(part)
            if special is None:
                ids += part.encode("utf-8", "replace")
            else:
                ids.append(special)
        return ids

    def decode(self, token_ids: int | Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of the token ids; invalid UTF-8 bytes become U+FFFD."""
        text: list[str] = []
        pending = bytearray()
        for token in [token_ids] if isinstance(token_ids, int) else token_ids:
            if 0 <= token < 256:
                pending.append(token)
                continue
            if not 256 <= token < len(self):
                raise BadValue(f"token id must be in 0..{len(self) - 1}, got {token}")
            text.append(pending.decode("utf-8", "replace"))
            pending.clear()
            if not skip_special_tokens:
                text.append(_SPECIAL[token - 256])
        text.append(pending.decode("utf-8", "replace"))
        return "".join(text)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_dict: bool = False,
        **variables: Any,  # template variables, all unused
    ) -> Any:
        """Render as ChatML; return text, ids if `tokenize` is set, or `{"input_ids": ids}` if `return_dict` is set."""
        if variables.get("chat_template") not in (None, self.chat_template):
            raise BadValue("ByteTokenizer renders only its own template; use a Hugging Face tokenizer for another one")
        text: list[str] = []
        messages = list(conversation)
        if tools:
            text.append("<|im_start|>system\n")
            if messages and messages[0]["role"] == "system":
                text.append(f"{text_of(messages.pop(0)['content'])}\n\n")
            text.append('# Tools\nCall one with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.\n')
            text += [f"{_json(tool)}\n" for tool in tools]
            text.append("<|im_end|>\n")
        for message in messages:
            text.append(f"<|im_start|>{message['role']}\n{text_of(message.get('content') or '')}")
            for call in message.get("tool_calls") or ():
                function = call.get("function") or call
                arguments = function["arguments"]
                arguments = arguments if isinstance(arguments, str) else _json(arguments)
                text.append(f'<tool_call>{{"name": {_json(function["name"])}, "arguments": {arguments}}}</tool_call>')
            text.append("<|im_end|>\n")
        if add_generation_prompt:
            text.append("<|im_start|>assistant\n")
        whole = "".join(text)
        if not tokenize:
            return whole
        ids = self.encode(whole)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)} if return_dict else ids


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
