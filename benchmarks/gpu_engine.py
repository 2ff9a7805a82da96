"""Measure LocalEngine on a GPU (decoding, prefill, multi-turn conversations, exactness) and compare it with generate.

Models have random weights in the shape of Qwen3-0.6B, 1.7B and 8B. Prints a Markdown table per section and writes all
numbers to `--out`. `--device cpu --shapes tiny` runs the same code with a tiny model, without meaningful timings.

  decode         tokens per second while all rows decode; prefill is excluded (median of three runs)
  prefill        seconds for all prompts, and the share of the peak matrix throughput
  conversations  ragged multi-turn conversations, compared with decoding at the same mean context length
  exact          log-probabilities compared with a teacher-forced forward pass
  soak           random requests, cancellations, preemptions and weight updates with a small float32 model
  episodes       seconds to collect GuessTheNumber episodes with the default 1M model
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from gpu_shapes import BANDWIDTH, PEAK_FLOPS, SHAPES, make_model

ENGINE_OPTIONS: dict[str, Any] = {}  # for every engine
SECTIONS = ("decode", "prefill", "conversations", "exact", "soak", "episodes")


def prompts(rows: int, length: int, vocabulary: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocabulary) for _ in range(length)] for _ in range(rows)]


def kv_bytes_per_token(model: Any) -> int:
    config = model.config
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * model.dtype.itemsize


def weight_bytes(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters()) * model.dtype.itemsize


class StepLog:
    """Records when each step ends and how many tokens it sampled."""

    def __init__(self, engine: Any) -> None:
        self.steps: list[tuple[float, int, int]] = []  # time, sampled tokens, computed tokens
        scheduler = engine._scheduler
        step, stats = scheduler.step, scheduler.stats

        def logged(version: int) -> Any:
            sampled, computed = stats.sampled, stats.computed
            finished = step(version)
            self.steps.append((perf_counter(), stats.sampled - sampled, stats.computed - computed))
            return finished

        scheduler.step = logged

    def decode_rate(self, rows: int) -> float:
        """Return tokens per second from the first to the last step in which all rows only decoded."""
        times = [time for time, sampled, computed in self.steps if sampled == rows and computed in (rows, 0)]
        return rows * (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else float("nan")


async def generate_all(engine: Any, asked: list[list[int]], tokens: int) -> list[Any]:
    from palestra.engines import Sampling

    replies = (engine.generate(ids, Sampling(max_tokens=tokens, seed=at)) for at, ids in enumerate(asked))
    return await asyncio.gather(*replies)


def with_engine(model: Any, rows: int, work: Any, **options: Any) -> Any:
    from palestra.engines import LocalEngine

    async def run() -> Any:
        async with LocalEngine(
            model, device=str(model.device), max_running=rows, eos_ids=(), **ENGINE_OPTIONS, **options
        ) as engine:
            return await work(engine)

    return asyncio.run(run())


def measure_decode(model: Any, rows: int, args: argparse.Namespace) -> dict[str, Any]:
    vocabulary = model.config.vocab_size

    async def work(engine: Any) -> dict[str, Any]:
        await generate_all(engine, prompts(rows, args.prompt, vocabulary, 99), args.tokens)  # captures the graphs
        rates, prefills = [], []
        for run in range(args.runs):
            log = StepLog(engine)
            started = perf_counter()
            await generate_all(engine, prompts(rows, args.prompt, vocabulary, run), args.tokens)
            rates.append(log.decode_rate(rows))
            prefills.append(next(time for time, sampled, _ in log.steps if sampled) - started)
            del engine._scheduler.step
        return {"runner": engine.runner, "rates": rates, "prefill_s": statistics.median(prefills)}

    result: dict[str, Any] = with_engine(model, rows, work)
    rate = statistics.median(result["rates"])
    context = args.prompt + args.tokens / 2
    floor = (weight_bytes(model) + rows * context * kv_bytes_per_token(model)) / BANDWIDTH
    return {**result, "rows": rows, "tokens_per_s": rate, "ms_per_step": 1e3 * rows / rate, "floor_ms": 1e3 * floor,
            "share_of_floor": floor * rate / rows}  # fmt: skip


def measure_generate(model: Any, rows: int, args: argparse.Namespace) -> float:
    """Return the tokens per second of transformers' generate, excluding the time for prompts."""
    import torch

    ids = torch.tensor(prompts(rows, args.prompt, model.config.vocab_size, 0), device=model.device)

    def seconds(tokens: int) -> float:
        started = perf_counter()
        options = {"do_sample": True, "min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0, "top_k": 0}
        model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, -1].item()
        return perf_counter() - started

    seconds(2)
    return rows * (args.tokens - 1) / (seconds(args.tokens) - seconds(1))


