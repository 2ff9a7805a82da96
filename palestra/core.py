"""Env, the base class of all environments, and Wrapper, the base class of wrappers around environments."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from types import BuiltinFunctionType, FunctionType, NoneType, TracebackType
from typing import Any, ClassVar, Self, TypeVar

from palestra.errors import BadValue
from palestra.keywords import check_keywords
from palestra.seeding import Rng, check_seed, child_seed, copy_rng, fresh_seed, nth_seed
from palestra.spec import UNBOUNDED, EnvSpec, fingerprint, split_of
from palestra.types import Observation, Step

__all__ = ["Env", "Wrapper"]

Reset = tuple[Observation, dict[str, Any]]
T = TypeVar("T")
MAX_SAMPLES = 5_000  # maximum number of tasks to sample until one belongs to the requested split


class Env(ABC):
    """Base class of environments, which run one episode at a time and exchange text with the agent.

    A subclass implements `reset` and `step`. `reset` must call `self.start_episode(seed)` first, and all randomness
    must come from `self.rng`. A constructor is optional and need not call `super().__init__()`. `step` returns a `Step`
    or a plain tuple of the same five values. `palestra.check_env` checks that a subclass follows these rules.
    """

    spec: EnvSpec | None = None  # set by `make`
    max_turns: int | None = None  # maximum number of turns, stated in the prompt
    reward_range: tuple[float, float] = UNBOUNDED  # reward range of a single step
    shared: ClassVar[frozenset[str]] = frozenset({"_call"})  # names of constant attributes, which forks do not copy
    inline: bool = False  # True: a step takes microseconds, so async callers run it without a thread
    expert_peeks: bool = False  # whether the expert reads hidden state, for example a recorded solution

    split: str | None = None  # "train" or "test": only tasks from this split; None: all tasks
    filters_tasks: bool = True  # False: there are too few tasks to hold any out, or `reset` respects `split` itself
    num_tasks: int | None = None  # if set, seeds 0 to num_tasks - 1 cover every task in the split exactly once
    task_id: str = ""  # fingerprint of the current episode's task, set by `sample_task`

    seed: int  # seed of the current episode
    task_seed: int  # the task's seed: the episode's seed, or a derived one if that seed's task belongs to another split
    rng: Random  # generator for all randomness in the environment
    _call: tuple[tuple[Any, ...], dict[str, Any]]  # the constructor's arguments
    _first_seed: int | None = None
    _player_rng: Random | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("palestra."):  # built-in envs return a Step, so they need no conversion
            for name in ("step", "astep"):
                if isinstance(cls.__dict__.get(name), FunctionType):
                    setattr(cls, name, _returning_step(cls.__dict__[name]))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        check_keywords(cls, kwargs)
        env = super().__new__(cls)
        env._call = (args, kwargs)
        return env

    @abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start an episode; return the prompt, and `info` with the episode's seed under "seed".

        The same seed produces the same episode. If `seed` is None, it is derived from the previous episode's seed.
        """

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take one action. Every string is accepted; after an invalid action, the observation explains the mistake."""

    def prepare(self, seed: int) -> None:
        """Announce that `reset(seed)` will be called soon, on this env or an identical one; return immediately.

        Environments with a slow reset override this to prepare the episode in the background. Rollouts call it.
        """

    def close(self) -> None:
        """Release all resources. May be called more than once."""

    def sample_random_action(self) -> str:
        """Return a random well-formed action, sampled with `player_rng`, without changing the episode."""
        raise BadValue(f"{type(self).__name__} has no random player")

    def expert_action(self) -> str | None:
        """Return the reference solver's next action, based on the observations so far; None if there is no solver."""
        return None

    def expert_code(self) -> str | None:
        """Return a Python program that prints the answer, for an expert with the Python tool; None if there is none."""
        return None

    def example_action(self) -> str:
        """Return the well-formed example action that the prompt contains."""
        raise BadValue(f"{type(self).__name__} has no example action")

    def can_read(self, action: str) -> bool:  # noqa: ARG002  # subclasses use `action`
        """Return False if `step` would reject the action as unreadable; `palestra play` then prompts again."""
        return True

    def render(self, mode: str = "text") -> str | bytes | None:  # noqa: ARG002  # subclasses use `mode`
        """Render the state as text, or as PNG bytes with mode "image"; None if the env does not support the mode."""
        return None

    def start_episode(self, seed: int | None) -> int:
        """Seed the generators for a new episode and return the seed; `reset` calls this first."""
        if seed is not None:
            if type(seed) is not int or seed < 0:
                seed = check_seed(seed)
        elif "seed" in self.__dict__:
            seed = nth_seed(self.seed, 0)
        else:
            seed = fresh_seed() if self._first_seed is None else self._first_seed
        self.seed = seed
        rng = getattr(self, "rng", None)
        if type(rng) is Rng:
            rng.restart(seed)  # faster than a new object, which would allocate the 2.5 KB state of a Mersenne Twister
        else:
            self.rng = Rng(seed)
        self._player_rng = None
        return seed

    def sample_task(self, sample: Callable[[], T], key: Callable[[T], object], *, chosen: bool = False) -> T:
        """Call `sample` until it returns a task in `self.split`; store the task's fingerprint as `self.task_id`.

        `key` returns a value that identifies the task. The hash of the key determines the split, so the tasks in
        `split="train"` and `split="test"` never overlap:

            self.word = self.sample_task(lambda: self.rng.choice(WORDS), key=str)

        A `sample` that uses a seed instead of `self.rng` reads `self.task_seed`, which differs in every call. Set
        `chosen` if the caller of `reset` selected the task, which is then accepted regardless of its split.
        """
        unfiltered = chosen or self.split is None or not self.filters_tasks
        for i in range(MAX_SAMPLES):
            self.task_seed = self.seed if i == 0 else child_seed(self.seed, "task", i)
            value = sample()
            task_id = fingerprint(key(value))
            if unfiltered or split_of(task_id) == self.split:
                self.task_id = task_id
                return value
        raise BadValue(
            f"none of {MAX_SAMPLES} tasks sampled from {self!r} is in split {self.split!r}, because its settings allow "
            "too few tasks. Remove split=, or choose settings with more tasks."
        )

    @property
    def player_rng(self) -> Random:
        """Random generator for the random player; sampling from it does not change the episode."""
        if self._player_rng is None:
            seed = self.__dict__.get("seed", 0)  # unset in an env whose `reset` does not call `start_episode`
            self._player_rng = Rng(child_seed(seed, "player"))
        return self._player_rng

    def fork(self) -> Self:
        """Return an independent copy of the environment in its current state."""
        return self._copy({})

    def _copy(self, memo: dict[int, Any]) -> Self:
        fork = object.__new__(type(self))
        memo[id(self)] = fork
        state = fork.__dict__
        shared = self.shared
        for name, value in self.__dict__.items():
            kind = type(value)
            state[name] = value if kind in _IMMUTABLE or name in shared else _deepcopy(value, kind, memo)
        return fork

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._copy(memo)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """Build another env with the same keyword arguments, updated with `kwargs`; with `same_state`, return a fork.

        For compatibility with GEM.
        """
        if not same_state:
            args, keywords = self._call
            env = type(self)(*args, **{**keywords, **kwargs})
            if self.spec is not None and not kwargs:
                env.spec = self.spec
            return env
        if kwargs:
            raise BadValue(f"spawn(same_state=True) takes no other keyword arguments, got {', '.join(kwargs)}")
        return self.fork()

    def snapshot(self) -> bytes:
        """Return the current state as bytes, which `Env.restore` accepts in any process."""
        import pickle

        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def restore(snapshot: bytes) -> Env:
        """Return an env in the snapshot's state. Snapshots are pickles, so restore only those that you trust."""
        import pickle

        env = pickle.loads(snapshot)  # noqa: S301  # the docstring warns about untrusted pickles
        if not isinstance(env, Env):
            raise BadValue(f"this is a snapshot of a {type(env).__name__}, not of an Env")
        return env

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Call `reset` without blocking the event loop."""
        if self.inline:
            return self.reset(seed=seed, options=options)
        from palestra.threads import run_in_thread

        return await run_in_thread(self.reset, seed=seed, options=options)

    async def astep(self, action: str) -> Step:
        """Call `step` without blocking the event loop."""
        if self.inline:
            return self.step(action)
        from palestra.threads import run_in_thread

        return await run_in_thread(self.step, action)

    async def aclose(self) -> None:
        """Call `close` without blocking the event loop."""
        if self.inline:
            return self.close()
        from palestra.threads import run_in_thread

        return await run_in_thread(self.close)

    @property
    def unwrapped(self) -> Env:
        """The innermost env, without wrappers."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        args, kwargs = self._call
        if self.spec is not None:
            return f"<{type(self).__name__} {self.spec.id}>"
        arguments = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the env's name and limits, and its current state if it renders text."""
        from html import escape

        rows = {"environment": repr(self), "max_turns": self.max_turns, "reward_range": self.reward_range}
        if self.spec is not None and self.spec.summary:
            rows["task"] = self.spec.summary
        if "seed" in self.unwrapped.__dict__:
            rows["seed"] = self.unwrapped.seed
        cells = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        view = self.render("text") if "seed" in rows else None
        state = f"<pre>{escape(view)}</pre>" if isinstance(view, str) else ""
        return f"<table>{cells}</table>{state}"


