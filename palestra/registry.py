"""Environments by id: register, find, make. Families are found by name and loaded when first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from palestra.core import Env
from palestra.errors import AlreadyRegistered, BadValue, MissingExtra, UnknownEnv
from palestra.seeding import check_seed
from palestra.spec import EnvId, EnvSpec

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

_specs: dict[str, EnvSpec] = {}
_makers: dict[str, Callable[..., Env]] = {}  # registered with a callable, or imported before
_loaded: set[str] = set()


def register(env_id: str, entry_point: str | Callable[..., Env], /, **kwargs: Any) -> None:
    """Make `env_id` known: `entry_point` is "module:Class" or a callable, `kwargs` what it is called with."""
    _add(EnvSpec(id=env_id, entry_point=_name_of(entry_point), kwargs=kwargs), entry_point)


def register_spec(spec: EnvSpec) -> None:
    """Make a whole spec known, with its stated rates and ranges."""
    _add(spec, spec.entry_point)


def unregister(env_id: str) -> None:
    """Forget an id; unknown ones are an error."""
    get_spec(env_id)
    del _specs[env_id]
    _makers.pop(env_id, None)


def _add(spec: EnvSpec, entry_point: str | Callable[..., Env]) -> None:
    family = EnvId.parse(spec.id).family
    _load(family)
    if spec.id in _specs:
        raise AlreadyRegistered(f"{spec.id} is taken by {_specs[spec.id].entry_point}. Choose another id or version.")
    if isinstance(entry_point, str):
        module, colon, name = entry_point.partition(":")
        if not (module and colon and name):
            raise BadValue(f"an entry point reads 'package.module:Class', got {entry_point!r}")
    elif callable(entry_point):
        _makers[spec.id] = entry_point
    else:
        raise BadValue(f"an entry point is 'package.module:Class' or a callable, got {entry_point!r}")
    _specs[spec.id] = spec


def _name_of(entry_point: object) -> str:
    if isinstance(entry_point, str):
        return entry_point
    return f"{getattr(entry_point, '__module__', '?')}:{getattr(entry_point, '__qualname__', repr(entry_point))}"


def _load(family: str) -> None:
    if family in _loaded or family not in CATALOGS:
        return
    _loaded.add(family)
    for spec in importlib.import_module(CATALOGS[family]).SPECS:
        _specs[spec.id] = spec


def get_spec(env_id: str) -> EnvSpec:
    """What is known of `env_id`."""
    spec = _specs.get(env_id)
    if spec is not None:
        return spec
    _load(EnvId.parse(env_id).family)
    if env_id not in _specs:
        from difflib import get_close_matches

        known = list_envs()
        lower = {name.lower(): name for name in known}
        near = [lower[match] for match in get_close_matches(env_id.lower(), lower, n=3)]
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownEnv(f"no environment {env_id!r}.{hint} `palestra envs` lists all.")
    return _specs[env_id]


def list_envs(family: str | None = None) -> list[str]:
    """Every id, or those of one family, in the order of the catalogs."""
    if family is not None and family not in CATALOGS and not any(i.startswith(f"{family}:") for i in _specs):
        known = sorted({*CATALOGS, *(EnvId.parse(i).family for i in _specs)})
        raise UnknownEnv(f"no family {family!r}. There are: {', '.join(known)}.")
    for name in CATALOGS if family is None else [family]:
        _load(name)
    order = {name: place for place, name in enumerate(CATALOGS)}
    mine = [env_id for env_id in _specs if family is None or env_id.startswith(f"{family}:")]
    return sorted(mine, key=lambda env_id: order.get(env_id.partition(":")[0], len(order)))  # each as it was registered


def print_envs(file: TextIO | None = None) -> None:
    """A line an id: where its class is and what it is made with."""
    for env_id in list_envs():
        spec = _specs[env_id]
        kwargs = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        print(f"{env_id}  {spec.entry_point}({kwargs})", file=file)


def make(
    env_id: str,
    /,
    *,
    seed: int | None = None,
    tools: Iterable[Any] = (),
    max_tool_calls: int | None = None,
    wrappers: Iterable[Callable[[Env], Env]] = (),
    **kwargs: Any,
) -> Env:
    """The environment `env_id`, its registered keywords changed by `kwargs`, inside `wrappers` (the first innermost).

    An address, `http://HOST:PORT/FAMILY:NAME`, is an environment on a server (see `palestra serve`).

    `seed` is what the first `reset` without one begins with. `tools` are names, tools or functions the agent may call,
    at most `max_tool_calls` times an episode; `palestra.wrappers.Tools` has more settings.
    """
    if "://" in env_id:
        from palestra.remote.make import make_remote

        env: Env = make_remote(env_id, **kwargs)
    else:
        spec = get_spec(env_id)
        env = _maker(spec)(**{**spec.kwargs, **kwargs})
        env.spec = spec
    if seed is not None:
        env._first_seed = check_seed(seed)
    return _wrapped(env, tools, max_tool_calls, wrappers)


def _wrapped(
    env: Env, tools: Iterable[Any], max_tool_calls: int | None, wrappers: Iterable[Callable[[Env], Env]]
) -> Env:
    if tools:
        from palestra.wrappers.tools import Tools

        env = Tools(env, tools, max_calls=max_tool_calls)
    elif max_tool_calls is not None:
        raise BadValue('max_tool_calls needs tools: make(id, tools=["python"], max_tool_calls=5)')
    for wrap in wrappers:
        env = wrap(env)
    return env


def _maker(spec: EnvSpec) -> Callable[..., Env]:
    maker: Callable[..., Env] | None = _makers.get(spec.id)
    if maker is None:
        module_name, _, name = spec.entry_point.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
        except MissingExtra:
            raise
        except ModuleNotFoundError as err:
            if spec.extra is not None and not (err.name or "").startswith("palestra"):
                raise MissingExtra(
                    f"{spec.id} needs {err.name}, which is not installed. "
                    f"Get it with: pip install 'palestra[{spec.extra}]'"
                ) from err
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        except AttributeError as err:
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        maker = _makers[spec.id] = found
    return maker


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFactory:
    """Picklable recipe of one environment: call it to build the environment, in this process or in another.

    `name` is whatever `make` accepts. With `builder`, a callable that takes `kwargs` and returns an Env, `name` is
    only a label. A pickled factory carries the spec of an id that was registered in this process, so that a worker
    process can build it without importing the module that registered it.
    """

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Any, ...] = ()
    max_tool_calls: int | None = None
    wrappers: tuple[Any, ...] = ()  # what `wrappers.resolve_wrappers` accepts; the first is innermost
    builder: Callable[..., Env] | None = None

    @classmethod
    def of(cls, source: str | Callable[..., Env], **options: Any) -> EnvFactory:
        """Return a factory for a name, or for a callable that builds an env."""
        if isinstance(source, str):
            if "://" not in source:
                get_spec(source)  # an unknown id is reported here, not in a worker
            return cls(name=source, **options)
        if not callable(source):
            raise BadValue(f"expected the name of an environment or a callable that builds one, got {source!r}")
        return cls(name=getattr(source, "__name__", repr(source)), builder=source, **options)

    @property
    def spec(self) -> EnvSpec | None:
        """Return the registered spec; None for a URL and for a `builder`."""
        return None if self.builder is not None or "://" in self.name else get_spec(self.name)

    def __call__(self) -> Env:
        """Build the environment."""
        wrappers: Iterable[Callable[[Env], Env]] = ()
        if self.wrappers:
            from palestra.wrappers.factory import resolve_wrappers

            wrappers = resolve_wrappers(self.wrappers)
        if self.builder is None:
            return make(
                self.name, tools=self.tools, max_tool_calls=self.max_tool_calls, wrappers=wrappers, **self.kwargs
            )
        return _wrapped(self.builder(**self.kwargs), self.tools, self.max_tool_calls, wrappers)

    def __reduce__(self) -> tuple[Any, ...]:
        spec = self.spec
        entry_point: str | Callable[..., Env] | None = None
        if spec is not None:
            module, _, name = spec.entry_point.partition(":")
            importable = module != "__main__" and "<" not in name
            entry_point = spec.entry_point if importable else _maker(spec)  # local objects are pickled by value
        fields = (self.name, self.kwargs, self.tools, self.max_tool_calls, self.wrappers, self.builder)
        return _unpickle_factory, (fields, spec, entry_point)


def _unpickle_factory(
    fields: tuple[Any, ...], spec: EnvSpec | None, entry_point: str | Callable[..., Env] | None
) -> EnvFactory:
    if spec is not None and entry_point is not None:
        try:
            get_spec(spec.id)
        except UnknownEnv:
            _add(spec, entry_point)
    name, kwargs, tools, max_tool_calls, wrappers, builder = fields
    return EnvFactory(
        name=name, kwargs=kwargs, tools=tools, max_tool_calls=max_tool_calls, wrappers=wrappers, builder=builder
    )


def preload(env_id: str) -> None:
    """Import the module of an environment ahead of its first use."""
    _maker(get_spec(env_id))
