"""Build environments by name: registered ids, `module:Class`, URLs and outside names such as gymnasium:CartPole-v1.

Catalogs of built-in families are data and are loaded when one of their ids is first looked up.
docs/environment-names.md describes the forms of a name.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, TextIO

from palestra import plugins
from palestra.core import Env
from palestra.errors import AlreadyRegistered, BadEnvId, BadValue, MissingExtra, UnknownEnv, UsageError
from palestra.seeding import check_seed
from palestra.spec import UNBOUNDED, EnvId, EnvSpec

__all__ = [
    "CATALOGS",
    "EnvFactory",
    "get_registered_spec",
    "get_spec",
    "list_envs",
    "make",
    "preload",
    "print_envs",
    "register",
    "register_spec",
    "unregister",
]

CATALOGS: Mapping[str, str] = {  # family -> module with SPECS (data only)
    "game": "palestra.envs.games.catalog",
    "math": "palestra.envs.math.catalog",
    "code": "palestra.envs.code.catalog",
    "qa": "palestra.envs.qa.catalog",
    "logic": "palestra.envs.logic.catalog",
    "rg": "palestra.envs.rg.catalog",
    "eval": "palestra.envs.eval_sets.catalog",
    "babyai": "palestra.envs.babyai.catalog",
    "textcraft": "palestra.envs.textcraft.catalog",
    "webshop": "palestra.envs.webshop.catalog",
    "sciworld": "palestra.envs.sciworld.catalog",
    "sql": "palestra.envs.sql.catalog",
    "search": "palestra.envs.deep_search.catalog",
}
EXTERNAL: Mapping[str, str] = {  # family of another library's names -> what builds one: called with env=NAME
    "gymnasium": "palestra.envs.external.gymnasium:FromGymnasium",
}
RESERVED = frozenset({"verifiers", "textarena"})  # names of these libraries have a place in the grammar, no adapter yet

_specs: dict[str, EnvSpec] = {}
_makers: dict[str, Callable[..., Env]] = {}  # id -> registered callable, or the imported entry point
_builtin: dict[str, EnvSpec] = {}  # specs of the catalogs, which every process has
_loaded: set[str] = set()  # families whose catalog has been loaded
_loaded_plugins: set[str] = set()  # names of entry points


def register(
    env_id: str,
    entry_point: str | Callable[..., Env],
    /,
    *,
    summary: str = "",
    reward_range: tuple[float, float] | None = None,
    expert_success: float | None = None,
    random_success: float | None = None,
    seeded: bool = True,
    extra: str | None = None,
    needs_data: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    **more_kwargs: Any,
) -> None:
    """Register an environment under `env_id`.

    `entry_point` is "module:Class", a class, or a function that returns an Env. `kwargs` and further keywords are
    passed to it by `make`. The other arguments are the fields of `EnvSpec`; without a `reward_range`, that of the class
    counts. Registering the same spec again, as a module does that is imported twice, replaces the first.
    """
    if reward_range is None:
        reward_range = getattr(entry_point, "reward_range", UNBOUNDED) if isinstance(entry_point, type) else UNBOUNDED
    if not summary and isinstance(entry_point, type):
        summary = (entry_point.__dict__.get("__doc__") or "").strip().partition("\n")[0]
    spec = EnvSpec(
        id=env_id,
        entry_point=_name_of(entry_point),
        kwargs={**(kwargs or {}), **more_kwargs},
        summary=summary,
        reward_range=reward_range,
        expert_success=expert_success,
        random_success=random_success,
        seeded=seeded,
        extra=extra,
        needs_data=needs_data,
    )
    _add(spec, entry_point)


def register_spec(spec: EnvSpec) -> None:
    """Register an environment that a whole spec describes."""
    _add(spec, spec.entry_point)


def unregister(env_id: str) -> None:
    """Remove a registered id; raise UnknownEnv if there is none."""
    get_registered_spec(env_id)
    del _specs[env_id]
    _makers.pop(env_id, None)


def _add(spec: EnvSpec, entry_point: str | Callable[..., Env]) -> None:
    family = EnvId.parse(spec.id).family
    if family in EXTERNAL or family in RESERVED:
        raise BadValue(f"the family {family!r} is reserved for names of that library; choose another for {spec.id}")
    _load_catalog(family)
    taken = _specs.get(spec.id)
    if taken is not None and taken != spec:
        raise AlreadyRegistered(
            f"{spec.id} is already registered, with the entry point {taken.entry_point}. "
            f"Choose another id or version, or call palestra.unregister({spec.id!r}) first."
        )
    if isinstance(entry_point, str):
        module, colon, name = entry_point.partition(":")
        if not (module and colon and name):
            raise BadValue(f"an entry point has the form 'package.module:Class', got {entry_point!r}")
        _makers.pop(spec.id, None)
    elif callable(entry_point):
        _makers[spec.id] = entry_point
    else:
        raise BadValue(f"an entry point is 'package.module:Class' or a callable, got {entry_point!r}")
    _specs[spec.id] = spec


def _name_of(entry_point: object) -> str:
    if isinstance(entry_point, str):
        return entry_point
    module = getattr(entry_point, "__module__", "?")
    if module == "__mp_main__":  # the main script, imported again by a process of multiprocessing
        module = "__main__"
    return f"{module}:{getattr(entry_point, '__qualname__', repr(entry_point))}"


def _load_catalog(family: str) -> None:
    if family in _loaded or family not in CATALOGS:
        return
    _loaded.add(family)
    for spec in importlib.import_module(CATALOGS[family]).SPECS:
        _specs[spec.id] = _builtin[spec.id] = spec


def _load_plugins(family: str | None = None) -> None:
    """Load the plug-in named like `family`, or all plug-ins of the group `palestra.envs`."""
    for name in plugins.available("envs"):
        if family not in (None, name) or name in _loaded_plugins:
            continue
        _loaded_plugins.add(name)
        try:
            loaded = plugins.load("envs", name)
        except UsageError as err:
            if family is not None:
                raise
            warnings.warn(str(err), RuntimeWarning, stacklevel=3)  # the other environments still work
        else:
            _register_plugin(loaded)


def _register_plugin(loaded: Any) -> None:
    """Register what an entry point holds: a module that registers as it is imported, a function, specs, or one spec."""
    specs = getattr(loaded, "SPECS", loaded)
    if isinstance(specs, EnvSpec):
        register_spec(specs)
    elif isinstance(specs, (list, tuple)):
        for spec in specs:
            register_spec(spec)
    elif callable(loaded) and not isinstance(loaded, type):
        loaded()


def get_spec(name: str) -> EnvSpec:
    """Return the spec of an environment by any form of name: an id, `module:Class`, a URL, or an outside name.

    A module that the name mentions is imported. Use `get_registered_spec` for names from untrusted files or clients.
    """
    spec = _specs.get(name)
    if spec is not None:
        return spec
    if "://" in name:
        return _url_spec(name)
    family, colon, rest = name.partition(":")
    if colon and family in EXTERNAL:
        return EnvSpec(
            id=name,
            entry_point=EXTERNAL[family],
            kwargs={"env": rest},
            summary=f"{rest} of {family}",
            extra=family,
        )
    if colon and family in RESERVED:
        supported = ", ".join(f"{family}:" for family in EXTERNAL)
        raise UnknownEnv(f"{name!r}: environments of {family} are not supported yet. Supported libraries: {supported}")
    if _is_module_class(name):
        return _class_spec(name)
    return get_registered_spec(name)


def get_registered_spec(env_id: str) -> EnvSpec:
    """Return the spec of a registered id, of Palestra or of an installed plug-in; other names raise UnknownEnv."""
    if env_id not in _specs:
        family = _family_of(env_id)
        _load_catalog(family)
        if env_id not in _specs:
            _load_plugins(family)
        if env_id not in _specs:
            _load_plugins()
    if env_id not in _specs:
        from difflib import get_close_matches

        ids = list_envs()
        lower = {name.lower(): name for name in ids}
        candidates = [lower[match] for match in get_close_matches(env_id.lower(), lower, n=3)]
        hint = f" Did you mean {', '.join(candidates)}?" if candidates else ""
        raise UnknownEnv(
            f"no environment {env_id!r}.{hint} `palestra envs` lists all ids; an environment of your own is named "
            "module:Class, or by its id together with --import MODULE."
        )
    return _specs[env_id]


def _family_of(env_id: str) -> str:
    try:
        return EnvId.parse(env_id).family
    except BadEnvId:
        raise BadEnvId(
            f"{env_id!r} does not name an environment. Names are ids, family:Name-vN[-variant] (game:Sudoku-v0-easy), "
            "module:Class of your own, gymnasium:NAME, or the URL of one on a server: http://HOST:PORT/ID."
        ) from None


def _is_module_class(name: str) -> bool:
    """Tell `my_package.envs:Echo` from an id: ids of known families and names with a version are ids."""
    module, colon, path = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        return False
    if module in CATALOGS or any(env_id.startswith(f"{module}:") for env_id in _specs):
        return False
    return module not in plugins.available("envs")


def _class_spec(name: str) -> EnvSpec:
    module, _, path = name.partition(":")
    try:
        target = plugins.import_object(name)
    except BadValue as err:
        if "." in module or "." in path:
            raise UnknownEnv(f"{name!r} cannot be used as module:Class: {err}") from err
        raise UnknownEnv(
            f"no environment {name!r}: {module!r} is neither a family of environments nor a module with {path!r} in it "
            f"({err}) `palestra envs` lists all ids."
        ) from err
    if name in _specs:  # the module registered itself under that very name
        return _specs[name]
    if isinstance(target, type) and not issubclass(target, Env):
        raise BadValue(f"{name} is a class, but not a subclass of palestra.Env")
    if not callable(target):
        raise BadValue(f"{name} is neither a subclass of palestra.Env nor a function that returns one")
    summary = (target.__doc__ or "").strip().partition("\n")[0]
    reward_range = getattr(target, "reward_range", UNBOUNDED) if isinstance(target, type) else UNBOUNDED
    return EnvSpec(id=name, entry_point=name, summary=summary, reward_range=reward_range)


def _url_spec(url: str) -> EnvSpec:
    return EnvSpec(id=url, entry_point="palestra.remote.make:make_remote", summary="an environment on a server")


def list_envs(family: str | None = None) -> list[str]:
    """Return all ids, or those of one family, in the order of the catalogs; ids of plug-ins follow."""
    if family is None or family not in CATALOGS:
        _load_plugins(family)
        _load_plugins()
    if family is not None and family not in CATALOGS and not any(i.startswith(f"{family}:") for i in _specs):
        families = sorted({*CATALOGS, *(EnvId.parse(i).family for i in _specs)})
        raise UnknownEnv(f"no family {family!r}. The families are {', '.join(families)}.")
    for name in CATALOGS if family is None else [family]:
        _load_catalog(name)
    order = {name: place for place, name in enumerate(CATALOGS)}
    ids = [env_id for env_id in _specs if family is None or env_id.startswith(f"{family}:")]
    return sorted(ids, key=lambda env_id: order.get(env_id.partition(":")[0], len(order)))  # stable: as registered


def print_envs(file: TextIO | None = None) -> None:
    """Print one line per id: its entry point and the keywords it is built with."""
    for env_id in list_envs():
        spec = _specs[env_id]
        kwargs = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        print(f"{env_id}  {spec.entry_point}({kwargs})", file=file)


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
    """Build the environment `name`; `kwargs` override its registered keywords.

    Args:
        name: an id, `module:Class`, the URL of an environment on a server, or an outside name (gymnasium:CartPole-v1).
        seed: seed of the first `reset` that is called without one.
        tools: names, tools or functions that the agent may call; `palestra.wrappers.Tools` has more settings.
        max_tool_calls: maximum number of tool calls per episode.
        wrappers: names ("Horizon(turns=5)", GEM's "concat", "module:callable"), (name, keywords) pairs, or callables
            that take an env and return one; the first is the innermost.
    """
    spec = get_spec(name)
    maker = _maker(spec)
    if "://" in name:
        url, _, query = name.partition("?")
        env = maker(url, **{**_query_kwargs(query), **kwargs})
    else:
        env = maker(**{**spec.kwargs, **kwargs})
        if not isinstance(env, Env):
            raise BadValue(f"{spec.entry_point} returned a {type(env).__name__}, not a palestra.Env")
        env.spec = spec
    if seed is not None:
        env._first_seed = check_seed(seed)
    return _wrap(env, tools, max_tool_calls, wrappers)


def _query_kwargs(query: str) -> dict[str, Any]:
    """Return the keywords in the query of a URL, `max_turns=5&mode=fast`; values are JSON if possible, else text."""
    import json
    from urllib.parse import parse_qsl

    kwargs: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            kwargs[name] = json.loads(text)
        except json.JSONDecodeError:
            kwargs[name] = text
    return kwargs


def _wrap(env: Env, tools: Iterable[Any], max_tool_calls: int | None, wrappers: str | Iterable[Any]) -> Env:
    if tools:
        from palestra.wrappers.tools import Tools

        names = [tools] if isinstance(tools, str) else tools
        env = Tools(env, [_tool(item) for item in names], max_calls=max_tool_calls)
    elif max_tool_calls is not None:
        raise BadValue('max_tool_calls needs tools: make(name, tools=["python"], max_tool_calls=5)')
    if wrappers:
        from palestra.wrappers.factory import resolve_wrappers

        plugins.add_working_directory()  # for `module:callable`
        for wrap in resolve_wrappers(wrappers):
            env = wrap(env)
    return env


def _tool(item: Any) -> Any:
    """Replace `module:callable` by the tool or function it names; names of registered tools stay names."""
    if not isinstance(item, str) or ":" not in item:
        return item
    from palestra.tools.registry import tool_names

    module, _, path = item.partition(":")
    is_module = all(part.isidentifier() for part in (*module.split("."), *path.split(".")))
    return plugins.import_object(item) if is_module and module not in tool_names() else item


def _maker(spec: EnvSpec) -> Callable[..., Env]:
    maker: Callable[..., Env] | None = _makers.get(spec.id)
    if maker is None:
        module_name, _, path = spec.entry_point.partition(":")
        try:
            target: Any = importlib.import_module(module_name)
            for part in path.split("."):
                target = getattr(target, part)
        except MissingExtra:
            raise
        except ModuleNotFoundError as err:
            if spec.extra is not None and not (err.name or "").startswith("palestra"):
                raise MissingExtra(
                    f"{spec.id} needs {err.name}, which is not installed. "
                    f"Install it with: pip install 'palestra[{spec.extra}]'"
                ) from err
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        except AttributeError as err:
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        maker = target
        if spec.id in _specs:
            _makers[spec.id] = target
    return maker


def preload(env_id: str) -> None:
    """Import the module of an environment ahead of its first use."""
    _maker(get_spec(env_id))


@dataclass(frozen=True, slots=True, eq=False)
class EnvFactory:
    """Picklable description of one environment: call it to build the environment, in this process or in another.

    The fields are the arguments of `make`. With `builder`, a callable that takes `kwargs` and returns an Env, `name` is
    only a label. A pickled factory carries the spec of an id that was registered in this process and the names of the
    modules loaded with `--import`, so that a worker process can build the same environment. Factories that build the
    same environment are equal and have the same `key`.
    """

    name: str
    _: KW_ONLY
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Any] = ()
    max_tool_calls: int | None = None
    wrappers: Sequence[Any] = ()  # what `wrappers.resolve_wrappers` accepts; the first is the innermost
    builder: Callable[..., Env] | None = None

    def __post_init__(self) -> None:
        kwargs = dict(self.kwargs)
        for name in ("tools", "wrappers"):  # keywords of `make` may come with those of the environment
            inner = _as_tuple(kwargs.pop(name, ())) if self.builder is None else ()
            object.__setattr__(self, name, (*inner, *_as_tuple(getattr(self, name))))
        if self.builder is None and "max_tool_calls" in kwargs:
            object.__setattr__(self, "max_tool_calls", kwargs.pop("max_tool_calls"))
        object.__setattr__(self, "kwargs", kwargs)
        if self.max_tool_calls is not None and not self.tools:
            raise BadValue('max_tool_calls needs tools: EnvFactory(name, tools=["python"], max_tool_calls=5)')

    @classmethod
    def of(cls, source: str | EnvFactory | Callable[..., Env], **options: Any) -> EnvFactory:
        """Return a factory for a name, for an Env class or a function that builds one, or for a factory.

        A name is looked up at once, so that a mistake is reported here and not in a worker. `options` are the fields;
        where `source` is a factory, `kwargs` add to its keywords, `wrappers` go around its wrappers, and other options
        replace its fields.
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
        """The spec that `name` stands for; None for a URL and for a `builder`."""
        return None if self.builder is not None or "://" in self.name else get_spec(self.name)

    @property
    def key(self) -> str:
        """A string that is equal for factories that build the same environment, within one process."""
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
    return EnvFactory(**state)


def _as_tuple(items: str | Iterable[Any]) -> tuple[Any, ...]:
    return (items,) if isinstance(items, str) else tuple(items)


def _identity(value: Any) -> str:
    """Describe a tool, wrapper or builder so that equal descriptions mean the same object or name."""
    if isinstance(value, (str, tuple, list, Mapping)):
        return repr(value)
    return f"{getattr(value, '__qualname__', type(value).__qualname__)}@{id(value):x}"