class Wrapper(Env):
    """Base class of wrappers: an Env that contains another Env.

    Override `before_step`, `after_reset` and `after_step`, which both sync and async calls use. Attributes that the
    wrapper does not have are looked up in the inner env.
    """

    env: Env

    def __init__(self, env: Env) -> None:
        if not isinstance(env, Env):
            raise BadValue(f"{type(self).__name__} wraps an Env, got {env!r}; build one with palestra.make(name)")
        self.env = env

    def before_step(self, action: str) -> str:
        """Return the action to pass to the inner env."""
        return action

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        """Return the result of `reset`; the arguments are what the inner env's `reset` returned."""
        return observation, info

    def after_step(self, action: str, step: Step) -> Step:  # noqa: ARG002  # subclasses use `action`
        """Return the result of `step`; `action` is the one passed to `step`, and `step` is the inner env's result."""
        return step

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*self.env.reset(seed=seed, options=options))

    def step(self, action: str) -> Step:
        return self.after_step(action, self.env.step(self.before_step(action)))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if type(self).reset is not Wrapper.reset:  # the subclass overrides only the sync method
            return await super().areset(seed, options)
        return self.after_reset(*await self.env.areset(seed=seed, options=options))

    async def astep(self, action: str) -> Step:
        if type(self).step is not Wrapper.step:
            return await super().astep(action)
        return self.after_step(action, await self.env.astep(self.before_step(action)))

    async def aclose(self) -> None:
        if type(self).close is not Wrapper.close:
            await super().aclose()
        else:
            await self.env.aclose()

    def prepare(self, seed: int) -> None:
        self.env.prepare(seed)

    def close(self) -> None:
        self.env.close()

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    def expert_action(self) -> str | None:
        return self.env.expert_action()

    def expert_code(self) -> str | None:
        return self.env.expert_code()

    def example_action(self) -> str:
        return self.env.example_action()

    def can_read(self, action: str) -> bool:
        return self.env.can_read(action)

    def render(self, mode: str = "text") -> str | bytes | None:
        return self.env.render(mode)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        if same_state:
            return super().spawn(same_state=True, **kwargs)
        args, keywords = self._call
        inner = self.env.spawn(**kwargs)
        if "env" in keywords:
            return type(self)(**{**keywords, "env": inner})
        return type(self)(inner, *args[1:], **keywords)

    @property
    def player_rng(self) -> Random:
        return self.env.player_rng

    @property
    def unwrapped(self) -> Env:
        return self.env.unwrapped

    def __getattribute__(self, name: str) -> Any:
        # Python does not call __getattr__ for class attributes of Env, so these attributes are delegated explicitly.
        if name in _DELEGATED:
            own = object.__getattribute__(self, "__dict__")
            return own[name] if name in own else getattr(own["env"], name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "env" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self.env!r}>"


