"""PolicyEngine with its own copy of the weights, like an engine in another process."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from palestra.engines.base import Completion, PolicyEngine, Sampling, Weights
from palestra.engines.local.engine import LocalEngine


class CopyEngine(PolicyEngine):
    """Engine that samples from a copy of `model`, which changes only through `publish(weights, version)`."""

    def __init__(self, model: Any, *, tokenizer: Any = None, **options: Any) -> None:
        self._inner = LocalEngine(copy.deepcopy(model), tokenizer=tokenizer, **options)
        self.tokenizer = tokenizer
        self.max_context = self._inner.max_context
        self.published: list[int] = []

    @property
    def model(self) -> Any:
        return self._inner.model

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        return await self._inner.generate(prompt_ids, sampling, conversation=conversation)

    async def publish(self, weights: Weights | None, version: int) -> None:
        if weights is None:
            raise AssertionError("this engine shares no tensors with the trainer, so it needs the weights")
        pairs = weights.items() if isinstance(weights, Mapping) else weights
        await self._inner.publish({name: tensor.clone() for name, tensor in pairs}, version)
        self.published.append(version)
        self.version = version

    async def pause(self) -> None:
        await self._inner.pause()

    async def resume(self) -> None:
        await self._inner.resume()

    def forget(self, conversation: Hashable) -> None:
        self._inner.forget(conversation)

    async def aclose(self) -> None:
        await self._inner.aclose()
