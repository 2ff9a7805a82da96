"""Ways to run a model: in process (`hf`), behind a server (`openai`), or by a script (`scripted`)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from palestra.engines.base import Completion, Engine, Sampling
from palestra.engines.bytes_tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from palestra.engines.hf import HFEngine
    from palestra.engines.openai import OpenAIEngine
    from palestra.engines.scripted import ScriptedEngine

__all__ = ["ByteTokenizer", "Completion", "Engine", "Sampling", "hf", "openai", "scripted"]


def hf(model: Any, **options: Any) -> HFEngine:
    """A Hugging Face model in this process: a folder, a hub id, or a loaded model (with `tokenizer=`)."""
    from palestra.engines.hf import HFEngine

    return HFEngine(model, **options)


def openai(base_url: str, model: str | None = None, **options: Any) -> OpenAIEngine:
    """A server that speaks OpenAI's API: vLLM, SGLang, or a hosted one."""
    from palestra.engines.openai import OpenAIEngine

    return OpenAIEngine(base_url, model, **options)


def scripted(reply: Any, **options: Any) -> ScriptedEngine:
    """Replies from a function or a list instead of a model."""
    from palestra.engines.scripted import ScriptedEngine

    return ScriptedEngine(reply, **options)


class _Package(ModuleType):
    """Loading `engines/hf.py` would put the module where the function `hf` is; the functions keep their names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
