"""Palestra: a gym where LLM agents gain experience, and the training that makes use of it.

Names are loaded when first used, so `import palestra` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Env",
    "EnvSpec",
    "Message",
    "Observation",
    "Step",
    "Wrapper",
    "agents",
    "check_env",
    "engines",
    "errors",
    "get_spec",
    "list_envs",
    "make",
    "make_vec",
    "print_envs",
    "register",
    "register_spec",
    "rollout",
    "tools",
    "unregister",
    "vector",
    "wrappers",
]

_HOME = {
    "Env": "core",
    "EnvSpec": "spec",
    "Message": "types",
    "Observation": "types",
    "Step": "types",
    "Wrapper": "core",
    "check_env": "conformance",
    "get_spec": "registry",
    "list_envs": "registry",
    "make": "registry",
    "make_vec": "vector",
    "print_envs": "registry",
    "register": "registry",
    "register_spec": "registry",
    "unregister": "registry",
}
_PACKAGES = frozenset({"agents", "engines", "errors", "rollout", "tools", "vector", "wrappers"})

if TYPE_CHECKING:
    from palestra import agents, engines, errors, rollout, tools, vector, wrappers
    from palestra.conformance import check_env
    from palestra.core import Env, Wrapper
    from palestra.registry import get_spec, list_envs, make, print_envs, register, register_spec, unregister
    from palestra.spec import EnvSpec
    from palestra.types import Message, Observation, Step
    from palestra.vector import make_vec


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"palestra.{_HOME[name]}"), name)
    elif name in _PACKAGES:
        value = import_module(f"palestra.{name}")
    else:
        raise AttributeError(f"module 'palestra' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
