"""Build environments by name with `make`, or repeatedly and in any process with EnvFactory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from palestra import plugins
from palestra.core import Env
from palestra.errors import BadValue, UnknownEnv
from palestra.registry.specs import (
    _add,
    _builtin,
    _maker,
    _received,
    _specs,
    get_registered_spec,
    get_spec,
    split_query,
)
from palestra.seeding import check_seed
from palestra.spec import EnvSpec


def make(
    name: str,
    /,
    *,
    seed: int | None = None,
    tools: Iterable[Any] = (),
    max_tool_calls: int | None = None,
    wrappers: str | Iterable[Any] = (),
    **kwargs: Any,
) -> Env:
    """Build the environment `name`; `kwargs` override its registered keyword arguments.

    Args:
        name: an id, `module:Class`, the URL of an environment on a server, or the name of an environment from another
            library (gymnasium:CartPole-v1).
        seed: seed that the first `reset` without a seed uses.
        tools: names, tools or functions that the agent may call; `palestra.wrappers.Tools` has more settings.
        max_tool_calls: maximum number of tool calls per episode.
        wrappers: names ("Horizon(turns=5)", GEM's "concat", "module:callable"), (name, keyword arguments) pairs, or
            callables that take an env and return one; the first is the innermost.
    """
    spec = get_spec(name)
    maker = _maker(spec)
    if "://" in name:
        url, query = split_query(name)
        env = maker(url, **{**query, **kwargs})
    else:
        env = maker(**{**spec.kwargs, **kwargs})
        if not isinstance(env, Env):
            raise BadValue(f"{spec.entry_point} returned a {type(env).__name__}, not a palestra.Env")
        env.spec = spec
    if seed is not None:
        env._first_seed = check_seed(seed)
    return _wrap(env, tools, max_tool_calls, wrappers)


def _wrap(env: Env, tools: Iterable[Any], max_tool_calls: int | None, wrappers: str | Iterable[Any]) -> Env:
    if tools:
        from palestra.wrappers.tools import Tools

        names = [tools] if isinstance(tools, str) else tools
        env = Tools(env, [_tool(item) for item in names], max_calls=max_tool_calls)
    elif max_tool_calls is not None:
        raise BadValue('max_tool_calls needs tools: make(name, tools=["python"], max_tool_calls=5)')
    if wrappers:
        from palestra.wrappers.factory import resolve_wrappers

        plugins.add_working_directory()  # `module:callable` may refer to a module in the working directory
        for wrap in resolve_wrappers(wrappers):
            env = wrap(env)
    return env


def _tool(item: Any) -> Any:
    """Import the tool or function that `module:callable` names; return names of registered tools unchanged."""
    if not isinstance(item, str) or ":" not in item:
        return item
    from palestra.tools.registry import tool_names

    module, _, path = item.partition(":")
    is_module = all(part.isidentifier() for part in (*module.split("."), *path.split(".")))
    return plugins.import_object(item) if is_module and module not in tool_names() else item


def preload(env_id: str) -> None:
    """Import an environment's module before its first use."""
    _maker(get_spec(env_id))


@dataclass(frozen=True, slots=True, eq=False)
class EnvFactory:
    """Picklable description of an environment; calling it builds the environment, in this or another process.

    The fields are the arguments of `make`. `builder` is an optional callable that takes `kwargs` and returns an Env; if
    it is set, `name` is only a label. A pickled factory also contains the names of the modules loaded with `--import`
    and the spec of an id registered in this process, so that a worker process can build the same environment.
    Factories that build the same environment are equal and have the same `key`.
    """

    name: str
    _: KW_ONLY
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Any] = ()
    max_tool_calls: int | None = None
    # Descriptions accepted by `wrappers.resolve_wrappers`; the first wrapper is the innermost.
    wrappers: Sequence[Any] = ()
    builder: Callable[..., Env] | None = None

    def __post_init__(self) -> None:
        kwargs = dict(self.kwargs)
        for name in ("tools", "wrappers"):  # `kwargs` may contain arguments of `make`
            inner = _as_tuple(kwargs.pop(name, ())) if self.builder is None else ()
            object.__setattr__(self, name, (*inner, *_as_tuple(getattr(self, name))))
        if self.builder is None and "max_tool_calls" in kwargs:
            object.__setattr__(self, "max_tool_calls", kwargs.pop("max_tool_calls"))
        object.__setattr__(self, "kwargs", kwargs)
        if self.max_tool_calls is not None and not self.tools:
            raise BadValue('max_tool_calls needs tools: EnvFactory(name, tools=["python"], max_tool_calls=5)')

    @classmethod
    def of(cls, source: str | EnvFactory | Callable[..., Env], **options: Any) -> EnvFactory:
        """Create a factory from a name, an Env class, a function that builds an Env, or another factory.

        A name is looked up immediately, so that an unknown name is reported here and not in a worker. `options` set the
        fields. If `source` is a factory, `kwargs` are merged into its keyword arguments, `wrappers` are applied outside
        its wrappers, and other options replace its fields.
        """
        if isinstance(source, EnvFactory):
            own = {item.name: getattr(source, item.name) for item in fields(source)}
            options["kwargs"] = {**source.kwargs, **options.get("kwargs", {})}
            options["wrappers"] = (*source.wrappers, *_as_tuple(options.get("wrappers", ())))
            return cls(**{**own, **options})
        if isinstance(source, str):
            get_spec(source)
            return cls(source, **options)
        if not callable(source):
            raise BadValue(f"expected the name of an environment, or a callable that builds one; got {source!r}")
        return cls(getattr(source, "__name__", repr(source)), builder=source, **options)

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environment `name`; None for a URL or if `builder` is set."""
        return None if self.builder is not None or "://" in self.name else get_spec(self.name)

    @property
    def key(self) -> str:
        """A string that is equal for all factories in this process that build the same environment."""
        parts = [self.name] if self.builder is None else [_identity(self.builder)]
        parts += [f"{name}={value!r}" for name, value in sorted(self.kwargs.items())]
        parts += [f"tool {_identity(item)}" for item in self.tools]
        parts += [f"max_tool_calls={self.max_tool_calls}"] * (self.max_tool_calls is not None)
        parts += [f"wrapper {_identity(item)}" for item in self.wrappers]
        return " ".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvFactory) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self) -> Env:
        """Build the environment."""
        if self.builder is None:
            return make(
                self.name,
                tools=self.tools,
                max_tool_calls=self.max_tool_calls,
                wrappers=self.wrappers,
                **self.kwargs,
            )
        env = self.builder(**self.kwargs)
        if not isinstance(env, Env):
            raise BadValue(f"{self.name} returned a {type(env).__name__}, not a palestra.Env")
        return _wrap(env, self.tools, self.max_tool_calls, self.wrappers)

    def __reduce__(self) -> tuple[Any, ...]:
        spec = _specs.get(self.name) if self.builder is None else None
        entry_point: str | Callable[..., Env] | None = None
        if spec is not None and _builtin.get(spec.id) is not spec:
            module, _, path = spec.entry_point.partition(":")
            importable = module != "__main__" and "<" not in path
            entry_point = spec.entry_point if importable else _maker(spec)  # local objects are pickled by value
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return _unpickle_factory, (state, spec, entry_point, plugins.imported_modules())


def _unpickle_factory(
    state: dict[str, Any],
    spec: EnvSpec | None,
    entry_point: str | Callable[..., Env] | None,
    modules: tuple[str, ...],
) -> EnvFactory:
    plugins.import_modules(modules)
    if spec is not None and entry_point is not None:
        try:
            get_registered_spec(spec.id)
        except UnknownEnv:
            _add(spec, entry_point)
            _received.add(spec.id)
    return EnvFactory(**state)


def _as_tuple(items: str | Iterable[Any]) -> tuple[Any, ...]:
    return (items,) if isinstance(items, str) else tuple(items)


def _identity(value: Any) -> str:
    """Return a string that identifies a tool, wrapper or builder."""
    if isinstance(value, (str, tuple, list, Mapping)):
        return repr(value)
    return f"{getattr(value, '__qualname__', type(value).__qualname__)}@{id(value):x}"
