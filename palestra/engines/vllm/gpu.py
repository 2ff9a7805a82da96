"""Transfers between GPUs (NCCL, CUDA IPC) and sleep mode, according to the documented API of vLLM 0.32.

Nothing in this file has been tested, because no machine with vLLM and a GPU was available. The check after every update
also applies to these transfers, and stops a run whose servers compute other log-probabilities than the learner.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import urlsplit

import torch

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.process import free_port
from palestra.engines.vllm.transfer import WeightTransfer
from palestra.errors import BadValue, EngineFailed


class GpuTransfer(WeightTransfer):
    """Sends weights from the learner's GPU: by NCCL broadcast to other GPUs, or by CUDA IPC on the same GPU.

    The trainer's environment must contain vLLM, whose trainer-side classes open the connection. There is one connection
    per server, which is reopened after a restart.
    """

    name = "gpu"

    def __init__(self, backend: Literal["nccl", "ipc"], *, workers_per_server: int = 1) -> None:
        if find_spec("vllm") is None:
            raise BadValue(f"update={backend!r} needs vLLM in the trainer's environment, too: pip install vllm")
        self._backend = backend
        self._workers = workers_per_server
        self._source = _Source({})
        self._connections: dict[str, Any] = {}

    def prepare(self, weights: Mapping[str, Any], version: int) -> None:  # noqa: ARG002  # sent from memory
        self._source.weights = weights

    async def apply(self, client: VLLMClient, version: int) -> None:  # noqa: ARG002  # the latest weights are sent
        try:
            await asyncio.to_thread(self._send, client.root)
        except Exception as err:
            self._connections.pop(client.root, None)  # a transfer that failed leaves the connection unusable
            raise EngineFailed(f"the {self._backend} transfer to {client.root} failed: {err}") from err

    def _send(self, url: str) -> None:
        device = next(iter(self._source.weights.values())).device
        with torch.cuda.device(device):  # a new thread would use the machine's first GPU
            if url not in self._connections:
                self._connections[url] = self._connect(url)
            self._connections[url].send_weights()

    def _connect(self, url: str) -> Any:
        from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        if self._backend == "ipc":
            info = IPCTrainerInitInfo(rank=0, packed=True)
        else:
            address = _own_address(url)
            info = NCCLTrainerInitInfo(
                master_address=address, master_port=free_port(address), world_size=1 + self._workers, rank=0
            )
        return WeightTransferTrainerFactory.trainer_init(
            info, client=HTTPVLLMWeightSyncClient(url), source=self._source
        )

    def disconnect(self, url: str) -> None:
        """Forget the connection to a server that was restarted."""
        self._connections.pop(url, None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.shutdown()
        self._connections.clear()


def _own_address(url: str) -> str:
    """Return the IP address of this machine in the network through which it reaches `url`."""
    host = urlsplit(url).hostname or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))  # selects a route without sending anything
        address: str = probe.getsockname()[0]
        return address


class _Source:
    """The weights of the current version in the form that vLLM's trainer-side classes read."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights

    def metadata(self) -> list[Any]:
        """Return the name, data type and shape of every weight."""
        from vllm.distributed.weight_transfer import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.weights.items()]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from self.weights.items()


async def sleep(client: VLLMClient, *, keep_weights: bool) -> None:
    """Free a server's GPU memory: its KV cache, and its weights, which move to main memory or are sent again later."""
    await client.control(f"/sleep?level={1 if keep_weights else 2}&mode=abort")


async def wake_weights(client: VLLMClient) -> None:
    """Allocate the memory for a sleeping server's weights again, before an update."""
    await client.control("/wake_up?tags=weights")


async def wake_cache(client: VLLMClient) -> None:
    """Allocate the memory for a sleeping server's KV cache again, after an update."""
    await client.control("/wake_up?tags=kv_cache")