def measure_prefill(model: Any, rows: int, length: int, runs: int) -> dict[str, Any]:
    config = model.config

    async def work(engine: Any) -> list[float]:
        await generate_all(engine, prompts(rows, length, config.vocab_size, 99), 1)
        times = []
        for run in range(runs):
            asked = prompts(rows, length, config.vocab_size, run)
            started = perf_counter()
            await generate_all(engine, asked, 1)
            times.append(perf_counter() - started)
        return times

    seconds = statistics.median(with_engine(model, rows, work))
    embeddings = config.vocab_size * config.hidden_size
    matrices = sum(p.numel() for p in model.parameters()) - embeddings * (1 if config.tie_word_embeddings else 2)
    attention = config.num_hidden_layers * 4 * config.num_attention_heads * config.head_dim * length / 2
    flops = rows * length * (2 * matrices + attention) + rows * 2 * embeddings
    return {"rows": rows, "length": length, "seconds": seconds, "tokens_per_s": rows * length / seconds,
            "share_of_peak": flops / seconds / PEAK_FLOPS}  # fmt: skip


def measure_conversations(model: Any, count: int, turns: int) -> dict[str, Any]:
    """Run ragged conversations with a shared system prompt, as in a text game."""
    from palestra.engines import Sampling

    vocabulary = model.config.vocab_size
    contexts: list[int] = []

    async def converse(engine: Any, key: int, rules: list[int]) -> int:
        rng = random.Random(key)
        ids = rules + [rng.randrange(vocabulary) for _ in range(rng.randint(60, 140))]
        sampled = 0
        for _ in range(turns):
            reply = await engine.generate(ids, Sampling(max_tokens=rng.randint(8, 64)), conversation=key)
            sampled += len(reply.ids)
            contexts.append(len(ids))
            ids = ids + reply.ids + [rng.randrange(vocabulary) for _ in range(rng.randint(10, 50))]
        engine.forget(key)
        return sampled

    async def work(engine: Any) -> tuple[list[float], Any]:
        rates = []
        for run in range(3):
            rules = prompts(1, 200, vocabulary, 1000 + run)[0]
            started = perf_counter()
            sampled = await asyncio.gather(*(converse(engine, run * count + key, rules) for key in range(count)))
            rates.append(sum(sampled) / (perf_counter() - started))
        return rates, engine.stats

    rates, stats = with_engine(model, count, work)
    return {"rates": rates, "tokens_per_s": statistics.median(rates[1:]), "mean_context": statistics.mean(contexts),
            "steps": stats.steps, "reused": stats.reused, "shared": stats.shared}  # fmt: skip


def measure_exact(model: Any, rows: int, tokens: int) -> dict[str, Any]:
    """Compare log-probabilities with a teacher-forced forward pass of the same model, and both with one in float32."""
    import torch

    rng = random.Random(5)
    vocabulary = model.config.vocab_size
    asked = [[rng.randrange(vocabulary) for _ in range(rng.randint(1, 300))] for _ in range(rows)]

    async def work(engine: Any) -> tuple[str, list[Any]]:
        return engine.runner, await generate_all(engine, asked, tokens)

    runner, replies = with_engine(model, rows, work)

    def forced() -> Any:
        logprobs = []
        with torch.no_grad():
            for reply in replies:
                ids = torch.tensor([reply.prompt_ids + reply.ids], device=model.device)
                logits = model(input_ids=ids, use_cache=False).logits[0, len(reply.prompt_ids) - 1 : -1]
                own = torch.tensor(reply.ids, device=model.device)[:, None]
                logprobs.append(logits.float().log_softmax(-1).gather(1, own)[:, 0].cpu())
        return torch.cat(logprobs)

    actual = torch.tensor([logprob for reply in replies for logprob in reply.logprobs])
    dtype, expected = str(model.dtype).removeprefix("torch."), forced()
    model.float()
    exact = forced()
    difference = (expected - actual).abs()
    return {"runner": runner, "dtype": dtype, "tokens": len(actual), "mean": difference.mean().item(),
            "max": difference.max().item(), "engine_to_float32": (exact - actual).abs().mean().item(),
            "forced_to_float32": (exact - expected).abs().mean().item()}  # fmt: skip


