"""Build the agent to evaluate from its name: expert, random, a Python function, a model folder, or a server URL."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from palestra.agents import Agent, AgentSession, ChatAgent, ExpertAgent, RandomAgent
from palestra.core import Env
from palestra.engines.base import Engine, Sampling
from palestra.engines.model_folders import fingerprint, model_folder
from palestra.errors import BadValue
from palestra.evals.suite import sampled
from palestra.types import Action, Message, Observation, text_of

PLAYERS: Mapping[str, Callable[[], Agent]] = {"expert": ExpertAgent, "random": RandomAgent}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is loaded and sampled from."""

    sampling: Sampling = field(default_factory=Sampling)
    system: str = ""
    style: str = "plain"  # or "react", "tools"
    max_context: int | None = None
    api_model: str = ""  # which model of a server that hosts several
    api_key_env: str = "OPENAI_API_KEY"  # environment variable with the API key; the key itself is never stored
    tokenizer: str = ""  # tokenizer of the server's model, for exact token ids
    device: str = "auto"
    dtype: str | None = None


class Player:
    """The agent under evaluation: one engine, an agent per sampling setting, and the settings that are recorded."""

    def __init__(self, name: str, settings: ModelSettings | None = None) -> None:
        self.name = name
        self.settings = settings or ModelSettings()
        self.kind = kind_of(name)
        self._engine: Engine | None = None
        self._plain: Agent | None = None

    async def __aenter__(self) -> Self:
        if self.kind == "player":
            self._plain = PLAYERS[self.name]()
        elif self.kind == "python":
            self._plain = python_agent(self.name)
        else:
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
        if self._plain is not None:
            await self._plain.aclose()

    def agent(self, sampling: Mapping[str, Any]) -> Agent:
        """Return an agent that samples with the default settings, overridden by those of a suite entry."""
        if self._engine is None:
            if self._plain is None:
                raise BadValue("enter the context first: async with EvaluatedAgent(name) as agent")
            return self._plain
        how = sampled(self.settings.sampling, sampling)
        said = {key: value for key, value in asdict(how).items() if key != "seed"}
        options: dict[str, Any] = {"style": self.settings.style, "max_context": self.settings.max_context}
        return ChatAgent(self._engine, system=self.settings.system or None, **options, **said)

    def pinned(self) -> dict[str, Any]:
        """Return everything known that determines how the agent plays; available once the context is entered."""
        found: dict[str, Any] = {"name": self.name, "kind": self.kind}
        engine = self._engine
        if engine is None:
            return found
        if self.kind == "server":
            found["model"] = getattr(engine, "model", None)
        elif self.kind == "hf" and Path(folder := model_folder(self.name)).is_dir():
            found |= {"folder": folder, "weights": fingerprint(folder)}
        template = getattr(engine.tokenizer, "chat_template", None)
        found["template"] = None if template is None else sha256(str(template).encode()).hexdigest()[:16]
        how = asdict(self.settings.sampling)
        del how["seed"]  # derived per reply from the seed of the task
        found["sampling"] = {**how, "stop": list(how["stop"]), "stop_ids": list(how["stop_ids"])}
        found |= {name: getattr(self.settings, name) for name in ("system", "style", "max_context", "dtype")}
        return found


def kind_of(name: str) -> str:
    """Return the kind of agent that `name` refers to: player, server, default, python or hf."""
    if name in PLAYERS:
        return "player"
    if name.startswith(("http://", "https://")):
        return "server"
    if name.startswith("default:"):
        return "default"
    module, colon, thing = name.partition(":")
    if colon and all(part.isidentifier() for part in module.split(".")) and thing.isidentifier():
        return "python"
    return "hf"


def _engine(name: str, kind: str, settings: ModelSettings) -> Engine:
    if kind == "server":
        from palestra.engines.openai import OpenAIEngine

        key = os.environ.get(settings.api_key_env)
        if key is None and settings.api_key_env != "OPENAI_API_KEY":
            raise BadValue(
                f"the environment variable {settings.api_key_env} is not set; set it to the API key, or omit --api-key-env"
            )
        return OpenAIEngine(name, settings.api_model or None, api_key=key, tokenizer=settings.tokenizer or None)
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


