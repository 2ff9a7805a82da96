"""Register environments, load catalogs and plug-ins, and look up specs by name."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from palestra import plugins
from palestra.core import Env
from palestra.errors import AlreadyRegistered, BadEnvId, BadValue, MissingExtra, UnknownEnv, UsageError
from palestra.optional import install_command
from palestra.spec import UNBOUNDED, EnvId, EnvSpec

CATALOGS: Mapping[str, str] = {  # family -> module that defines SPECS
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
    "miniwob": "palestra.envs.miniwob.catalog",
    "web": "palestra.envs.web.catalog",
    "webarena": "palestra.envs.webarena.catalog",
}
EXTERNAL: Mapping[str, str] = {  # library -> adapter class, which is called with env=NAME
    "gymnasium": "palestra.envs.external.gymnasium:FromGymnasium",
    "textarena": "palestra.envs.external.textarena:FromTextArena",
    "verifiers": "palestra.envs.external.verifiers:FromVerifiers",
}

_specs: dict[str, EnvSpec] = {}
_makers: dict[str, Callable[..., Env]] = {}  # id -> registered callable or imported entry point
_builtin: dict[str, EnvSpec] = {}  # specs from the catalogs, which every process can load
_aliases: dict[str, str] = {}  # other names of built-in environments -> ids
_resolvers: dict[str, Callable[[str], EnvSpec | None]] = {}  # family -> function for unlisted ids
_received: set[str] = set()  # ids received with a pickled EnvFactory from the process that registered them
_loaded: set[str] = set()  # families whose catalog has been loaded
_loaded_plugins: set[str] = set()  # names of entry points that have been loaded


def register(
    env_id: str,
    entry_point: str | Callable[..., Env],
    /,
    *,
    summary: str = "",
    reward_range: tuple[float, float] | None = None,
    expert_success: float | None = None,
    random_success: float | None = None,
    echo_success: float | None = None,
    constant_success: float | None = None,
    rates_reason: str = "",
    splits: tuple[str, ...] = (),
    seeded: bool = True,
    extra: str | None = None,
    needs_data: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    **more_kwargs: Any,
) -> None:
    """Register an environment under `env_id`.

    `entry_point` is "module:Class", a class, or a function that returns an Env. `make` passes it `kwargs` and any
    further keyword arguments. The other arguments are the fields of `EnvSpec`. If `entry_point` is a class,
    `reward_range` defaults to its attribute, and `summary` to the first line of its docstring. An identical spec may be
    registered again, for example by a module that is imported twice.
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
        echo_success=echo_success,
        constant_success=constant_success,
        rates_reason=rates_reason,
        splits=splits,
        seeded=seeded,
        extra=extra,
        needs_data=needs_data,
    )
    _add(spec, entry_point)


def register_spec(spec: EnvSpec) -> None:
    """Register an environment described by an EnvSpec."""
    _add(spec, spec.entry_point)


def unregister(env_id: str) -> None:
    """Remove a registered id; raise UnknownEnv if it is not registered."""
    get_registered_spec(env_id)
    del _specs[env_id]
    _makers.pop(env_id, None)
    _received.discard(env_id)


def _add(spec: EnvSpec, entry_point: str | Callable[..., Env]) -> None:
    family = EnvId.parse(spec.id).family
    if family in EXTERNAL:
        raise BadValue(f"{spec.id}: the family {family!r} is reserved for environments from that library")
    _load_catalog(family)
    if spec.id in _received:
        return  # the env's module has just been imported here, but the spec from the other process takes precedence
    taken = _specs.get(spec.id)
    if taken is not None and taken != spec:
        if _from_main_script(taken, spec):
            return
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


def _from_main_script(one: EnvSpec, other: EnvSpec) -> bool:
    """Return whether two entry points name the same object in a file that runs as `__main__` and was also imported."""
    (module, _, path), (other_module, _, other_path) = (spec.entry_point.partition(":") for spec in (one, other))
    if path != other_path or (module == "__main__") is (other_module == "__main__"):
        return False
    files = [getattr(sys.modules.get(name), "__file__", None) for name in (module, other_module)]
    return None not in files and Path(str(files[0])).samefile(str(files[1]))


def _name_of(entry_point: object) -> str:
    if isinstance(entry_point, str):
        return entry_point
    module = getattr(entry_point, "__module__", "?")
    if module == "__mp_main__":  # the main script, imported again by a multiprocessing child
        module = "__main__"
    return f"{module}:{getattr(entry_point, '__qualname__', repr(entry_point))}"


def _load_catalog(family: str) -> None:
    if family in _loaded or family not in CATALOGS:
        return
    _loaded.add(family)
    catalog = importlib.import_module(CATALOGS[family])
    for spec in catalog.SPECS:
        _specs[spec.id] = _builtin[spec.id] = spec
    _aliases.update(getattr(catalog, "ALIASES", {}))
    if hasattr(catalog, "resolve"):
        _resolvers[family] = catalog.resolve


