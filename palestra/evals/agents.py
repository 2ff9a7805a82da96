"""Build the agent to evaluate from its name: expert, random, a Python function, a model folder or id, or a URL."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from palestra.agents import Agent, AgentSession, AgentSettings, ExpertAgent, RandomAgent
from palestra.core import Env
from palestra.engines.base import Engine, Sampling
from palestra.engines.model_folders import fingerprint, model_folder
from palestra.errors import BadValue
from palestra.evals.suite import with_sampling
from palestra.plugins import import_object
from palestra.progress import phase
from palestra.threads import DaemonPool
from palestra.types import Action, Message, Observation, text_of

PLAYERS: Mapping[str, Callable[[], Agent]] = {"expert": ExpertAgent, "random": RandomAgent}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings for loading a model and sampling from it."""

    sampling: Sampling = field(default_factory=Sampling)
    auto_max_tokens: bool = False  # let the chat template, not `sampling`, determine the maximum reply length
    agent: AgentSettings = field(default_factory=AgentSettings)  # prompts, thinking, tool calls, long conversations
    api_model: str = ""  # name of the model on the server; needed if the server hosts several models
    api_key_env: str = "OPENAI_API_KEY"  # environment variable that holds the API key; the key itself is never stored
    tokenizer: str = ""  # tokenizer of the model on the server; needed to record exact token ids
    device: str = "auto"
    dtype: str | None = None
    requests_per_minute: float = 0  # limit for litellm models; 0 means no limit


class EvaluatedAgent:
    """The agent under evaluation: its engine, one agent per set of sampling settings, and a description to store."""

    def __init__(self, agent: str | Agent | Callable[..., Any], settings: ModelSettings | None = None) -> None:
        self.name = agent if isinstance(agent, str) else _object_name(agent)
        self.settings = settings or ModelSettings(auto_max_tokens=True)
        self.kind = kind_of(agent) if isinstance(agent, str) else "object"
        self._object = agent
        self._engine: Engine | None = None
        self._agent: Agent | None = None

    async def __aenter__(self) -> Self:
        if self.kind == "object":
            self._agent = as_agent(self._object, self.name)
        elif self.kind == "player":
            self._agent = PLAYERS[self.name]()
        elif self.kind == "python":
            self._agent = python_agent(self.name)
        else:
            with phase(f"loading {self.name}"):
                self._engine = _engine(self.name, self.kind, self.settings)
                try:
                    await self._engine.ready()
                except BaseException:
                    await self._engine.aclose()
                    raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._engine is not None:
            await self._engine.aclose()
        if self._agent is not None:
            await self._agent.aclose()

    def agent(self, sampling: Mapping[str, Any]) -> Agent:
        """Return an agent with the default sampling settings, overridden by a suite entry's settings."""
        if self._engine is None:
            if self._agent is None:
                raise BadValue("enter the context first: async with EvaluatedAgent(name) as agent")
            return self._agent
        values = asdict(with_sampling(self._sampling(), sampling))
        del values["seed"]  # each reply has a seed derived from the task seed
        return self.settings.agent.chat_agent(self._engine, **values)

    def _sampling(self) -> Sampling:
        """Return the sampling settings, with a maximum reply length that suits the chat template if none was set."""
        settings, engine = self.settings, self._engine
        if not settings.auto_max_tokens or engine is None:
            return settings.sampling
        return replace(settings.sampling, max_tokens=settings.agent.default_max_tokens(engine.tokenizer))

    def describe(self) -> dict[str, Any]:
        """Return all known settings that affect how the agent plays; call this only inside the context manager."""
        description: dict[str, Any] = {"name": self.name, "kind": self.kind}
        engine = self._engine
        if engine is None:
            return description
        if self.kind in ("server", "litellm"):
            description["model"] = getattr(engine, "model", None)
        elif self.kind == "hf" and Path(folder := model_folder(self.name)).is_dir():
            description |= {"folder": folder, "weights": fingerprint(folder)}
        template = getattr(engine.tokenizer, "chat_template", None)
        description["template"] = None if template is None else sha256(str(template).encode()).hexdigest()[:16]
        values = asdict(self._sampling())
        del values["seed"], values["tempered_logprobs"]  # each reply has a seed derived from the task seed
        description["sampling"] = {**values, "stop": list(values["stop"]), "stop_ids": list(values["stop_ids"])}
        agent = self.settings.agent.to_dict()
        description |= {name: agent.pop(name) for name in ("system", "style")}
        description |= {"max_context": agent.pop("max_context") or None, "dtype": self.settings.dtype}
        description["template_options"] = self.settings.agent.template_options(engine.tokenizer)
        default = AgentSettings().to_dict()
        description["conversation"] = {name: value for name, value in agent.items() if value != default[name]}
        return description


def kind_of(name: str) -> str:
    """Return the kind of agent that `name` refers to: player, server, litellm, default, python or hf."""
    if name in PLAYERS:
        return "player"
    if name.startswith("litellm:"):
        return "litellm"
    if name.startswith(("http://", "https://")):
        return "server"
    if name.startswith("default:"):
        return "default"
    module, colon, thing = name.partition(":")
    if colon and all(part.isidentifier() for part in module.split(".")) and thing.isidentifier():
        return "python"
    return "hf"