def imported(name: str) -> Any:
    """Import the object `module:name`, looking in the working directory first."""
    module, _, thing = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # console scripts do not have the working directory on sys.path
    try:
        return getattr(importlib.import_module(module), thing)
    except ModuleNotFoundError as err:
        raise BadValue(f"{name}: no module named {err.name!r}; check the spelling or install it") from err
    except AttributeError as err:
        raise BadValue(f"{name}: {err}") from err


def python_agent(name: str) -> Agent:
    """Return the agent that `module:name` refers to: an Agent, an Agent class, or a function."""
    found = imported(name)
    if isinstance(found, type) and issubclass(found, Agent):
        found = found()
    if isinstance(found, Agent):
        return found
    if not callable(found):
        raise BadValue(f"{name} must be a function or a palestra Agent, got {type(found).__name__}")
    return Program(found)


class Program(Agent):
    """Agent that plays the return value of a function or coroutine function.

    Arguments are matched by name: `observation` (text), `messages` or `conversation` (chat messages so far), `info` (from
    the environment), `seed` (fixed per task and attempt), `turn` (0-based). A first argument with any other name receives
    the observation. Plain functions run in threads, so that episodes run concurrently.
    """

    def __init__(self, choose: Callable[..., Any]) -> None:
        self._choose = choose
        self._threads = ThreadPoolExecutor(_THREADS, "palestra-program")  # threads are started on demand
        self._names = _wanted(choose)

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env
        return _ProgramSession(self._choose, self._names, self._threads, seed)

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


_THREADS = 256
_GIVEN = ("observation", "messages", "conversation", "info", "seed", "turn")


def _wanted(choose: Callable[..., Any]) -> list[tuple[str, bool]]:
    """Return (value to pass, whether positional) for each argument of `choose` that is filled in."""
    try:
        parameters = inspect.signature(choose).parameters.values()
    except ValueError:  # a builtin without a signature
        return [("observation", True)]
    found: list[tuple[str, bool]] = []
    for place, one in enumerate(parameters):
        if one.kind is one.VAR_KEYWORD or (one.kind is one.VAR_POSITIONAL and place > 0):
            continue
        if one.name in _GIVEN:
            found.append((one.name, one.kind is one.POSITIONAL_ONLY))
        elif place == 0:
            found.append(("observation", True))
        elif one.default is one.empty:
            name = getattr(choose, "__name__", repr(choose))
            raise BadValue(f"{name}: unknown argument {one.name!r}; an agent function may take {', '.join(_GIVEN)}")
    return found


class _ProgramSession(AgentSession):
    def __init__(
        self, choose: Callable[..., Any], names: Sequence[tuple[str, bool]], threads: Executor, seed: int | None
    ) -> None:
        self._choose = choose
        self._names = names
        self._threads = threads
        self._seed = seed
        self._messages: list[Message] = []
        self._turn = 0

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        self._messages.append({"role": "tool" if info.get("use_tool") else "user", "content": observation})
        given = {
            "observation": text_of(observation),
            "messages": list(self._messages),
            "conversation": list(self._messages),
            "info": info,
            "seed": self._seed,
            "turn": self._turn,
        }
        args = [given[name] for name, by_place in self._names if by_place]
        more = {name: given[name] for name, by_place in self._names if not by_place}
        if inspect.iscoroutinefunction(self._choose):
            answer = await self._choose(*args, **more)
        else:
            call = partial(self._choose, *args, **more)
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, call)
            if inspect.isawaitable(answer):
                answer = await answer
        action = Action(text=answer) if isinstance(answer, str) else answer
        if not isinstance(action, Action):
            raise BadValue(f"an agent function must return a string or an Action, got {type(answer).__name__}")
        self._turn += 1
        self._messages.append({"role": "assistant", "content": action.text})
        return action
