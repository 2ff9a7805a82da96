"""Palestra: environments, tools, rollouts, evaluation and reinforcement learning for LLM agents.

All names below are loaded on first use, so that `import palestra` takes milliseconds. This module imports nothing,
because Ctrl-C prints a traceback until `palestra.__main__`, which is imported after it, has set a handler.
"""

__version__ = "0.1.0"

__all__ = [
    "Env",
    "EnvFactory",
    "EnvSpec",
    "Message",
    "Observation",
    "Step",
    "Wrapper",
    "agents",
    "algorithms",
    "check_env",
    "engines",
    "errors",
    "evals",
    "evaluate",
    "get_spec",
    "grading",
    "list_envs",
    "make",
    "make_vec",
    "plugins",
    "print_envs",
    "register",
    "register_spec",
    "rollout",
    "serve",
    "tools",
    "train",
    "training",
    "unregister",
    "vector",
    "wrappers",
]

_MODULES = {  # name -> the module that defines it
    "Env": "core",
    "EnvFactory": "registry",
    "EnvSpec": "spec",
    "Message": "types",
    "Observation": "types",
    "Step": "types",
    "Wrapper": "core",
    "check_env": "conformance",
    "evaluate": "evals",
    "get_spec": "registry",
    "list_envs": "registry",
    "make": "registry",
    "make_vec": "vector",
    "print_envs": "registry",
    "register": "registry",
    "register_spec": "registry",
    "serve": "server",
    "train": "training",
    "unregister": "registry",
}
_PACKAGES = frozenset(__all__) - frozenset(_MODULES)

TYPE_CHECKING = False  # type checkers assume True for this name
if TYPE_CHECKING:
    import typing

    from palestra import (
        agents,
        algorithms,
        engines,
        errors,
        evals,
        grading,
        plugins,
        rollout,
        tools,
        training,
        vector,
        wrappers,
    )
    from palestra.conformance import check_env
    from palestra.core import Env, Wrapper
    from palestra.evals import evaluate
    from palestra.registry import (
        EnvFactory,
        get_spec,
        list_envs,
        make,
        print_envs,
        register,
        register_spec,
        unregister,
    )
    from palestra.server import serve
    from palestra.spec import EnvSpec
    from palestra.training import train
    from palestra.types import Message, Observation, Step
    from palestra.vector import make_vec


def __getattr__(name: str) -> "typing.Any":
    from importlib import import_module

    if name in _MODULES:
        value = getattr(import_module(f"palestra.{_MODULES[name]}"), name)
    elif name in _PACKAGES:
        value = import_module(f"palestra.{name}")
    else:
        raise AttributeError(f"module 'palestra' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
