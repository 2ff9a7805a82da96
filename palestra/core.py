"""Env, the contract every environment keeps, and Wrapper, which changes one and delegates the rest."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from types import BuiltinFunctionType, FunctionType, NoneType, TracebackType
from typing import Any, ClassVar, Self

from palestra.errors import BadValue, UnknownKeyword
from palestra.seeding import Rng, check_seed, child_seed, copy_rng, fresh_seed, nth_seed
from palestra.spec import EnvSpec
from palestra.types import Observation, Step

__all__ = ["Env", "Wrapper"]

Reset = tuple[Observation, dict[str, Any]]


class Env(ABC):
    """An agent's world, one episode at a time, text in and out.

    A subclass writes `reset` and `step`; `reset` begins with `self.start_episode(seed)`, and all chance comes from
    `self.rng`. Its constructor takes named keywords. `palestra.check_env` proves that it keeps the laws.
    """

    spec: EnvSpec | None = None  # set by `make`
    max_turns: int | None = None  # the task's own budget, told in the prompt
    reward_range: tuple[float, float] = (float("-inf"), float("inf"))  # of a single step
    shared: ClassVar[frozenset[str]] = frozenset({"_call"})  # attributes that never change, so forks need no copy
    inline: bool = False  # True: a step takes microseconds, so async callers need no thread
    expert_peeks: bool = False  # True: the reference solver knows what is hidden, as a recorded solution does

    seed: int  # of the running episode
    rng: Random  # the world's chance
    _call: tuple[tuple[Any, ...], dict[str, Any]]  # what the constructor was given
    _first_seed: int | None = None
    _player_rng: Random | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("palestra."):  # ours return a Step, and are called millions of times
            for name in ("step", "astep"):
                if isinstance(cls.__dict__.get(name), FunctionType):
                    setattr(cls, name, _returning_step(cls.__dict__[name]))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        known = _keywords(cls)
        if known is not None and not known.issuperset(kwargs):
            _refuse_keywords(cls, kwargs, known)
        env = super().__new__(cls)
        env._call = (args, kwargs)
        return env

    @abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Begin an episode: the prompt, and `info` with the seed that repeats it.

        The same seed gives the same episode. Without one, the episode follows from the last one's seed.
        """

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take one action. Any string is allowed; a bad one gets a helpful observation and the documented penalty."""

    def prepare(self, seed: int) -> None:
        """A hint that `reset(seed)` will be called soon, here or in an env made alike; nothing waits for it.

        Where a start takes long, it is begun in the background. Rollouts give it for the episodes they know of.
        """

    def close(self) -> None:
        """Give back what the environment holds. May be called twice."""

    def sample_random_action(self) -> str:
        """A well-formed action from the random player; drawing it does not change the episode."""
        raise BadValue(f"{type(self).__name__} has no random player")

    def expert_action(self) -> str | None:
        """The reference solver's next action, from what the player may know; None where there is no solver."""
        return None

    def example_action(self) -> str:
        """The well-formed action that the prompt shows."""
        raise BadValue(f"{type(self).__name__} shows no example action")

    def render(self, mode: str = "text") -> str | bytes | None:  # noqa: ARG002  # overriders need it
        """The state as people look at it: "text", or "image" as PNG bytes; None where there is no such view."""
        return None

    def start_episode(self, seed: int | None) -> int:
        """Seed this episode's generators; `reset` calls it first and returns the seed as info["seed"]."""
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
            rng.begin(seed)  # the object is 2.5 KB, most of them for the twister: made once where that is not needed
        else:
            self.rng = Rng(seed)
        self._player_rng = None
        return seed

    @property
    def player_rng(self) -> Random:
        """Chance for the random player, apart from the world's."""
        if self._player_rng is None:
            seed = self.__dict__.get("seed", 0)  # unset in an env whose `reset` does not call `start_episode`
            self._player_rng = Rng(child_seed(seed, "player"))
        return self._player_rng

    def fork(self) -> Self:
        """An independent copy, in mid-episode."""
        return self._copy({})

    def _copy(self, memo: dict[int, Any]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        state = twin.__dict__
        shared = self.shared
        for name, value in self.__dict__.items():
            kind = type(value)
            state[name] = value if kind in _ATOMS or name in shared else _copied(value, kind, memo)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._copy(memo)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """GEM's name for it: a new env made alike, `kwargs` changed; with `same_state`, a fork."""
        if not same_state:
            args, given = self._call
            twin = type(self)(*args, **{**given, **kwargs})
            if self.spec is not None and not kwargs:
                twin.spec = self.spec
            return twin
        if kwargs:
            raise BadValue(f"a fork keeps its keywords; leave out {', '.join(kwargs)} or same_state=True")
        return self.fork()

    def snapshot(self) -> bytes:
        """The whole episode as bytes: `Env.restore` goes on from them, in any process."""
        import pickle

        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def restore(snapshot: bytes) -> Env:
        """The env a snapshot was taken of. Snapshots are pickles: restore only your own."""
        import pickle

        env = pickle.loads(snapshot)  # noqa: S301  # the docstring says whose
        if not isinstance(env, Env):
            raise BadValue(f"that is no snapshot of an Env but of a {type(env).__name__}")
        return env

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """`reset`, without blocking the event loop."""
        if self.inline:
            return self.reset(seed=seed, options=options)
        from asyncio import to_thread

        return await to_thread(self.reset, seed=seed, options=options)

    async def astep(self, action: str) -> Step:
        """`step`, without blocking the event loop."""
        if self.inline:
            return self.step(action)
        from asyncio import to_thread

        return await to_thread(self.step, action)

    async def aclose(self) -> None:
        """`close`, without blocking the event loop."""
        if self.inline:
            return self.close()
        from asyncio import to_thread

        return await to_thread(self.close)

    @property
    def unwrapped(self) -> Env:
        """The env inside all wrappers."""
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
        shown = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        return f"{type(self).__name__}({', '.join(shown)})"


class Wrapper(Env):
    """An Env around another: override `before_step`, `after_reset`, `after_step`, which serve sync and async alike.

    Every attribute the wrapper does not have is the inner env's, looked up when asked for.
    """

    env: Env

    def __init__(self, env: Env) -> None:
        if not isinstance(env, Env):
            raise BadValue(f"{type(self).__name__} wraps an Env, got {env!r}; make one with palestra.make(id)")
        self.env = env

    def before_step(self, action: str) -> str:
        """The action the inner env is given."""
        return action

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        return observation, info

    def after_step(self, action: str, step: Step) -> Step:  # noqa: ARG002  # overriders need it
        return step

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*self.env.reset(seed=seed, options=options))

    def step(self, action: str) -> Step:
        return self.after_step(action, self.env.step(self.before_step(action)))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if type(self).reset is not Wrapper.reset:  # a subclass wrote the sync method: it is the truth
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

    def example_action(self) -> str:
        return self.env.example_action()

    def render(self, mode: str = "text") -> str | bytes | None:
        return self.env.render(mode)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        if same_state:
            return super().spawn(same_state=True, **kwargs)
        args, given = self._call
        inner = self.env.spawn(**kwargs)
        if "env" in given:
            return type(self)(**{**given, "env": inner})
        return type(self)(inner, *args[1:], **given)

    @property
    def player_rng(self) -> Random:
        return self.env.player_rng

    @property
    def unwrapped(self) -> Env:
        return self.env.unwrapped

    def __getattribute__(self, name: str) -> Any:
        # What Env defines as a default must come from the inner env too, or it would be a copy of the class's value.
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


