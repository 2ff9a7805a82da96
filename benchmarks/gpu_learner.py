"""Measure a training step on a GPU with packed and padded micro-batches, and transformers' forward and backward pass.

Models have random weights in Qwen3 shapes; conversations are random tokens in turns of 256. Prints a Markdown table per
section and writes all numbers to `--out`. `--device cpu --shapes tiny` runs the same code with a tiny model, without
meaningful timings.

  step     seconds per step (advantages, forward, backward, update; median of three), share of the peak by 6ND, where N
           counts all parameters (tied embeddings once) and D all tokens, and the peak memory next to the value that
           `palestra train --dry-run` computes
  ragged   the same for conversations with lengths between a quarter of the maximum and the maximum
  hf       forward and backward of the transformers model with its own loss, on padded micro-batches of the same size
  trl      forward and backward of TRL's GRPO loss on padded micro-batches of 8 conversations (see trl_loss.py); not
           measured by default, because it needs TRL
  exact    loss and gradient of the packed float32 step compared with the padded step
  memory   peak memory of a full fine-tuning step of the 4B shape, with and without the optimizer's state on the GPU
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from math import log
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from gpu_shapes import PEAK_FLOPS, SHAPES, make_model

TURN = 256  # tokens per turn
SECTIONS = ("step", "ragged", "hf", "exact", "memory")
ALL_SECTIONS = (*SECTIONS, "trl")


def make_learner(model: Any, args: argparse.Namespace, **options: Any) -> Any:
    from palestra.training.learner import Learner
    from palestra.training.policy import Policy
    from palestra.training.recipe import from_mapping

    config = from_mapping(
        {"env": "game:GuessTheNumber-v0-easy", "model": "pretrained", "device": args.device, "optimizer": "adamw",
         "token_budget": args.token_budget, "gradient_checkpointing": args.recompute,
         "max_kl": 0.0, **options}
    )  # fmt: skip
    return Learner(Policy(model, None, recompute=args.recompute), config)


def conversation(index: int, tokens: int, vocabulary: int, share: float) -> Any:
    """Return an episode with `tokens` tokens, in turns whose last part is sampled."""
    from palestra.rollout.types import Trajectory, Turn
    from palestra.types import Action, Call

    rng = Random(index)
    turns = []
    context: list[int] = []
    while len(context) < tokens:
        size = min(TURN, tokens - len(context))
        sampled = max(1, min(size - 1, round(size * share)))
        context = context + rng.choices(range(vocabulary), k=size - sampled)
        reply = rng.choices(range(vocabulary), k=sampled)
        call = Call(prompt_ids=context, ids=reply, logprobs=[-log(vocabulary)] * sampled, finish="stop", version=0)
        turns.append((call, rng.random()))
        context = context + reply
    return Trajectory(
        env_id="game:GuessTheNumber-v0-easy", kwargs={}, seed=index, group=index, member=0, final_observation="",
        success=True,
        turns=tuple(
            Turn(observation="", action=Action(text="", calls=(call,)), reward=reward, terminated=i == len(turns) - 1,
                 truncated=False, info={}, agent_seconds=0.0, env_seconds=0.0)
            for i, (call, reward) in enumerate(turns)
        ),
    )  # fmt: skip


def episodes(count: int, length: int, vocabulary: int, share: float, *, ragged: bool) -> list[Any]:
    rng = Random(count + length)
    lengths = [rng.randint(length // 4, length) if ragged else length for _ in range(count)]
    return [conversation(i, tokens, vocabulary, share) for i, tokens in enumerate(lengths)]


def synchronize(device: str) -> None:
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


def peak_memory(device: str) -> float:
    import torch

    return torch.cuda.max_memory_allocated() / 1e9 if device != "cpu" else 0.0


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def measure_step(
    model: Any, trajectories: list[Any], args: argparse.Namespace, *, packing: bool, offload: bool = False
) -> dict[str, Any]:
    """Return the time of whole training steps; the first one, which compiles kernels, is reported separately."""
    import torch

    from palestra.training.estimate import run_memory
    from palestra.training.step import reinforcement_step

    learner = make_learner(
        model, args, packing=packing, offload_optimizer=offload, group_size=1, episodes=len(trajectories)
    )
    gpu_memory = torch.cuda.mem_get_info()[1] if args.device != "cpu" else None
    longest = max(len(call.prompt_ids) + len(call.ids) for t in trajectories for call in t.turns[-1].action.calls)
    computed, _ = run_memory(learner.config, model, parameters(model), longest, gpu_memory)
    recomputes = watch_recomputation(learner.policy)
    if args.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for step in range(1 + args.runs):
        started = perf_counter()
        metrics = reinforcement_step(learner, trajectories, step)
        synchronize(args.device)
        times.append(perf_counter() - started)
    last = [t.turns[-1].action.calls[-1] for t in trajectories]
    tokens = sum(len(call.prompt_ids) + len(call.ids) for call in last)
    seconds = statistics.median(times[1:])
    return {"layout": "packed" if packing else "padded", "seconds": seconds, "tokens_per_s": tokens / seconds,
            "share_of_peak": 6 * parameters(model) * tokens / seconds / PEAK_FLOPS, "first_step_s": times[0],
            "peak_gb": peak_memory(args.device), "computed_gb": sum(computed.values()) / 1e9,
            "recomputed": any(recomputes), "grad_norm": metrics["grad_norm"], "times": times}  # fmt: skip


def watch_recomputation(policy: Any) -> list[bool]:
    """Return a list that will contain, for each of the policy's passes, whether activations are recomputed."""
    recomputes: list[bool] = []
    decide = policy._recomputes

    def watch(batch: Any) -> bool:
        recomputes.append(decide(batch))
        return recomputes[-1]

    policy._recomputes = watch
    return recomputes