def _engine(name: str, kind: str, settings: ModelSettings) -> Engine:
    if kind == "litellm":
        from palestra.engines.litellm import LiteLLMEngine

        chosen = settings.api_key_env != ModelSettings().api_key_env  # otherwise the provider's own variable is used
        key = _api_key(settings) if chosen else None
        return LiteLLMEngine(name, api_key=key, requests_per_minute=settings.requests_per_minute)
    if kind == "server":
        from palestra.engines.openai import OpenAIEngine

        key = _api_key(settings)
        # If the server renders the chat template, it receives the template variables.
        variables = {} if settings.tokenizer else settings.agent.template_options(None)
        extra = {"chat_template_kwargs": variables} if variables else None
        return OpenAIEngine(
            name, settings.api_model or None, api_key=key, tokenizer=settings.tokenizer or None, extra=extra
        )
    from palestra.engines.local.engine import LocalEngine

    options: dict[str, Any] = {"device": settings.device, "dtype": settings.dtype}
    if kind == "default":
        from palestra.engines.default_model import default_model

        model, tokenizer = default_model(name.partition(":")[2])
        return LocalEngine(model, tokenizer=tokenizer, **options)
    folder = model_folder(name)
    if (Path(name) / "run.json").exists() and folder == name:
        raise BadValue(f"the run in {name} has not saved a model yet; continue training, or choose another folder")
    return LocalEngine(folder, **options)


def _api_key(settings: ModelSettings) -> str | None:
    key = os.environ.get(settings.api_key_env)
    if key is None and settings.api_key_env != "OPENAI_API_KEY":
        raise BadValue(
            f"the environment variable {settings.api_key_env} is not set; set it to the API key, or omit --api-key-env"
        )
    return key


def python_agent(name: str) -> Agent:
    """Return the agent that `module:name` refers to: an Agent, an Agent class, or a function."""
    return as_agent(import_object(name), name)


def as_agent(source: Any, name: str) -> Agent:
    """Convert an Agent, an Agent class or a function to an agent; a function is wrapped in a `PythonAgent`."""
    if isinstance(source, type) and issubclass(source, Agent):
        source = source()
    if isinstance(source, Agent):
        return source
    if not callable(source):
        raise BadValue(f"{name} must be a function or a palestra Agent, got {type(source).__name__}")
    return PythonAgent(source)


def _object_name(agent: object) -> str:
    source = agent if hasattr(agent, "__qualname__") else type(agent)
    return f"{source.__module__}:{source.__qualname__}"


class PythonAgent(Agent):
    """Agent that uses the return value of a function or coroutine function as its action.

    Arguments are passed by parameter name: `observation` (text), `messages` or `conversation` (chat messages so far),
    `info` (from the environment), `seed` (fixed for each task and attempt) and `turn` (0-based). If the first parameter
    has another name, it receives the observation. Regular functions run in threads, so that episodes run concurrently.
    """

    def __init__(self, choose: Callable[..., Any]) -> None:
        self._choose = choose
        self._threads = DaemonPool(_THREADS)
        self._names = _argument_names(choose)

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env
        return _PythonSession(self._choose, self._names, self._threads, seed)


_THREADS = 256
_ARGUMENTS = ("observation", "messages", "conversation", "info", "seed", "turn")


def _argument_names(choose: Callable[..., Any]) -> list[tuple[str, bool]]:
    """Return, for each parameter of `choose`, the name of the value to pass and whether it is passed by position.

    Optional parameters with other names are omitted.
    """
    try:
        parameters = inspect.signature(choose).parameters.values()
    except ValueError:  # a built-in function without a signature
        return [("observation", True)]
    arguments: list[tuple[str, bool]] = []
    for place, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_KEYWORD or (parameter.kind is parameter.VAR_POSITIONAL and place > 0):
            continue
        if parameter.name in _ARGUMENTS:
            arguments.append((parameter.name, parameter.kind is parameter.POSITIONAL_ONLY))
        elif place == 0:
            arguments.append(("observation", True))
        elif parameter.default is parameter.empty:
            name = getattr(choose, "__name__", repr(choose))
            raise BadValue(
                f"{name}: unknown argument {parameter.name!r}; an agent function may take {', '.join(_ARGUMENTS)}"
            )
    return arguments


class _PythonSession(AgentSession):
    def __init__(
        self, choose: Callable[..., Any], names: Sequence[tuple[str, bool]], threads: DaemonPool, seed: int | None
    ) -> None:
        self._choose = choose
        self._names = names
        self._threads = threads
        self._seed = seed
        self._messages: list[Message] = []
        self._turn = 0

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        self._messages.append({"role": "tool" if info.get("use_tool") else "user", "content": observation})
        values = {
            "observation": text_of(observation),
            "messages": list(self._messages),
            "conversation": list(self._messages),
            "info": info,
            "seed": self._seed,
            "turn": self._turn,
        }
        args = [values[name] for name, by_place in self._names if by_place]
        more = {name: values[name] for name, by_place in self._names if not by_place}
        if inspect.iscoroutinefunction(self._choose):
            reply = await self._choose(*args, **more)
        else:
            reply = await self._threads.run(self._choose, *args, **more)
            if inspect.isawaitable(reply):
                reply = await reply
        action = Action(text=reply) if isinstance(reply, str) else reply
        if not isinstance(action, Action):
            raise BadValue(f"an agent function must return a string or an Action, got {type(reply).__name__}")
        self._turn += 1
        self._messages.append({"role": "assistant", "content": action.text})
        return action