def _load_plugins(family: str | None = None) -> None:
    """Load the plug-in named `family`, or all plug-ins in the `palestra.envs` entry-point group."""
    for name in plugins.available("envs"):
        if family not in (None, name) or name in _loaded_plugins:
            continue
        _loaded_plugins.add(name)
        try:
            loaded = plugins.load("envs", name)
        except UsageError as err:
            if family is not None:
                raise
            warnings.warn(str(err), RuntimeWarning, stacklevel=3)  # one broken plug-in must not disable the others
        else:
            _register_plugin(loaded)


def _register_plugin(loaded: Any) -> None:
    """Register the environments that an entry point provides.

    `loaded` is a spec, a list of specs, a function that registers environments, or a module that has registered them.
    """
    specs = getattr(loaded, "SPECS", loaded)
    if isinstance(specs, EnvSpec):
        register_spec(specs)
    elif isinstance(specs, (list, tuple)):
        for spec in specs:
            register_spec(spec)
    elif callable(loaded) and not isinstance(loaded, type):
        loaded()


def get_spec(name: str) -> EnvSpec:
    """Return an environment's spec by any form of its name: an id, `module:Class`, a URL, or another library's name.

    If the name contains a module, the module is imported; use `get_registered_spec` for names from untrusted sources.
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
            summary=f"{rest} from {family}",
            extra=family,
        )
    if _is_module_class(name):
        return _class_spec(name)
    return get_registered_spec(name)


def get_registered_spec(env_id: str) -> EnvSpec:
    """Return the spec of an id that Palestra, a plug-in or user code registered; other names raise UnknownEnv."""
    if env_id not in _specs:
        family = _family_of(env_id)
        _load_catalog(family)
        env_id = _aliases.get(env_id, env_id)
        resolved = _resolvers[family](env_id) if family in _resolvers else None
        if resolved is not None:
            return resolved
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
            f"no environment {env_id!r}.{hint} `palestra envs` lists all ids. To use your own environment, pass "
            "module:Class, or its id together with --import MODULE."
        )
    return _specs[env_id]


def resolve_spec(name: str, kwargs: Mapping[str, Any] | None = None) -> EnvSpec:
    """Return an environment's spec like `get_spec`, but request the spec of a URL from its server.

    `kwargs` may contain the server's `token` and the `patience` in seconds, which `make` also accepts.
    """
    scheme, separator, _ = name.partition("://")
    if not separator or "+" in scheme or name in _specs:  # servers of other projects have no specs
        return get_spec(name)
    from palestra.remote.served_spec import served_spec

    url, query = split_query(name)
    options = {key: value for key, value in {**query, **(kwargs or {})}.items() if key in ("token", "patience")}
    spec = get_spec(name)
    return replace(served_spec(url, **options), id=name, entry_point=spec.entry_point, kwargs=spec.kwargs)


def with_split(name: str, kwargs: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Return the keyword arguments for `name`, adding `split` if it has splits and no split is selected yet.

    For a URL, the environment's spec is requested from the server.
    """
    selected = {**split_query(name)[1], **kwargs} if "://" in name else kwargs
    if "split" in selected or "data_split" in selected or split not in resolve_spec(name, kwargs).splits:
        return dict(kwargs)
    return {**kwargs, "split": split}


def split_query(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL into its part before `?` and the keyword arguments in its query; values are parsed as JSON if valid.

    >>> split_query("http://host:8100/game:Wordle-v0?max_turns=5&mode=fast")
    ('http://host:8100/game:Wordle-v0', {'max_turns': 5, 'mode': 'fast'})
    """
    import json
    from urllib.parse import parse_qsl

    base, _, query = url.partition("?")
    kwargs: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            kwargs[name] = json.loads(text)
        except json.JSONDecodeError:
            kwargs[name] = text
    return base, kwargs


def _family_of(env_id: str) -> str:
    try:
        return EnvId.parse(env_id).family
    except BadEnvId:
        raise BadEnvId(
            f"{env_id!r} is not the name of an environment. Valid names are family:Name-vN[-variant] (for example "
            "game:Sudoku-v0-easy), module:Class, gymnasium:NAME, textarena:NAME, verifiers:NAME, and http://HOST:PORT/ID."
        ) from None


def _is_module_class(name: str) -> bool:
    """Return whether the name has the form `module:Class`, where `module` is not a known family of ids."""
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
            f"({err}). `palestra envs` lists all ids."
        ) from err
    if name in _specs:  # the module registered an environment under this name
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
    """Return all ids, or one family's ids, in catalog order, followed by ids from plug-ins."""
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
    # Stable sort: preserves the order within a family.
    return sorted(ids, key=lambda env_id: order.get(env_id.partition(":")[0], len(order)))


def print_envs(file: TextIO | None = None) -> None:
    """Print one line per id, with its entry point and its registered keyword arguments."""
    for env_id in list_envs():
        spec = _specs[env_id]
        kwargs = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        print(f"{env_id}  {spec.entry_point}({kwargs})", file=file)


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
                    f"Install it with: {install_command(spec.extra)}"
                ) from err
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        except AttributeError as err:
            raise BadValue(f"{spec.id}: its entry point {spec.entry_point} cannot be imported: {err}") from err
        maker = target
        if spec.id in _specs:
            _makers[spec.id] = target
    return maker
