"""Load plug-ins: entry points in installed packages, modules named with `--import`, and registries of named objects.

A package adds environments, algorithms, tools, graders, agents and engines through entry points in its pyproject.toml:

    [project.entry-points."palestra.envs"]
    my_family = "my_package.envs"

Entry points are read when a name is looked up that is not built in, and each is imported at most once.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from palestra.errors import BadValue, UsageError
from palestra.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUPS",
    "PluginRegistry",
    "add_working_directory",
    "available",
    "entry_point_value",
    "import_module",
    "import_modules",
    "import_object",
    "imported_modules",
    "load",
    "load_all",
]

GROUPS = (
    "advantage_hooks",
    "agents",
    "algorithms",
    "engines",
    "envs",
    "graders",
    "reward_hooks",
    "tools",
)  # the entry-point group for "envs" is palestra.envs

_entry_points: dict[str, dict[str, EntryPoint]] = {}  # group -> name -> entry point
_objects: dict[tuple[str, str], Any] = {}  # (group, name) -> the loaded object
_imported: dict[str, None] = {}  # names of modules that the user imported with `--import`, in order

T = TypeVar("T")


class PluginRegistry(Generic[T]):
    """Registry of one kind of object by name. Objects registered in Python take precedence, then built-in ones.

    `built_in` maps names to `module:attribute`, which is imported when the name is looked up.
    """

    def __init__(self, kind: str, *, group: str, built_in: Mapping[str, str], add_with: str) -> None:
        self.kind = kind
        self.group = group
        self.built_in = built_in
        self.add_with = add_with  # the function that users call to register an object, for error messages
        self.registered: dict[str, T] = {}

    def register(self, name: str, value: T, *, overwrite: bool = False) -> None:
        """Make `value` available under `name`; repeating a registration has no effect."""
        if not isinstance(name, str) or not name:
            raise BadValue(f"the name of a registered {self.kind} must be a non-empty string, got {name!r}")
        if not callable(value):
            raise BadValue(f"the {self.kind} {name!r} must be callable, got {type(value).__name__}")
        taken = name in self.built_in or not _same_object(self.registered.get(name, value), value)
        if taken and not overwrite:
            raise BadValue(f"the {self.kind} {name!r} already exists; choose another name or pass overwrite=True")
        self.registered[name] = value

    def get(self, name: str) -> T:
        """Return the object called `name`; raise BadValue with the nearest name if there is none."""
        if name in self.registered:
            return self.registered[name]
        value: T | None
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            value = getattr(importlib.import_module(module), attribute)
        else:
            value = load(self.group, name)
        if value is None:
            raise BadValue(self._unknown(name))
        return value

    def names(self) -> list[str]:
        """Return all names: built-in objects in their order, then plug-ins."""
        return list(dict.fromkeys([*self.built_in, *self.registered, *available(self.group)]))

    def _unknown(self, name: str) -> str:
        names = self.names()
        hint = did_you_mean(name, names)
        return f"no {self.kind} named {name!r}.{hint} Available: {', '.join(names)}; add one with {self.add_with}"


def available(group: str) -> list[str]:
    """Return the sorted names of the entry points in a group, without importing them."""
    return sorted(_read(group))


def entry_point_value(group: str, name: str) -> str | None:
    """Return the `module:attribute` of an entry point without importing it; None if the group has no such name."""
    entry_point = _read(group).get(name)
    return None if entry_point is None else entry_point.value


def load(group: str, name: str) -> Any:
    """Import and return the object that an entry point refers to; None if the group has no such name."""
    entry_point = _read(group).get(name)
    if entry_point is None:
        return None
    key = (group, name)
    if key not in _objects:
        try:
            _objects[key] = entry_point.load()
        except Exception as err:
            raise BadValue(
                f"the plug-in {name!r} ({entry_point.value}, group palestra.{group}) cannot be loaded: "
                f"{type(err).__name__}: {err}. Fix or uninstall the package that provides it."
            ) from err
    return _objects[key]


def load_all(group: str) -> dict[str, Any]:
    """Import all entry points in a group and return the objects by name; skip failed imports with a warning."""
    objects = {}
    for name in available(group):
        try:
            objects[name] = load(group, name)
        except UsageError as err:
            warnings.warn(str(err), RuntimeWarning, stacklevel=2)
    return objects


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register environments, tools, algorithms or agents; `--import` calls this.

    Worker processes import the same modules before they build environments.
    """
    for name in names:
        import_module(name)
        _imported.setdefault(name)


def imported_modules() -> tuple[str, ...]:
    """Return the names of the modules that `import_modules` has imported, in order."""
    return tuple(_imported)


def import_object(name: str) -> Any:
    """Import and return the object named `package.module:attribute`."""
    module_name, _, path = name.partition(":")
    value: Any = import_module(module_name)
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as err:
            raise BadValue(f"module {module_name} has no attribute {path!r}") from err
    return value


def import_module(name: str) -> ModuleType:
    """Import a module by name. As with `python -m`, it may be located in the working directory."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadValue(f"{name!r} is not a valid module name; write it as in an import statement: my_package.envs")
    add_working_directory()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        if err.name is not None and (name == err.name or name.startswith(f"{err.name}.")):
            raise BadValue(
                f"no module named {name!r}. It must be installed, on PYTHONPATH, or in the working directory "
                f"({Path.cwd()})."
            ) from err
        raise BadValue(f"module {name!r} cannot be imported: {err}") from err


def add_working_directory() -> None:
    """Add the working directory to `sys.path`, which does not contain it when the `palestra` script starts."""
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)


def _same_object(one: Any, other: Any) -> bool:
    """Return whether two objects are identical, or have the same definition in a module that was imported twice."""
    if one is other:
        return True
    names = [(getattr(value, "__module__", None), getattr(value, "__qualname__", None)) for value in (one, other)]
    return names[0] == names[1] and None not in names[0] and "<" not in str(names[0][1])


def _read(group: str) -> dict[str, EntryPoint]:
    if group not in GROUPS:
        raise BadValue(f"no plug-in group {group!r}; the groups are {', '.join(GROUPS)}")
    if group not in _entry_points:
        from importlib.metadata import entry_points

        _entry_points[group] = {
            entry_point.name: entry_point for entry_point in entry_points(group=f"palestra.{group}")
        }
    return _entry_points[group]