def measure_hf(model: Any, count: int, length: int, args: argparse.Namespace, *, recompute: bool) -> dict[str, Any]:
    """Return the time of the model's own forward and backward pass over all conversations, without an update."""
    import torch

    from palestra.training.update_memory import MICRO_BATCH

    rows = max(1, (args.token_budget or MICRO_BATCH) // length)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (count, length), generator=generator).to(model.device)
    model.train()
    model.config.use_cache = False
    if recompute:
        model.gradient_checkpointing_enable()
    times = []
    if args.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(1 + args.runs):
        started = perf_counter()
        for part in torch.split(ids, rows):
            model(input_ids=part, labels=part, use_cache=False).loss.backward()
        synchronize(args.device)
        times.append(perf_counter() - started)
        model.zero_grad(set_to_none=True)
    if recompute:
        model.gradient_checkpointing_disable()
    model.eval()
    seconds, tokens = statistics.median(times[1:]), ids.numel()
    return {"conversations": count, "length": length, "recompute": recompute, "seconds": seconds,
            "tokens_per_s": tokens / seconds, "share_of_peak": 6 * parameters(model) * tokens / seconds / PEAK_FLOPS,
            "peak_gb": peak_memory(args.device)}  # fmt: skip


def measure_exact(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare loss and gradient of the packed and the padded float32 step on ragged conversations."""
    import copy

    import torch

    from palestra.training.step import reinforcement_step

    torch.set_float32_matmul_precision("highest")
    model = make_model(args.shapes[0], args.device, "float32", num_hidden_layers=4)
    trajectories = episodes(12, args.exact_length, model.config.vocab_size, 0.5, ragged=True)
    losses, gradients = [], []
    for packing in (False, True):
        learner = make_learner(copy.deepcopy(model), args, packing=packing, max_grad_norm=1e9, entropy=0.01)
        losses.append(reinforcement_step(learner, trajectories, 0)["loss"])
        gradients.append([p.grad.detach().clone() for p in learner.optimizer.parameters if p.grad is not None])
        del learner
    size = sum(grad.double().square().sum() for grad in gradients[0]).sqrt()
    difference = sum((a - b).double().square().sum() for a, b in zip(*gradients, strict=True)).sqrt()
    loss_error = abs(losses[1] - losses[0]) / abs(losses[0])
    return [{"loss": losses[0], "loss_error": loss_error, "gradient_error": (difference / size).item()}]


def measure_memory(args: argparse.Namespace) -> list[dict[str, Any]]:
    shape = "tiny" if args.device == "cpu" else args.memory_shape
    model = make_model(shape, args.device, args.dtype)
    trajectories = episodes(4, args.memory_length, model.config.vocab_size, 0.25, ragged=False)
    one = argparse.Namespace(**{**vars(args), "runs": 1})
    rows = []
    for offload in args.offload:
        result = measure_step(model, trajectories, one, packing=True, offload=bool(offload))
        rows.append({"shape": shape, "conversations": 4, "length": args.memory_length, "offload": offload, **result})
        print(rows[-1], flush=True)
        release(args.device)
    return rows


def table(title: str, rows: list[dict[str, Any]]) -> None:
    keys = [key for key in {key: None for row in rows for key in row} if not isinstance(rows[0].get(key), list)]
    print(f"\n{title}\n\n| {' | '.join(keys)} |\n|{'---|' * len(keys)}")
    for row in rows:
        cells = (f"{row[key]:.4g}" if isinstance(row.get(key), float) else str(row.get(key)) for key in keys)
        print(f"| {' | '.join(cells)} |", flush=True)


def release(device: str) -> None:
    import torch

    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def run_shape(shape: str, args: argparse.Namespace, numbers: dict[str, Any]) -> None:
    model = make_model(shape, args.device, args.dtype)
    vocabulary = model.config.vocab_size
    cases = [(int(count), int(length)) for count, length in (case.split("x") for case in args.cases)]
    for section in ("step", "ragged"):
        if section not in args.sections:
            continue
        rows = []
        for count, length in cases:
            for share in args.loss_shares:
                trajectories = episodes(count, length, vocabulary, share, ragged=section == "ragged")
                for packing in args.packing:
                    result = measure_step(model, trajectories, args, packing=packing == "packed")
                    rows.append({"conversations": count, "length": length, "loss_tokens": share, **result})
                    print(rows[-1], flush=True)
                    release(args.device)
        numbers[f"{section} {shape}"] = rows
        table(f"{section}, {shape}", rows)
    if "hf" in args.sections:
        numbers[f"hf {shape}"] = []
        for count, length in cases:
            for recompute in args.hf_recompute:
                numbers[f"hf {shape}"].append(measure_hf(model, count, length, args, recompute=bool(recompute)))
                release(args.device)
        table(f"hf, {shape}", numbers[f"hf {shape}"])
    if "trl" in args.sections:  # last, because TRL replaces the model's forward pass
        run_trl(shape, model, cases, args, numbers)


def run_trl(
    shape: str, model: Any, cases: list[tuple[int, int]], args: argparse.Namespace, numbers: dict[str, Any]
) -> None:
    from trl_loss import measure_trl

    rows = []
    for count, length in cases:
        for share in args.loss_shares:
            times = measure_trl(model, count, length, share, args.runs, lambda: synchronize(args.device))
            seconds, tokens = statistics.median(times[1:]), count * length
            peak = 6 * parameters(model) * tokens / seconds / PEAK_FLOPS
            rows.append({"conversations": count, "length": length, "loss_tokens": share, "seconds": seconds,
                         "tokens_per_s": tokens / seconds, "share_of_peak": peak, "times": times})  # fmt: skip
            print(rows[-1], flush=True)
            release(args.device)
    numbers[f"trl {shape}"] = rows
    table(f"trl, {shape}", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--shapes", nargs="+", default=["0.6B", "1.7B"], choices=list(SHAPES))
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=ALL_SECTIONS)
    parser.add_argument("--cases", nargs="+", default=["128x2048", "32x8192"], help="Number x length of conversations.")
    parser.add_argument("--loss-shares", type=float, nargs="+", default=[0.25, 1.0], help="Shares of sampled tokens.")
    parser.add_argument("--packing", nargs="+", default=["packed", "padded"], choices=("packed", "padded"))
    parser.add_argument("--token-budget", type=int, default=0, help="Tokens per micro-batch; 0: the trainer's default.")
    parser.add_argument("--recompute", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--hf-recompute", type=int, nargs="+", default=[0, 1], help="Without (0) and with (1).")
    parser.add_argument("--offload", type=int, nargs="+", default=[0, 1], help="Without (0) and with (1).")
    parser.add_argument("--exact-length", type=int, default=1024)
    parser.add_argument("--memory-shape", default="4B", choices=list(SHAPES))
    parser.add_argument("--memory-length", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="Write all numbers to this JSON file.")
    args = parser.parse_args()
    import torch

    numbers: dict[str, Any] = {"torch": torch.__version__}
    if args.device != "cpu":
        numbers["device"] = torch.cuda.get_device_name()
        torch.backends.cuda.enable_cudnn_sdp(False)  # as the engine does
    for shape in args.shapes:
        if {"step", "ragged", "hf", "trl"} & set(args.sections):
            run_shape(shape, args, numbers)
            release(args.device)
        if args.out is not None:
            args.out.write_text(json.dumps(numbers, indent=1))
    for section, measure in (("exact", measure_exact), ("memory", measure_memory)):
        if section in args.sections:
            numbers[section] = measure(args)
            table(section, numbers[section])
            release(args.device)
    if args.out is not None:
        args.out.write_text(json.dumps(numbers, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