_DELEGATED = frozenset(
    {"spec", "max_turns", "reward_range", "inline", "expert_peeks", "split", "filters_tasks", "num_tasks", "task_id"}
)
_IMMUTABLE = frozenset(
    {
        NoneType,
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        frozenset,
        type,
        range,
        FunctionType,
        BuiltinFunctionType,
        EnvSpec,
    }
)


def _deepcopy(value: Any, kind: type, memo: dict[int, Any]) -> Any:
    """Return `copy.deepcopy(value, memo)`, with fast paths for the most common types of attributes."""
    existing = memo.get(id(value))
    if existing is not None:
        return existing
    if kind is list:
        result: Any = value[:]
        memo[id(value)] = result
        for i, item in enumerate(value):
            inner = type(item)
            if inner not in _IMMUTABLE:
                result[i] = _deepcopy(item, inner, memo)
        return result
    if kind is dict:
        result = value.copy()
        memo[id(value)] = result
        for key, item in value.items():
            inner = type(item)
            if inner not in _IMMUTABLE:
                result[key] = _deepcopy(item, inner, memo)
        return result
    if kind is set:
        result = value.copy()  # items of a set are hashable, so they need no deep copy
        memo[id(value)] = result
        return result
    if kind is tuple and all(type(item) in _IMMUTABLE for item in value):
        return value
    if kind is Rng or kind is Random:
        result = copy_rng(value)
        memo[id(value)] = result
        return result
    return copy.deepcopy(value, memo)


def _returning_step(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `step` or `astep` so that a plain five-tuple, as in Gymnasium, is converted to a Step."""
    from functools import wraps
    from inspect import iscoroutinefunction

    if iscoroutinefunction(method):

        @wraps(method)
        async def astep(self: Env, action: str) -> Any:
            result = await method(self, action)
            return Step(*result) if type(result) is tuple and len(result) == 5 else result

        return astep

    @wraps(method)
    def step(self: Env, action: str) -> Any:
        result = method(self, action)
        return Step(*result) if type(result) is tuple and len(result) == 5 else result

    return step
