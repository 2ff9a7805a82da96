"""Chat agent settings, shared by `palestra train` (the `[agent]` table) and `palestra eval`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from palestra.agents.chat import ChatAgent
from palestra.agents.context import Context, FullHistory, LastTurns, LatestObservation, Summary, TokenBudget
from palestra.agents.reflection import Reflection, went_badly
from palestra.agents.styles import PlainStyle, ReActStyle, Style, ToolStyle
from palestra.agents.thinking import default_max_tokens, template_options, thinking_of, thinks
from palestra.engines.base import Engine, Tokenizer
from palestra.errors import BadValue
from palestra.options import check_options, option


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """`[agent]` section: prompts, chat template, tool calls and the policy for long conversations."""

    system: str = option("", "System prompt at the start of every conversation (default: none).")
    style: Literal["plain", "react", "tools"] = option(
        "plain",
        "Format of replies: plain (the reply is the action), react (a thought, then the action after 'Action:'), or "
        "tools (native tool calls in the format of the model's chat template).",
        choices=("plain", "react", "tools"),
    )
    tool_format: Literal["auto", "hermes", "qwen_coder", "llama", "mistral"] = option(
        "auto",
        "Tool call format for --style tools: auto (the chat template's own format, or hermes if it has none), hermes "
        "(also used by Qwen models), qwen_coder, llama or mistral; all except auto are described in the system prompt.",
        choices=("auto", "hermes", "qwen_coder", "llama", "mistral"),
    )
    thinking: Literal["auto", "on", "off"] = option(
        "auto",
        "Let a model with a thinking switch in its chat template (such as Qwen3) think before it replies: on, off, or "
        "auto, which turns thinking off if there is a switch.",
        choices=("auto", "on", "off"),
    )
    keep_thinking: Literal["auto", "on", "off"] = option(
        "auto",
        "Keep earlier thoughts in the prompt even if the chat template would remove them, so that an episode remains "
        "one training sample: on, off, or auto, which is on only if thinking was switched off.",
        choices=("auto", "on", "off"),
    )
    template_kwargs: dict[str, Any] = option(
        None, 'Variables for the chat template as a JSON object, for example \'{"reasoning_effort": "low"}\'.'
    )
    context: Literal["full", "latest", "last_turns", "token_budget", "summary"] = option(
        "full",
        "Turns to keep in the prompt in addition to the task: full (all turns; the episode ends when the context "
        "window is full), latest (only the latest observation, for --wrappers History), last_turns (as many as "
        "--context-turns), token_budget (the latest turns that fit), or summary (the model summarizes a long "
        "conversation, and is also trained on the summaries).",
        choices=("full", "latest", "last_turns", "token_budget", "summary"),
    )
    context_turns: int = option(
        0,
        "Number of turns that --context last_turns keeps, or after which --context summary writes a summary; with 0, "
        "summaries depend only on --context-tokens.",
        at_least=0,
    )
    context_tokens: int = option(
        0,
        "Number of prompt tokens above which --context token_budget drops turns and --context summary writes a "
        "summary; 0 derives the limit from the context window, except that --context summary has no token limit if "
        "--context-turns is set.",
        at_least=0,
    )
    summary_tokens: int = option(256, "Maximum number of tokens per summary.", at_least=1)
    summary_recent: int = option(1, "Number of latest turns that stay in the prompt after a summary.", at_least=1)
    reflect: bool = option(
        False, "After an invalid action, an error or a negative reward, let the model reflect before its next action."
    )
    reflect_every: int = option(0, "Number of turns between regular reflections; 0 disables them.", at_least=0)
    reflect_tokens: int = option(256, "Maximum number of tokens per reflection.", at_least=1)
    max_context: int = option(
        0,
        "Maximum number of tokens in a conversation, including the prompt and the reply; 0 uses the model's "
        "context window.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "template_kwargs", self.template_kwargs or {})
        check_options(self)
        if self.context == "last_turns" and not self.context_turns:
            raise BadValue("context=last_turns requires the number of turns, for example --context-turns 4")
        if self.context_turns and self.context not in ("last_turns", "summary"):
            raise BadValue("context_turns requires --context last_turns or --context summary")
        if self.context_tokens and self.context not in ("token_budget", "summary"):
            raise BadValue("context_tokens requires --context token_budget or --context summary")
        if self.context == "latest" and (self.reflect or self.reflect_every):
            raise BadValue("reflection needs the earlier turns; use a --context other than latest")
        if self.tool_format != "auto" and self.style != "tools":
            raise BadValue("tool_format requires --style tools")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON-compatible dict."""
        return asdict(self)

    def template_options(self, tokenizer: Tokenizer | None) -> dict[str, Any]:
        """Return the variables for the chat template, including the thinking switch."""
        if tokenizer is not None:
            return template_options(tokenizer, self.thinking, self.template_kwargs)
        # The server renders the template; only an explicit choice is sent.
        switch = {} if self.thinking == "auto" else {"enable_thinking": self.thinking == "on"}
        return {**switch, **self.template_kwargs}

    def default_max_tokens(self, tokenizer: Tokenizer | None) -> int:
        """Return the default maximum reply length: 512 tokens, or 4096 if the model thinks before it replies."""
        return default_max_tokens(tokenizer, self.template_options(tokenizer))

    def chat_options(self, tokenizer: Tokenizer | None) -> dict[str, Any]:
        """Return the arguments of a ChatAgent that determine its prompts, except for the context policy."""
        options = self.template_options(tokenizer)
        return {
            "system": self.system or None,
            "style": self._style(),
            "template_options": options,
            "keep_thinking": self._keeps_thinking(tokenizer, options),
            "max_context": self.max_context or None,
        }

    def chat_agent(self, engine: Engine, *, max_tokens: int = 0, **sampling: Any) -> ChatAgent:
        """Return an agent with these settings; `max_tokens=0` selects a limit that suits the template."""
        return ChatAgent(
            engine,
            max_tokens=max_tokens or self.default_max_tokens(engine.tokenizer),
            context=self.context_policy(),
            reflect=self._reflection(),
            **self.chat_options(engine.tokenizer),
            **sampling,
        )

    def context_policy(self) -> Context:
        """Return the policy for long conversations."""
        turns, tokens = self.context_turns or None, self.context_tokens or None
        if self.context == "latest":
            return LatestObservation()
        if self.context == "last_turns":
            return LastTurns(self.context_turns)
        if self.context == "token_budget":
            return TokenBudget(tokens)
        if self.context == "summary":
            return Summary(tokens=tokens, turns=turns, recent=self.summary_recent, max_tokens=self.summary_tokens)
        return FullHistory()

    def _style(self) -> Style:
        if self.style == "tools":
            return ToolStyle(format=self.tool_format)
        return ReActStyle() if self.style == "react" else PlainStyle()

    def _reflection(self) -> Reflection | None:
        if not (self.reflect or self.reflect_every):
            return None
        when = went_badly if self.reflect else None
        return Reflection(when=when, every=self.reflect_every or None, max_tokens=self.reflect_tokens)

    def _keeps_thinking(self, tokenizer: Tokenizer | None, options: dict[str, Any]) -> bool:
        if self.keep_thinking != "auto" or tokenizer is None:
            return self.keep_thinking == "on"
        return thinking_of(tokenizer, options).switch is not None and not thinks(tokenizer, options)
