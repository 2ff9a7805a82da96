"""Command lines and environment variables for the vLLM servers that a trainer starts."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palestra
from palestra.engines.vllm.process import VISIBLE
from palestra.engines.vllm.transfer import base_weights, max_lora_rank
from palestra.errors import BadValue
from palestra.machine import usable_cores

PYTHON = "PALESTRA_VLLM_PYTHON"  # environment variable with the interpreter of the environment that contains vLLM
EXTENSION = "palestra.engines.vllm.worker.PolicyWorker"
SERVED_NAME = "policy"
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)  # in vLLM 0.32
CPU_BATCHED_TOKENS = 8192  # maximum number of tokens per step on a CPU, unless the context is longer
CPU_CACHE_GB = 1.0  # size of the KV cache of a server on a CPU, unless --kv-cache-gb is set


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings for the servers that `VLLMEngine` starts."""

    python: str | None = None  # interpreter of the environment that contains vLLM
    gpus: tuple[str, ...] = ()  # GPUs to divide among the servers; empty: the servers use the CPU
    servers: int = 0  # 0: one per GPU, or one on a CPU
    max_running: int = 256
    max_context: int | None = None
    kv_cache_gb: float | None = None
    colocate: bool = False  # run the servers on the learner's GPU; they free their memory during updates
    arguments: tuple[str, ...] = ()  # further arguments for `vllm serve`

    def __post_init__(self) -> None:
        if self.servers < 0:
            raise BadValue(f"engine_servers must be 0 or more, got {self.servers}")
        if self.gpus and len(self.gpus) % self.count:
            raise BadValue(f"engine_servers={self.servers} must divide the number of GPUs, {len(self.gpus)}")

    @property
    def count(self) -> int:
        """Number of servers."""
        return self.servers or max(1, len(self.gpus))

    @property
    def gpus_per_server(self) -> int:
        return len(self.gpus) // self.count

    @property
    def interpreter(self) -> str:
        return self.python or os.environ.get(PYTHON) or sys.executable

    def check(self, model: Any) -> None:
        """Raise BadValue if vLLM cannot run the model on a CPU."""
        config = model.config.get_text_config()
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if not self.gpus and size not in CPU_HEAD_SIZES:
            raise BadValue(
                f"on a CPU, vLLM supports attention heads of the sizes {', '.join(map(str, CPU_HEAD_SIZES))}; this "
                f"model has heads of size {size}. Use another model, for example --model default:1M, or --engine local"
            )

    def command(self, folder: Path, *, port: int, model: Any, backend: str, address: str = "127.0.0.1") -> list[str]:
        """Return the command that serves the model in `folder` at `address`."""
        lora = bool(getattr(model, "peft_config", None))
        command = [
            *(self.interpreter, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(folder), "--served-model-name", SERVED_NAME),
            *("--host", address, "--port", str(port)),
            *("--dtype", str(model.dtype).removeprefix("torch.")),
            *("--max-num-seqs", str(self.max_running)),
            *("--logprobs-mode", "raw_logprobs", "--generation-config", "vllm"),
            *("--worker-extension-cls", EXTENSION),
        ]
        if lora:
            command += ["--enable-lora", "--max-lora-rank", str(max_lora_rank(model)), "--max-loras", "2"]
        else:  # the first update sends the weights
            command += ["--load-format", "dummy", "--weight-transfer-config", json.dumps({"backend": backend})]
        if self.max_context:
            command += ["--max-model-len", str(self.max_context)]
        if self.kv_cache_gb:
            command += ["--kv-cache-memory-bytes", str(int(self.kv_cache_gb * 2**30))]
        if self.gpus_per_server > 1:
            command += ["--tensor-parallel-size", str(self.gpus_per_server)]
        if self.colocate:
            command += ["--enable-sleep-mode"]
        if not self.gpus:
            command += ["--enforce-eager"]  # compilation would take longer than it saves
            # vLLM 0.32 for CPUs crashes if the prompt of a request with a seed is read in several parts.
            batch = max(self.max_context or 0, CPU_BATCHED_TOKENS)
            command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(batch)]
            if not self.kv_cache_gb:
                command += ["--kv-cache-memory-bytes", str(int(CPU_CACHE_GB * 2**30))]
        return [*command, *self.arguments]

    def environment(self, folder: Path, index: int) -> dict[str, str]:
        """Return the environment variables for server number `index`; `folder` contains only Palestra's package."""
        variables = {
            "PYTHONPATH": str(folder),
            "VLLM_SERVER_DEV_MODE": "1",  # enables the requests that update weights
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # By default 5 seconds, after which a request on an idle connection may fail while the machine is busy.
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "3600",
            "HF_HUB_OFFLINE": "1",
        }
        if not self.gpus:
            # By default every server binds its threads to the same cores.
            variables["VLLM_CPU_OMP_THREADS_BIND"] = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind")
            variables["OMP_NUM_THREADS"] = str(max(1, usable_cores() // (2 * self.count)))
            variables[VISIBLE] = ""  # a build of vLLM for GPUs would use the learner's GPU
        else:
            share = self.gpus[index * self.gpus_per_server : (index + 1) * self.gpus_per_server]
            variables[VISIBLE] = ",".join(share)
            if self.colocate:
                variables["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # CUDA IPC handles are pickled
        return variables


def link_package(folder: Path) -> Path:
    """Create a folder from which another Python environment can import Palestra, but no other package of this one."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "palestra"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(palestra.__file__).resolve().parent)
    return folder


def write_model(model: Any, tokenizer: Any, folder: Path) -> Path:
    """Write the files that a server loads: configuration and tokenizer, and with LoRA the base model's weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.deepcopy(model.config)
    config.architectures = config.architectures or [type(model).__name__]  # normally set when weights are saved
    config.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if getattr(model, "peft_config", None):
        from safetensors.torch import save_file

        weights = {name: tensor.contiguous().cpu() for name, tensor in base_weights(model).items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def parse_gpus(gpus: str | Sequence[str]) -> tuple[str, ...]:
    """Return the GPU numbers in a comma-separated list."""
    names = gpus.split(",") if isinstance(gpus, str) else list(gpus)
    chosen = tuple(name.strip() for name in names if name.strip())
    if not all(name.isdigit() for name in chosen):
        raise BadValue(f"engine_gpus must be a comma-separated list of GPU numbers such as 2,3; got {gpus!r}")
    return chosen


def visible_gpus(numbers: Sequence[str]) -> tuple[str, ...]:
    """Return the values of CUDA_VISIBLE_DEVICES that give another process the GPUs with these numbers.

    Like those of torch, the numbers count only the GPUs that CUDA_VISIBLE_DEVICES lists for this process, if it is set.
    """
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(numbers)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    missing = [number for number in numbers if int(number) >= len(names)]
    if missing:
        raise BadValue(
            f"engine_gpus contains {', '.join(missing)}, but {VISIBLE}={visible} has {len(names)} GPUs; give their "
            "positions in that list, starting at 0"
        )
    return tuple(names[int(number)] for number in numbers)