def soak(device: str, requests: int, shape: str) -> dict[str, Any]:
    """Send random requests; compare every complete reply between two weight updates with a forward pass."""
    import torch

    from palestra.engines import LocalEngine, Sampling

    model = make_model(shape, device, "float32")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    pages = 450 * kv_bytes_per_token(model) * 16 / 2**30
    rng = random.Random(0)
    rules = prompts(6, 120, 128, 7)
    counts = {"replies": 0, "cancelled": 0, "updates": 0, "tokens": 0}
    worst = 0.0

    def check(replies: list[Any]) -> float:
        width = max(len(reply.prompt_ids) + len(reply.ids) for reply in replies)
        padded = [reply.prompt_ids + reply.ids for reply in replies]
        ids = torch.tensor([each + [0] * (width - len(each)) for each in padded], device=device)
        with torch.no_grad():
            logprobs = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        largest = 0.0
        for row, reply in zip(logprobs, replies, strict=True):
            start = len(reply.prompt_ids) - 1
            forced = row[start : start + len(reply.ids)].gather(1, torch.tensor(reply.ids, device=device)[:, None])
            largest = max(largest, (forced[:, 0].cpu() - torch.tensor(reply.logprobs)).abs().max().item())
        return largest

    async def one(engine: Any, key: int) -> Any:
        ids = rng.choice(rules)[: rng.randint(1, 120)] + [rng.randrange(128) for _ in range(rng.randint(1, 60))]
        sampling = Sampling(max_tokens=rng.randint(1, 80), temperature=rng.choice((0.0, 0.7, 1.0)),
                            top_k=rng.choice((0, 0, 5)), top_p=rng.choice((1.0, 0.9)))  # fmt: skip
        task = asyncio.create_task(engine.generate(ids, sampling, conversation=key % 50))
        if rng.random() < 0.1:
            await asyncio.sleep(rng.random() * 0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            counts["cancelled"] += 1
            return None
        return await task

    async def run() -> dict[str, Any]:
        nonlocal worst
        async with LocalEngine(
            model, device=device, max_running=200, kv_cache_gb=pages, prefill_tokens=777, **ENGINE_OPTIONS
        ) as engine:
            sent = 0
            while sent < requests:
                size = min(500, requests - sent)
                spanning = [asyncio.create_task(engine.generate(rules[0][:9], Sampling(max_tokens=100)))]
                replies = [
                    reply for reply in await asyncio.gather(*(one(engine, sent + at) for at in range(size))) if reply
                ]
                sent += size
                counts["replies"] += len(replies)
                counts["tokens"] += sum(len(reply.ids) for reply in replies)
                for at in range(0, len(replies), 64):
                    worst = max(worst, check(replies[at : at + 64]))
                async with engine.paused():
                    await engine.release_memory()
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter.mul_(1.0 + 0.002 * (1 if counts["updates"] % 2 else -1))
                    await engine.publish(None, engine.version + 1)
                counts["updates"] += 1
                await asyncio.gather(*spanning)
            leaked = None
            if engine.runner == "paged":
                blocks = engine._scheduler.blocks
                leaked = blocks.pages - 1 - blocks.free_pages
            return {"runner": engine.runner, **counts, "preempted": engine.stats.preempted,
                    "evicted": engine.stats.evicted, "max_error": worst, "leaked_pages": leaked}  # fmt: skip

    return asyncio.run(run())


def measure_episodes(device: str, episodes: int) -> dict[str, Any]:
    from random_actions import RandomActions

    from palestra.agents import ChatAgent
    from palestra.engines import LocalEngine
    from palestra.engines.default_model import default_model
    from palestra.rollout import collect

    model, tokenizer = default_model("1M")
    model.to(device)

    async def run() -> dict[str, Any]:
        async with LocalEngine(
            model, tokenizer=tokenizer, device=device, max_running=episodes, **ENGINE_OPTIONS
        ) as engine:
            agent = ChatAgent(engine, max_tokens=16)
            seconds, before = [], 0
            for run in range(4):
                before = engine.stats.sampled
                started = perf_counter()
                result = await collect(agent, "game:GuessTheNumber-v0-hard", episodes=episodes, concurrency=episodes,
                                       seed=run, wrappers=[RandomActions])  # fmt: skip
                seconds.append(perf_counter() - started)
            turns = sum(len(trajectory.turns) for trajectory in result.trajectories)
            return {"runner": engine.runner, "episodes": episodes, "seconds": statistics.median(seconds[1:]),
                    "turns": turns, "sampled": engine.stats.sampled - before}  # fmt: skip

    return asyncio.run(run())


def table(title: str, rows: list[dict[str, Any]]) -> None:
    keys = [key for key in {key: None for row in rows for key in row} if not isinstance(rows[0].get(key), list)]
    print(f"\n{title}\n\n| {' | '.join(keys)} |\n|{'---|' * len(keys)}")
    for row in rows:
        cells = (f"{row[key]:.4g}" if isinstance(row.get(key), float) else str(row.get(key)) for key in keys)
        print(f"| {' | '.join(cells)} |", flush=True)


def run_shape(shape: str, args: argparse.Namespace, numbers: dict[str, Any]) -> None:
    import torch

    model = make_model(shape, args.device, args.dtype)
    decoded: dict[int, float] = {}
    if "decode" in args.sections:
        rows = []
        for count in args.rows:
            row = measure_decode(model, count, args)
            decoded[count] = row["tokens_per_s"]
            if count in args.generate_rows and shape == args.shapes[0]:
                row["generate"] = measure_generate(model, count, args)
                row["times_generate"] = row["tokens_per_s"] / row["generate"]
            rows.append(row)
        table(f"decode, {shape}", rows)
        numbers[f"decode {shape}"] = rows
    if "prefill" in args.sections:
        numbers[f"prefill {shape}"] = [measure_prefill(model, *args.prefill, args.runs)]
        table(f"prefill, {shape}", numbers[f"prefill {shape}"])
    if "conversations" in args.sections and shape == args.shapes[0]:
        result = measure_conversations(model, args.conversations, 8)
        same = argparse.Namespace(**{**vars(args), "prompt": int(result["mean_context"]) - 48, "tokens": 128})
        result["decode_tokens_per_s"] = measure_decode(model, args.conversations, same)["tokens_per_s"]
        result["share_of_decode"] = result["tokens_per_s"] / result["decode_tokens_per_s"]
        table(f"conversations, {shape}", [result])
        numbers[f"conversations {shape}"] = [result]
    if "exact" in args.sections:
        numbers[f"exact {shape}"] = [measure_exact(model, 64, 64)]
        if shape == args.shapes[0]:
            numbers[f"exact {shape}"].append(measure_exact(model, 64, 64))  # in float32 now
        table(f"exact, {shape}", numbers[f"exact {shape}"])
    del model
    if args.device != "cpu":
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--shapes", nargs="+", default=["0.6B", "1.7B", "8B"], choices=list(SHAPES))
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument(
        "--generate-rows", type=int, nargs="*", default=[64, 256], help="Rows at which to run generate."
    )
    parser.add_argument("--prompt", type=int, default=200, help="Number of tokens per prompt (default: 200).")
    parser.add_argument("--tokens", type=int, default=64, help="Number of tokens per reply (default: 64).")
    parser.add_argument("--prefill", type=int, nargs=2, default=[256, 1024], help="Number and length of prompts.")
    parser.add_argument("--conversations", type=int, default=1024)
    parser.add_argument("--requests", type=int, default=10_000, help="Number of requests in the soak test.")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="Write all numbers to this JSON file.")
    parser.add_argument("--runner", default=None, help="Runner to use instead of the fastest one.")
    args = parser.parse_args()
    import torch

    ENGINE_OPTIONS["runner"] = args.runner

    numbers: dict[str, Any] = {"torch": torch.__version__}
    if args.device != "cpu":
        numbers["device"] = torch.cuda.get_device_name()
    for shape in args.shapes:
        run_shape(shape, args, numbers)
        if args.out is not None:
            args.out.write_text(json.dumps(numbers, indent=1))
    if "soak" in args.sections:
        numbers["soak"] = [soak(args.device, args.requests, "tiny")]
        table("soak", numbers["soak"])
    if "episodes" in args.sections:
        numbers["episodes"] = [measure_episodes(args.device, args.episodes)]
        table("episodes", numbers["episodes"])
    if args.out is not None:
        args.out.write_text(json.dumps(numbers, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