_DELEGATED = frozenset({"spec", "max_turns", "reward_range", "inline", "expert_peeks"})
_ATOMS = frozenset(
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
_KEYWORDS: dict[type, frozenset[str] | None] = {}


def _copied(value: Any, kind: type, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy` with the same memo, fast for what environments are made of."""
    done = memo.get(id(value))
    if done is not None:
        return done
    if kind is list:
        twin: Any = value[:]
        memo[id(value)] = twin
        for i, item in enumerate(value):
            inner = type(item)
            if inner not in _ATOMS:
                twin[i] = _copied(item, inner, memo)
        return twin
    if kind is dict:
        twin = value.copy()
        memo[id(value)] = twin
        for key, item in value.items():
            inner = type(item)
            if inner not in _ATOMS:
                twin[key] = _copied(item, inner, memo)
        return twin
    if kind is set:
        twin = value.copy()  # members are hashable, so they are values
        memo[id(value)] = twin
        return twin
    if kind is tuple and all(type(item) in _ATOMS for item in value):
        return value
    if kind is Rng or kind is Random:
        twin = copy_rng(value)
        memo[id(value)] = twin
        return twin
    return copy.deepcopy(value, memo)


def _returning_step(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `step` or `astep` so that a plain five-tuple, as Gymnasium's environments return, becomes a Step."""
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


def _keywords(cls: type) -> frozenset[str] | None:
    """The keywords the constructor takes, through every `**kwargs` up the line; None where that cannot be told."""
    if cls in _KEYWORDS:
        return _KEYWORDS[cls]
    known: frozenset[str] | None = None
    names: set[str] = set()
    line = [base for base in cls.__mro__ if "__init__" in base.__dict__]
    for base in line:
        init = base.__dict__["__init__"]
        if base is object:
            known = frozenset() if base is line[0] else None  # None: **kwargs up to the top, anything goes
            break
        if not isinstance(init, FunctionType):
            break
        code = init.__code__
        names.update(code.co_varnames[max(1, code.co_posonlyargcount) : code.co_argcount + code.co_kwonlyargcount])
        if not code.co_flags & 0x08:  # no **kwargs: the line ends here
            known = frozenset(names)
            break
    _KEYWORDS[cls] = known
    return known


def _refuse_keywords(cls: type, given: dict[str, Any], known: frozenset[str]) -> None:
    from difflib import get_close_matches

    wrong = sorted(set(given) - known)
    near = [match for name in wrong for match in get_close_matches(name, known, n=1)]
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    takes = f" It takes: {', '.join(sorted(known))}." if known else " It takes no keywords."
    raise UnknownKeyword(f"{cls.__name__} does not take {', '.join(wrong)}.{hint}{takes}")
