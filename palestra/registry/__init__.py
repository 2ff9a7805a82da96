"""Build environments by name: registered ids, `module:Class`, URLs, and names from other libraries.

Each family of built-in environments has a catalog, which is loaded when one of its ids is first looked up.
docs/environment-names.md describes all forms of names.
"""

from palestra.registry.factory import EnvFactory, make, preload
from palestra.registry.specs import (
    CATALOGS,
    get_registered_spec,
    get_spec,
    list_envs,
    print_envs,
    register,
    register_spec,
    resolve_spec,
    unregister,
    with_split,
)

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
    "resolve_spec",
    "unregister",
    "with_split",
]
