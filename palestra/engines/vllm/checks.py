"""Check that a server samples from the learner's weights: log-probabilities of probes, then fingerprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.fingerprints import TIED, differences, learner_fingerprints
from palestra.errors import EngineFailed

# Maximum mean difference in nats per token, by the data type of the weights
DEFAULT_BOUNDS = {torch.float32: 0.005, torch.bfloat16: 0.2, torch.float16: 0.05}
_SHOWN = 8  # number of parameters in an error message


async def check_server(
    client: VLLMClient,
    probes: Sequence[tuple[Sequence[int], Sequence[float]]],
    weights: Mapping[str, Any],
    *,
    bound: float,
    dtype: torch.dtype,
    tied: str | None,
) -> float:
    """Return the mean difference between a server's log-probabilities of `probes` and the learner's.

    Each probe is a sequence of token ids with the learner's log-probability of every id but the first. Raises
    EngineFailed if the difference exceeds `bound`; the message names the parameters that differ.
    """
    scores = await client.score_all([ids for ids, _ in probes])
    errors = [
        abs(ours - theirs)
        for (_, expected), actual in zip(probes, scores, strict=True)
        for ours, theirs in zip(expected[1:], actual[1:], strict=True)
    ]
    difference = sum(errors) / max(1, len(errors))
    if difference <= bound:
        return difference
    concerned = await _describe(client, weights, dtype=dtype, tied=tied)
    raise EngineFailed(
        f"after a weight update, the log-probabilities from {client.base_url} differ from the learner's: the mean "
        f"difference is {difference:.3g} nats per token, above {bound:g}. {concerned}. The last checkpoint is intact"
    )


async def _describe(client: VLLMClient, weights: Mapping[str, Any], *, dtype: torch.dtype, tied: str | None) -> str:
    """Return a sentence that names the parameters for which the server and the learner differ."""
    adapter = [name for name in weights if ".lora_" in name]
    full = {name: tensor for name, tensor in weights.items() if ".lora_" not in name}
    try:
        workers = await client.call_workers("palestra_fingerprints")
    except EngineFailed:
        hint = "Start the server with --worker-extension-cls palestra.engines.vllm.worker.PolicyWorker to compare all"
        if tied is None:
            return f"It reports no fingerprints, so any parameter may differ. {hint}"
        return (
            f"The likely parameter is {TIED}, which shares the weight of {tied}: vLLM's reload_weights does not update "
            f"the CPU copy of a tied output layer. {hint} and to update it"
        )
    if len(workers) != 1:
        return "It has several workers with a part of each parameter, so the parameters cannot be compared"
    wrong = differences(learner_fingerprints(full, tied=tied), workers[0], dtype)
    if wrong:
        names = [f"{name} (tied to {tied})" if name == TIED and tied else name for name in wrong]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"Parameters that differ: {', '.join(names[:_SHOWN])}{more}"
    if adapter:
        more = f" and {len(adapter) - _SHOWN} more" if len(adapter) > _SHOWN else ""
        return f"Parameters concerned: those of the LoRA adapter, {', '.join(adapter[:_SHOWN])}{more}"
    return "The fingerprints of all parameters agree, so the server computes something else with them"
