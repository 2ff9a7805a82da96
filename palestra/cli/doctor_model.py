"""`palestra doctor --model NAME --gpus N`: print which training settings fit on the GPUs and their memory use."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess

from palestra.errors import BadValue
from palestra.training.capacity import GB, Machine, Plan, best_plan
from palestra.training.model_shape import ModelShape
from palestra.training.update_memory import Parts

DEFAULT_MEMORY = 80.0  # GB per GPU, if this machine has no GPU
DEFAULT_TOKENS = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training memory")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="Instead of the checks, print which training settings fit for this model: a Hugging Face id, a model or "
        "run folder, or a config.json.",
    )
    group.add_argument(
        "--gpus", type=int, metavar="N", help="Number of GPUs for --model (default: all GPUs in this machine, or 1)."
    )
    group.add_argument(
        "--gpu-memory",
        type=float,
        metavar="GB",
        help=f"Memory per GPU in GB (default: that of this machine's first GPU, or {DEFAULT_MEMORY:g}).",
    )
    group.add_argument(
        "--context",
        type=int,
        metavar="TOKENS",
        help=f"Maximum length of a conversation in tokens (default: {DEFAULT_TOKENS}, or the model's maximum).",
    )
    group.add_argument(
        "--lora-rank",
        type=int,
        default=0,
        metavar="R",
        help="Train LoRA adapters of this rank (default: train all weights if they fit).",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan; return 1 if no settings fit."""
    shape = ModelShape.of(args.model)
    memories = gpu_memories()
    tokens = args.context or min(DEFAULT_TOKENS, shape.context)
    if not 0 < tokens <= shape.context:
        raise BadValue(f"--context must be between 1 and {shape.context}, the maximum of {args.model}; got {tokens}")
    memory = args.gpu_memory or (memories[0] if memories else DEFAULT_MEMORY)
    machine = Machine(gpus=args.gpus or len(memories) or 1, memory=int(memory * GB), tokens=tokens)
    plan = best_plan(shape, machine, lora_rank=args.lora_rank)
    if args.json:
        print(json.dumps({"parameters": shape.parameters, "plan": None if plan is None else as_json(plan)}, indent=2))
    else:
        print("\n".join(lines(shape, machine, plan)))
    return 0 if plan is not None else 1


def lines(shape: ModelShape, machine: Machine, plan: Plan | None) -> list[str]:
    """Return the text that describes a plan."""
    count = "1 GPU" if machine.gpus == 1 else f"{machine.gpus} GPUs"
    head = [
        f"{shape.name}: {shape.parameters:,} parameters in {shape.layers} layers",
        f"{count} of {_gb(machine.memory)}; conversations of up to {machine.tokens:,} tokens",
        "",
    ]
    if plan is None:
        return [*head, "No settings fit. Use more or larger GPUs, a smaller --context or a smaller model."]
    each = f"{plan.learners} processes, each" if plan.learners > 1 else "1 process"
    text = [*head, f"update ({each}; all numbers are computed, not measured):", *_table(plan.learning, machine.usable)]
    if plan.recomputes:
        text.append("  Activations are recomputed in the backward pass.")
    if plan.main_memory:
        text.append(f"  In main memory: {_gb(plan.main_memory)} for float32 copies, gradients and optimizer.")
    where = "in the same processes"
    if plan.servers:
        size = f"{plan.gpus_per_server} GPUs" if plan.gpus_per_server > 1 else "1 GPU"
        where = f"{plan.servers} vLLM servers with {size} each" if plan.servers > 1 else f"1 vLLM server with {size}"
    text += ["", f"sampling ({where}):", *_table({**plan.sampling, "KV cache": _cache_per_gpu(plan)}, None)]
    text += [f"  The KV cache holds {plan.conversations:,} conversations of full length at a time.", ""]
    return [*text, "settings:", f"  {plan.command}"]


def _table(parts: Parts, limit: int | None) -> list[str]:
    rows = [(name, _gb(size)) for name, size in parts.items() if size]
    total = _gb(sum(parts.values()))
    rows.append(("total per GPU", total if limit is None else f"{total} of {_gb(limit)} usable"))
    return [f"  {name:<26}{size:>10}" for name, size in rows]


def _cache_per_gpu(plan: Plan) -> int:
    return plan.cache // max(1, plan.gpus_per_server)


def as_json(plan: Plan) -> dict[str, object]:
    """Return a plan as JSON data."""
    return {
        "learners": plan.learners,
        "servers": plan.servers,
        "gpus_per_server": plan.gpus_per_server,
        "lora_rank": plan.lora_rank,
        "offload_optimizer": plan.offload,
        "recomputes": plan.recomputes,
        "learning_bytes": plan.learning,
        "sampling_bytes": {**plan.sampling, "KV cache": _cache_per_gpu(plan)},
        "main_memory_bytes": plan.main_memory,
        "conversations": plan.conversations,
        "command": plan.command,
    }


def gpu_memories() -> list[float]:
    """Return the memory of every GPU in this machine, in GB."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return [float(line) * 2**20 / GB for line in done.stdout.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _gb(size: float) -> str:
    return f"{size / GB:,.1f} GB"
