"""Look up engine factories by name: built in, registered in Python, or installed as an entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palestra.engines.base import Engine
from palestra.plugins import PluginRegistry

EngineFactory = Callable[..., Engine]  # an Engine class, or a function that returns an Engine

ENGINES: PluginRegistry[EngineFactory] = PluginRegistry(
    "engine",
    group="engines",
    built_in={
        "local": "palestra.engines.local.engine:LocalEngine",
        "openai": "palestra.engines.openai:OpenAIEngine",
        "scripted": "palestra.engines.scripted:ScriptedEngine",
        "sglang": "palestra.engines.sglang:SGLangEngine",
        "vllm": "palestra.engines.vllm.engine:VLLMEngine",
    },
    add_with="register_engine()",
)
register_engine = ENGINES.register
get_engine = ENGINES.get
engine_names = ENGINES.names


def make_engine(name: str, *args: Any, **kwargs: Any) -> Engine:
    """Construct the engine registered as `name`."""
    return get_engine(name)(*args, **kwargs)
