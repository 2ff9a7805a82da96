"""Compare LocalEngine with a loop over transformers' generate on multi-turn conversations, on a CPU or a GPU.

Both sides run the same conversations with the same model in one process: the same prompts, reply lengths and number of
torch threads. The loop pads on the left, recomputes the whole history each turn, and runs each batch until its longest
reply is done, as `generate` requires. The result is the number of requested tokens per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from time import perf_counter, process_time
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
BAR = 3.0


class Turn(NamedTuple):
    new: list[int]  # tokens added to the conversation before the reply
    reply: int  # length of the reply in tokens


def conversations(count: int, turns: int, vocabulary: int, seed: int = 0) -> list[list[Turn]]:
    """Generate ragged conversations: first prompts of 60 to 300 tokens, later ones of 20 to 60, replies of 8 to 64."""
    rng = random.Random(seed)

    def turn(first: bool) -> Turn:
        length = rng.randint(60, 300) if first else rng.randint(20, 60)
        return Turn([rng.randrange(vocabulary) for _ in range(length)], rng.randint(8, 64))

    return [[turn(at == 0) for at in range(rng.randint(1, turns))] for _ in range(count)]


def make_model(layers: int, hidden: int, heads: int, kv_heads: int, vocabulary: int) -> Any:
    """Create a Qwen3 model of this shape with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    model: Any = transformers.Qwen3ForCausalLM  # untyped
    return model(config).eval()


async def with_engine(model: Any, plan: list[list[Turn]], options: dict[str, Any]) -> dict[str, Any]:
    from palestra.engines import LocalEngine, Sampling

    engine = LocalEngine(model, eos_ids=(), **options)

    async def converse(at: int, turns: list[Turn]) -> int:
        ids: list[int] = []
        for turn in turns:
            ids = ids + turn.new
            reply = await engine.generate(ids, Sampling(max_tokens=turn.reply), conversation=at)
            ids += reply.ids
        engine.forget(at)
        return sum(turn.reply for turn in turns)

    started, cpu_started = perf_counter(), process_time()
    tokens = sum(await asyncio.gather(*(converse(at, turns) for at, turns in enumerate(plan))))
    seconds, cpu = perf_counter() - started, process_time() - cpu_started
    stats = engine.stats
    await engine.aclose()
    return {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "per_second": tokens / seconds,
        "steps": stats.steps,
        "computed": stats.computed,
        "reused": stats.reused,
    }


def with_generate(model: Any, plan: list[list[Turn]], batch: int) -> dict[str, Any]:
    import torch

    histories: list[list[int]] = [[] for _ in plan]
    tokens = computed = 0
    started, cpu_started = perf_counter(), process_time()
    for at in range(max(map(len, plan))):
        playing = [who for who, turns in enumerate(plan) if len(turns) > at]
        for first in range(0, len(playing), batch):
            rows = playing[first : first + batch]
            for who in rows:
                histories[who] += plan[who][at].new
            longest = max(len(histories[who]) for who in rows)
            reply = max(plan[who][at].reply for who in rows)
            ids = torch.tensor([[0] * (longest - len(histories[who])) + histories[who] for who in rows])
            seen = torch.tensor([[0] * (longest - len(histories[who])) + [1] * len(histories[who]) for who in rows])
            with torch.no_grad():
                out = model.generate(
                    input_ids=ids.to(model.device),
                    attention_mask=seen.to(model.device),
                    do_sample=True,
                    top_k=0,
                    min_new_tokens=reply,
                    max_new_tokens=reply,
                )
            for who, row in zip(rows, out[:, longest:].tolist(), strict=True):
                histories[who] += row[: plan[who][at].reply]
                tokens += plan[who][at].reply
            computed += longest * len(rows)
    seconds, cpu = perf_counter() - started, process_time() - cpu_started
    return {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "per_second": tokens / seconds,
        "computed": computed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--conversations", type=int, default=128)
    parser.add_argument("--turns", type=int, default=8, help="Maximum number of turns per conversation (default: 8).")
    parser.add_argument("--threads", type=int, default=1, help="Number of torch threads on both sides (default: 1).")
    parser.add_argument(
        "--batch", type=int, default=128, help="Number of conversations per `generate` call (default: 128)."
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=1536)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default=None, help="Data type (default: float32 on a CPU, bfloat16 on a GPU).")
    parser.add_argument("--runners", nargs="+", default=["native"], help="Engine runners: 'native', 'transformers'.")
    parser.add_argument(
        "--repeat", type=int, default=1, help="Number of runs per side; the best is reported (default: 1)."
    )
    parser.add_argument("--quick", action="store_true", help="Run only 16 conversations of 2 turns.")
    parser.add_argument("--no-generate", action="store_true", help="Do not measure transformers' generate.")
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    args = parser.parse_args()
    if args.quick:
        args.conversations, args.turns = 16, 2
    import torch

    torch.set_num_threads(args.threads)
    model = make_model(args.layers, args.hidden, args.heads, args.kv_heads, args.vocabulary)
    dtype = args.dtype or ("float32" if args.device == "cpu" else "bfloat16")
    model.to(args.device, getattr(torch, dtype))
    plan = conversations(args.conversations, args.turns, args.vocabulary)
    warm = conversations(4, 2, args.vocabulary, seed=1)
    report: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "threads": args.threads,
        "turns": sum(map(len, plan)),
    }

    def record(name: str, figures: dict[str, Any]) -> None:
        if name not in report or figures["seconds"] < report[name]["seconds"]:
            report[name] = figures

    for _ in range(args.repeat):
        for runner in args.runners:
            options = {"runner": runner, "threads": args.threads}
            asyncio.run(with_engine(model, warm, options))
            record(runner, asyncio.run(with_engine(model, plan, options)))
        if not args.no_generate:
            with_generate(model, warm, args.batch)
            record("generate", with_generate(model, plan, args.batch))
    ours = report[args.runners[0]]
    if not args.no_generate:
        report["ratio"] = ours["per_second"] / report["generate"]["per_second"]
        # On a busy machine CPU time is more reliable than wall-clock time.
        report["cpu_ratio"] = report["generate"]["cpu_seconds"] / ours["cpu_seconds"]
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"{report['parameters'] / 1e6:.2f}M parameters, {args.threads} threads, {len(plan)} conversations")
        for name in [*args.runners, "generate"]:
            if name in report:
                figures = report[name]
                print(
                    f"{name:12}{figures['tokens']:8} tokens in {figures['seconds']:7.2f} s: "
                    f"{figures['per_second']:8.0f} tokens/s; {figures['computed']:7} computed; "
                    f"{figures['cpu_seconds']:7.2f} s of CPU"
                )
        if "ratio" in report:
            print(
                f"engine / generate: {report['ratio']:.1f} (required: {BAR:g}); by CPU time {report['cpu_ratio']:.1f}"
            )
    return 1 if report.get("ratio", BAR) < BAR else 0


if __name__ == "__main__":
    sys.exit(main())
