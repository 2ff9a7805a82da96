"""Check on a GPU that the paged runner waits for other CUDA streams, when it is created and after a weight update.

    python benchmarks/gpu_races.py [--rounds 20]

Steps run in a separate stream. Here the default stream is kept busy while an engine is created and while weights
are published, as it is when several processes share a GPU. If a step overtook that work, the engine's self-check would
fail, or log-probabilities would differ from those of the model. The exit code is 1 if one of them does.
`--device cpu` runs the same code without streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from palestra.engines import Completion, LocalEngine, Sampling
from palestra.engines.default_model import SIZES, default_model

DELAY_CYCLES = 100_000_000  # about 50 ms
MAX_ERROR = 1e-3  # maximum log-probability error for a float32 model


def delay(device: str) -> None:
    """Keep the current stream busy."""
    import torch

    if device != "cpu":
        cuda: Any = torch.cuda  # `_sleep` is untyped
        cuda._sleep(DELAY_CYCLES)


def error(model: Any, reply: Completion) -> float:
    """Return the largest difference between a reply's log-probabilities and those of a forward pass."""
    import torch

    ids = torch.tensor([reply.prompt_ids + reply.ids], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(reply.prompt_ids) - 1 : -1]
    forced = logits.float().log_softmax(-1).gather(1, ids[0, len(reply.prompt_ids) :, None])[:, 0]
    return float((forced.cpu() - torch.tensor(reply.logprobs)).abs().max())


async def one_round(model: Any, device: str, seed: int) -> tuple[str, float]:
    """Create an engine and update its weights; return its runner and the largest error."""
    import torch

    delay(device)
    async with LocalEngine(model, device=device, eos_ids=(), max_running=8, runner="paged") as engine:
        runner: Any = engine._scheduler.runner
        largest = error(model, await engine.generate([1, 2, 3], Sampling(max_tokens=8, seed=seed)))
        if engine.runner == "paged":
            reload = runner.model.reload

            def delayed() -> bool:
                delay(device)
                return bool(reload())

            runner.model.reload = delayed
        async with engine.paused():
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.5 if seed % 2 else 1 / 1.5)
            await engine.publish(None, engine.version + 1)
        largest = max(largest, error(model, await engine.generate([4, 5], Sampling(max_tokens=8, seed=seed))))
        return engine.runner, largest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda", help="Device of the engine (default: cuda).")
    parser.add_argument("--size", default="1M", choices=SIZES, help="Size of the model (default: 1M).")
    parser.add_argument("--rounds", type=int, default=20, help="Number of engines to create (default: 20).")
    args = parser.parse_args()
    model = default_model(args.size)[0].to(args.device)
    rounds = [asyncio.run(one_round(model, args.device, seed)) for seed in range(args.rounds)]
    failed = sum(runner != "paged" for runner, _ in rounds)
    wrong = sum(not largest <= MAX_ERROR for _, largest in rounds)
    report = {"rounds": len(rounds), "failed_self_checks": failed, "wrong_replies": wrong}
    print(json.dumps({**report, "largest_error": max(largest for _, largest in rounds)}))
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
