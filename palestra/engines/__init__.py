"""Inference engines: `LocalEngine` (in process), `OpenAIEngine` (HTTP server), `VLLMEngine`, `ScriptedEngine`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palestra.engines.base import Completion, Engine, PolicyEngine, Sampling, Weights
from palestra.engines.bytes_tokenizer import ByteTokenizer
from palestra.engines.registry import engine_names, get_engine, make_engine, register_engine

if TYPE_CHECKING:
    from palestra.engines.local.engine import LocalEngine
    from palestra.engines.openai import OpenAIEngine
    from palestra.engines.scripted import ScriptedEngine
    from palestra.engines.vllm.engine import VLLMEngine

__all__ = [
    "ByteTokenizer",
    "Completion",
    "Engine",
    "LocalEngine",
    "OpenAIEngine",
    "PolicyEngine",
    "Sampling",
    "ScriptedEngine",
    "VLLMEngine",
    "Weights",
    "engine_names",
    "get_engine",
    "make_engine",
    "register_engine",
]

_MODULES = {
    "LocalEngine": "local.engine",
    "OpenAIEngine": "openai",
    "ScriptedEngine": "scripted",
    "VLLMEngine": "vllm.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
