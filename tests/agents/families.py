"""Chat templates in the formats of several model families, with small tokenizers trained in this module."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = r"""
{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
"""

_QWEN_TOOLS = r"""# Tools\n\nThese functions can be called:\n<tools>\n' ~ tools | map('tojson') | join('\n') ~ '
\n</tools>\n\nCall one so:\n<tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>""".replace("\n", "")

_QWEN_RESULT = r"""
    {{- '<|im_start|>user' if not loop.previtem or loop.previtem.role != 'tool' }}
    {{- '\n<tool_response>\n' ~ m.content ~ '\n</tool_response>' }}
    {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' }}
"""

QWEN25 = (
    (
        r"""
{%- set rules = messages[0].content if messages[0].role == 'system' else 'You are a helpful assistant.' %}
{{- '<|im_start|>system\n' ~ rules }}
{%- if tools %}{{- '\n\nTOOLS' }}{%- endif %}
{{- '<|im_end|>\n' }}
{%- for m in messages if m.role != 'system' %}
  {%- if m.role == 'tool' %}RESULT
  {%- else %}
    {{- '<|im_start|>' ~ m.role ~ ('\n' ~ m.content if m.content or not m.tool_calls) }}
    {%- for call in m.tool_calls or [] %}
      {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
      {{- call.function.arguments | tojson ~ '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
"""
    )
    .replace("TOOLS", _QWEN_TOOLS)
    .replace("RESULT", _QWEN_RESULT)
)

_QWEN3 = (
    (
        r"""
{%- set rules = messages[0].content if messages[0].role == 'system' %}
{%- if tools %}
  {{- '<|im_start|>system\n' ~ (rules ~ '\n\n' if messages[0].role == 'system') ~ 'TOOLS<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
  {{- '<|im_start|>system\n' ~ rules ~ '<|im_end|>\n' }}
{%- endif %}
{%- set query = namespace(at=messages | length - 1) %}
{%- for m in messages %}
  {%- set wrapped = m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>') %}
  {%- if m.role == 'user' and not wrapped %}
    {%- set query.at = loop.index0 %}
  {%- endif %}
{%- endfor %}
{%- for m in messages if m.role != 'system' %}
  {%- if m.role == 'tool' %}RESULT
  {%- elif m.role != 'assistant' %}
    {{- '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}
  {%- else %}
    {%- set place = messages | length - loop.revindex %}
    {%- set thought = '' %}
    {%- set answer = m.content %}
    {%- if '</think>' in m.content %}
      {%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
      {%- set answer = m.content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\n' }}
    {%- if place > query.at and (thought or loop.last) %}
      {{- '<think>\n' ~ thought ~ '\n</think>\n\n' ~ answer.lstrip('\n') }}
    {%- else %}
      {{- answer }}
    {%- endif %}
    {%- for call in m.tool_calls or [] %}
      {{- '\n' if answer or not loop.first }}
      {{- '<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
      {{- call.function.arguments | tojson ~ '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' ~ (OPENING) }}
{%- endif %}
"""
    )
    .replace("TOOLS", _QWEN_TOOLS)
    .replace("RESULT", _QWEN_RESULT)
)
QWEN3 = _QWEN3.replace("OPENING", r"'<think>\n\n</think>\n\n' if enable_thinking is defined and not enable_thinking")
QWEN3_THINKING = _QWEN3.replace("OPENING", r"'<think>\n'")  # models whose replies always start with thinking

# As in the templates of vision models, message contents pass through a macro.
QWEN_MACRO = (
    r"""
{%- macro words(parts) %}
  {%- if parts is string %}{{- parts }}
  {%- elif parts is iterable %}
    {%- for part in parts %}{{- '<|vision_start|>' if part.type == 'image' else part.text }}{%- endfor %}
  {%- endif %}
{%- endmacro %}
{%- for m in messages %}
  {%- set text = words(m.content) | trim %}
  {%- if m.role == 'tool' %}RESULT
  {%- else %}
    {%- if m.role == 'assistant' and '</think>' in text %}
      {%- set text = text.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ m.role ~ '\n' ~ text ~ '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
"""
).replace("RESULT", _QWEN_RESULT.replace("m.content", "text"))

_LLAMA_MESSAGE = r"'<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\n\n' ~ m.content | trim ~ '<|eot_id|>'"

LLAMA3 = (
    r"""
{{- bos_token }}
{%- for m in messages %}{{- MESSAGE }}{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}
"""
).replace("MESSAGE", _LLAMA_MESSAGE)

LLAMA31 = (
    r"""
{%- set head = namespace(rules='', rest=messages) %}
{%- if messages[0].role == 'system' %}
  {%- set head.rules = messages[0].content | trim %}
  {%- set head.rest = messages[1:] %}
{%- endif %}
{{- bos_token ~ '<|start_header_id|>system<|end_header_id|>\n\n' ~ ('Environment: ipython\n' if tools) }}
{{- 'Cutting Knowledge Date: December 2023\nToday Date: ' ~ (date_string or '26 Jul 2024') ~ '\n\n' }}
{{- head.rules ~ '<|eot_id|>' }}
{%- for m in head.rest %}
  {%- if tools and loop.first %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {{- 'Answer with {"name": function name, "parameters": its arguments}.\n\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) ~ '\n\n' }}{%- endfor %}
    {{- m.content | trim ~ '<|eot_id|>' }}
  {%- elif m.tool_calls is defined %}
    {%- set call = m.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' ~ call.name ~ '", "parameters": ' }}
    {{- call.arguments | tojson ~ '}<|eot_id|>' }}
  {%- elif m.role == 'tool' %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' ~ m.content | tojson ~ '<|eot_id|>' }}
  {%- else %}
    {{- MESSAGE }}
  {%- endif %}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}
"""
).replace("MESSAGE", _LLAMA_MESSAGE)

MISTRAL = r"""
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list %}
{%- for m in rest | rejectattr('role', 'equalto', 'tool') | rejectattr('tool_calls', 'defined') %}
  {%- if m.role != ('assistant' if loop.index0 % 2 else 'user') %}
    {{- raise_exception('user and assistant must alternate') }}
  {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in rest %}
  {%- if m.role == 'user' %}
    {%- if tools and m == users[-1] %}
      {{- '[AVAILABLE_TOOLS] [' ~ tools | map('tojson') | join(', ') ~ '][/AVAILABLE_TOOLS]' }}
    {%- endif %}
    {{- '[INST] ' ~ (messages[0].content ~ '\n\n' if loop.last and messages[0].role == 'system') }}
    {{- m.content ~ '[/INST]' }}
  {%- elif m.tool_calls is defined %}
    {{- '[TOOL_CALLS] [' }}
    {%- for call in m.tool_calls %}
      {{- (call.function | tojson)[:-1] ~ ', "id": "' ~ call.id ~ '"}' ~ ('' if loop.last else ', ') }}
      {{- raise_exception('a tool call must have an id of nine characters') if not call.id or call.id | length != 9 }}
    {%- endfor %}
    {{- ']' ~ eos_token }}
  {%- elif m.role == 'assistant' %}
    {{- ' ' ~ m.content ~ eos_token }}
  {%- elif m.role == 'tool' %}
    {{- raise_exception('a tool result needs an id') if not m.tool_call_id or m.tool_call_id | length != 9 }}
    {{- '[TOOL_RESULTS] {"content": ' ~ m.content ~ ', "call_id": "' ~ m.tool_call_id ~ '"}[/TOOL_RESULTS]' }}
  {%- else %}
    {{- raise_exception('no such role') }}
  {%- endif %}
{%- endfor %}
"""

_GEMMA_TURNS = r"""
  {%- if m.role != ('assistant' if loop.index0 % 2 else 'user') %}
    {{- raise_exception('user and assistant must alternate') }}
  {%- endif %}
  {{- '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\n' }}
"""

GEMMA2 = (
    r"""
{{- bos_token }}
{%- for m in messages %}TURNS
  {{- m.content | trim ~ '<end_of_turn>\n' }}
{%- endfor %}
{{- '<start_of_turn>model\n' if add_generation_prompt }}
"""
).replace("TURNS", _GEMMA_TURNS)

GEMMA3 = (
    r"""
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{%- for m in rest %}TURNS
  {{- messages[0].content ~ '\n\n' if loop.first and messages[0].role == 'system' }}
  {%- if m.content is string %}
    {{- m.content | trim }}
  {%- else %}
    {%- for part in m.content %}{{- '<start_of_image>' if part.type == 'image' else part.text | trim }}{%- endfor %}
  {%- endif %}
  {{- '<end_of_turn>\n' }}
{%- endfor %}
{{- '<start_of_turn>model\n' if add_generation_prompt }}
"""
).replace("TURNS", _GEMMA_TURNS)

PHI3 = r"""
{%- for m in messages if m.role in ['system', 'user', 'assistant'] %}
  {{- '<|' ~ m.role ~ '|>\n' ~ m.content ~ '<|end|>\n' }}
{%- endfor %}
{{- '<|assistant|>\n' if add_generation_prompt else eos_token }}
"""

PHI4 = r"""
{%- for m in messages if m.role in ['system', 'user', 'assistant'] %}
  {{- '<|im_start|>' ~ m.role ~ '<|im_sep|>' ~ m.content ~ '<|im_end|>' }}
{%- endfor %}
{{- '<|im_start|>assistant<|im_sep|>' if add_generation_prompt }}
"""

# Turns are separated by plain words; no special token ends a turn.
WORDS = (
    "{% for message in messages %}{{ '### ' + message['role'] + ':\n' + message['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant:\n' }}{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A chat template and the tokens it needs."""

    template: str
    special: tuple[str, ...]
    eos: str  # token that ends the model's reply
    bos: str | None = None
    words: tuple[str, ...] = ()  # added tokens that are not special
    absorbs_space: tuple[str, ...] = ()  # special tokens that absorb the whitespace after them (rstrip)
    sentencepiece: bool = False
    options: dict[str, Any] = field(default_factory=dict)


_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_THINK = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_LLAMA = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
)
_MISTRAL = (
    "<s>",
    "</s>",
    "<unk>",
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
)
_GEMMA = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
_PHI3 = ("<s>", "<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>")

FAMILIES = {
    "chatml": Family(template=CHATML, special=_IM, eos="<|im_end|>"),
    "qwen2.5": Family(template=QWEN25, special=_IM, eos="<|im_end|>", words=_THINK[:2]),
    "qwen3": Family(template=QWEN3, special=_IM, eos="<|im_end|>", words=_THINK),
    "qwen3-no-thinking": Family(
        template=QWEN3, special=_IM, eos="<|im_end|>", words=_THINK, options={"enable_thinking": False}
    ),
    "qwen3-always-thinking": Family(template=QWEN3_THINKING, special=_IM, eos="<|im_end|>", words=_THINK),
    "qwen3-special-thoughts": Family(template=QWEN3, special=(*_IM, *_THINK), eos="<|im_end|>"),
    "qwen-macro": Family(template=QWEN_MACRO, special=(*_IM, "<|vision_start|>"), eos="<|im_end|>", words=_THINK),
    "llama3": Family(template=LLAMA3, special=_LLAMA, eos="<|eot_id|>", bos="<|begin_of_text|>"),
    "llama3.1": Family(template=LLAMA31, special=_LLAMA, eos="<|eot_id|>", bos="<|begin_of_text|>"),
    "mistral": Family(template=MISTRAL, special=_MISTRAL, eos="</s>", bos="<s>"),
    "mistral-sentencepiece": Family(template=MISTRAL, special=_MISTRAL, eos="</s>", bos="<s>", sentencepiece=True),
    "gemma2": Family(template=GEMMA2, special=_GEMMA, eos="<end_of_turn>", bos="<bos>"),
    "gemma3": Family(template=GEMMA3, special=_GEMMA, eos="<end_of_turn>", bos="<bos>"),
    "phi3": Family(template=PHI3, special=_PHI3, eos="<|end|>", bos="<s>", absorbs_space=_PHI3[2:]),
    "phi4": Family(template=PHI4, special=(*_IM, "<|im_sep|>"), eos="<|im_end|>"),
    "words": Family(template=WORDS, special=("<|endoftext|>",), eos="<|endoftext|>"),
}
SPELLINGS = sorted({token for family in FAMILIES.values() for token in (*family.special, *family.words)})

_CORPUS = [
    "You are playing Mastermind. Guess the secret code of four colours. Turn 1 of 10: two black pegs, one white peg.",
    "I think the answer is \\boxed{1 2 3 4}, as the last guess was wrong.\n\nAction: go north\nThought: a door is open",
    "system user assistant model tool <|im_start|> the quick brown fox jumps over the lazy dog 0123456789",
] * 20


@cache
def _base(sentencepiece: bool) -> str:
    if sentencepiece:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("\u2581", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(content=" ", left=1, right=0),
            ]
        )
        special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
        tokenizer.train_from_iterator([line.replace(" ", "\u2581") for line in _CORPUS], trainer)
        # Byte tokens are part of the vocabulary, but text such as "<0x41>" must not be tokenized as one.
        import json

        raw = json.loads(tokenizer.to_str())
        raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
        return json.dumps(raw)
    tokenizer = Tokenizer(models.BPE())
    # Consecutive newlines form one token; each digit is a separate token.
    split = r"\s*[\r\n]+| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return str(tokenizer.to_str())


@cache
def tokenizer_of(name: str) -> Any:
    """Return a family's tokenizer. It is shared, so tests must not change it."""
    family = FAMILIES[name]
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_object=Tokenizer.from_str(_base(family.sentencepiece)), clean_up_tokenization_spaces=False
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, special=True, normalized=False, rstrip=token in family.absorbs_space)
            for token in family.special
        ],
        special_tokens=True,
    )
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in family.words])
    tokenizer.eos_token = family.eos
    if family.bos is not None:
        tokenizer.bos_token = family.bos
    tokenizer.chat_template = family.template
    return tokenizer
