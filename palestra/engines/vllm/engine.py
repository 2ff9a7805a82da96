"""Policy engine that samples from vLLM servers and updates their weights after every training step."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import torch

from palestra.engines.base import Completion, PolicyEngine, Sampling, Tokenizer, Weights
from palestra.engines.local import loading
from palestra.engines.openai import reply_text
from palestra.engines.openai_formats import ServerReply
from palestra.engines.vllm import gpu
from palestra.engines.vllm.checks import DEFAULT_BOUNDS, check_server
from palestra.engines.vllm.client import Interrupted, VLLMClient
from palestra.engines.vllm.commands import ServerSettings, link_package, parse_gpus, visible_gpus, write_model
from palestra.engines.vllm.process import LocalHost, ServerHost
from palestra.engines.vllm.routing import Router
from palestra.engines.vllm.selection import Update, make_transfer, supported_transfer
from palestra.engines.vllm.server import VLLMServer
from palestra.engines.vllm.transfer import WeightTransfer, lora_name
from palestra.engines.vllm.worker import BACKEND
from palestra.errors import BadValue, EngineFailed

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3  # maximum number of requests for one reply while servers are running
_SEED_STEP = 7919  # added to a seed for every continuation of a reply
_WATCH_SECONDS = 1.0  # seconds between checks that the servers are running


class VLLMEngine(PolicyEngine):
    """Samples from one or more vLLM servers, which it starts or which run at `urls`.

    `model` is the learner's transformers model. Its configuration and tokenizer are written to `folder`, from which the
    servers start; they receive its weights with the first `publish`. With LoRA adapters they start from the base model
    and receive the adapter. `gpus` are divided among `servers` servers (default: one per GPU); without GPUs the servers
    use the CPU. `hosts` are the machines on which they are started, one per server (default: this machine). `python` is
    the interpreter of the environment that contains vLLM; the default is $PALESTRA_VLLM_PYTHON or the current
    interpreter.

    `update` selects how weights are sent: "files" (vLLM's weight-transfer interface with safetensors files), "reload"
    (for servers at `urls` without Palestra's worker extension), "nccl" or "ipc" (between GPUs). Only the engine with
    `publisher` sends weights and starts servers; in other processes it waits for them.

    All requests in a conversation go to one server. A server that stops is restarted up to `max_restarts` times, and
    its conversations continue on the other servers. A weight update interrupts replies in progress; they continue
    under the new weights from the tokens sampled so far, which are read again.
    """

    supports_lora = True
    starts_empty = True
    client_class: ClassVar[type[VLLMClient]] = VLLMClient

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any,
        urls: Sequence[str] = (),
        hosts: Sequence[ServerHost] = (),
        gpus: str | Sequence[str] = (),
        servers: int = 0,
        update: Update = "auto",
        python: str | None = None,
        folder: str | Path | None = None,
        max_running: int = 256,
        max_context: int | None = None,
        kv_cache_gb: float | None = None,
        colocate: bool = False,
        arguments: Sequence[str] = (),
        probe_bound: float | None = None,
        start_timeout: float = 900.0,
        max_restarts: int = 3,
        publisher: bool = True,
        lockstep: bool = False,  # noqa: ARG002  # replies of a server depend on its batches
    ) -> None:
        if update not in ("auto", "files", "reload", "nccl", "ipc"):
            raise BadValue(f"update must be one of auto, files, reload, nccl, ipc; got {update!r}")
        self.model = model
        self.tokenizer = tokenizer
        self._decoder: Tokenizer = tokenizer
        self.max_context = loading.context_length(model, max_context)
        self._settings = ServerSettings(
            python=python,
            # With hosts or URLs, other processes assign the GPUs.
            gpus=parse_gpus(gpus) if hosts or urls else visible_gpus(parse_gpus(gpus)),
            servers=servers,
            max_running=max_running,
            max_context=self.max_context,
            kv_cache_gb=kv_cache_gb,
            colocate=colocate,
            arguments=tuple(arguments),
        )
        self._lora = bool(getattr(model, "peft_config", None))
        self._dtype: torch.dtype = model.dtype
        tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
        self._tied = "model.embed_tokens.weight" if tied else None
        self._bound = DEFAULT_BOUNDS.get(self._dtype, 0.2) if probe_bound is None else probe_bound
        self._stop_ids = loading.stop_ids(model, tokenizer)
        self._publisher = publisher
        self._max_restarts = max_restarts
        self._start_timeout = start_timeout
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="palestra-vllm-")) if folder is None else Path(folder)
        self._update: Update = update
        self._transfer: WeightTransfer | None = None
        given = [url.rstrip("/") for url in urls]
        if not given:
            self._settings.check(model)
        self._own = not given
        self._hosts: list[ServerHost] = list(hosts) or [LocalHost() for _ in range(self._settings.count)]
        self.urls = given or [f"http://{host.address}:{host.free_port()}/v1" for host in self._hosts]
        self.servers: list[VLLMServer] = []
        self._router: Router[VLLMServer] = Router([])
        self._pauses = 0
        self._interrupted = False  # the servers were paused because replies were in progress
        self._asleep = False
        self._opened = asyncio.Event()  # set while requests may be sent: not paused, and weights were published
        self._changed = asyncio.Condition()  # notified when a server becomes available or cannot be started
        self._revivals: dict[str, asyncio.Task[None]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._lost: dict[str, EngineFailed] = {}  # servers that could not be restarted

    # Life cycle

    async def ready(self) -> None:
        """Start the servers, or wait until they respond. Idempotent."""
        if self.servers:
            return
        if self._publisher and self._own:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_model(self.model, self.tokenizer, self.folder / "model")
        self.servers = [self._server(index, url) for index, url in enumerate(self.urls)]
        self._router = Router(self.servers)
        workers = max(1, self._settings.gpus_per_server)
        self._transfer = self._make_transfer(self.folder / "weights", workers)
        try:
            await asyncio.gather(*(server.start() for server in self.servers))
        except BaseException:
            await self.aclose()
            raise
        if self._publisher:
            clients = [server.client for server in self.servers]
            self._transfer = await supported_transfer(self._transfer, clients, self._update)
            self._watcher = asyncio.create_task(self._watch())
        for server in self.servers:
            server.up = not self._publisher or server.up
            if server.client.max_context is not None and self.max_context is not None:
                self.max_context = min(self.max_context, server.client.max_context)

    def _make_transfer(self, folder: Path, workers_per_server: int) -> WeightTransfer:
        return make_transfer(self._update, self.model, folder, workers_per_server=workers_per_server)

    def _server(self, index: int, url: str) -> VLLMServer:
        client = self.client_class(url, tokenizer=self.tokenizer, concurrency=self._settings.max_running)
        if not (self._own and self._publisher):
            return VLLMServer(client, start_timeout=self._start_timeout)
        host = self._hosts[index]
        port = int(url.rpartition(":")[2].partition("/")[0])
        backend = self._update if self._update in ("nccl", "ipc") else BACKEND
        process = host.process(
            self._settings.command(
                self.folder.absolute() / "model", address=host.address, port=port, model=self.model, backend=backend
            ),
            self._settings.environment(link_package(self.folder.absolute() / "package"), index),
            self.folder / f"server-{index}.log",
        )
        return VLLMServer(client, process=process, start_timeout=self._start_timeout)

    async def aclose(self) -> None:
        """Stop the servers that this engine started and delete its files."""
        tasks = [*self._revivals.values(), *([] if self._watcher is None else [self._watcher])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._revivals.clear()
        for server in self.servers:
            server.up = False
            await server.client.aclose()
        await asyncio.gather(*(asyncio.to_thread(server.stop) for server in self.servers))
        if self._transfer is not None and self._publisher:
            self._transfer.close()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.servers = []

    # Sampling

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        if sampling.tempered_logprobs and sampling.temperature not in (0, 1):
            raise BadValue("vLLM servers return log-probabilities at temperature 1; train with --temperature 1")
        prompt = list(prompt_ids)
        ids: list[int] = []
        logprobs: list[float] = []
        version: int | None = None
        failures = continuations = 0
        while True:
            await self._opened.wait()
            server = await self._choose(conversation)
            version = self.version if version is None else version
            seed = None if sampling.seed is None else sampling.seed + _SEED_STEP * continuations
            rest = replace(
                sampling,
                max_tokens=sampling.max_tokens - len(ids),
                seed=seed,
                stop_ids=tuple(sorted({*sampling.stop_ids, *self._stop_ids})),
            )
            self._router.started(server)
            try:
                reply = await server.client.sample(prompt + ids, rest)
            except EngineFailed as err:
                failures += await self._report_failure(server)
                if failures >= _ATTEMPTS:
                    raise EngineFailed(f"{server.url} failed {failures} times: {err}") from err
                continue
            finally:
                self._router.finished(server)
            if isinstance(reply, Interrupted) and sampling.stop:
                ids, logprobs, version = [], [], None  # a stop string may begin before the interruption
                continue
            ids += reply.ids
            logprobs += reply.logprobs
            if isinstance(reply, Interrupted):
                continuations += 1
                room = sampling.max_tokens if self.max_context is None else self.max_context - len(prompt)
                if len(ids) < min(sampling.max_tokens, room):
                    continue
                reply = ServerReply(text="", finish="length")  # interrupted after its last token
            whole = replace(reply, ids=ids, logprobs=logprobs)
            return Completion(
                ids=ids,
                logprobs=logprobs,
                text=reply_text(self._decoder, whole),
                finish=whole.finish,
                version=version,
                prompt_ids=prompt,
            )

    def forget(self, conversation: Hashable) -> None:
        self._router.forget(conversation)

    async def score(self, ids: Sequence[int]) -> list[float]:
        return await (await self._choose(None)).client.score(ids)

    async def _choose(self, conversation: Hashable | None) -> VLLMServer:
        """Return the server for a request; wait while all servers are being restarted."""
        await self.ready()
        while (server := self._router.choose(conversation)) is None:
            if len(self._lost) == len(self.servers):
                raise next(iter(self._lost.values()))
            async with self._changed:
                await self._changed.wait()
        return server

    # Restarting servers

    async def _watch(self) -> None:
        """Restart servers whose process has exited, even if no requests are sent to them."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for server in self.servers:
                if server.exited and server.url not in self._lost:
                    self._revive(server)

    async def _report_failure(self, server: VLLMServer) -> int:
        """Restart a server that does not respond. Return 1 if it responds and only the request failed, else 0."""
        if server.up and await server.client.healthy():
            return 1
        self._revive(server)
        return 0

    def _revive(self, server: VLLMServer) -> None:
        """Restart a server in the background. In the meantime, its conversations move to other servers."""
        server.up = False
        task = self._revivals.get(server.url)
        if task is None or task.done():
            _LOG.warning("the vLLM server at %s has stopped answering; starting it again", server.url)
            self._revivals[server.url] = asyncio.create_task(self._restart(server))

    async def _restart(self, server: VLLMServer) -> None:
        try:
            if server.restarts >= self._max_restarts:
                raise EngineFailed(f"the vLLM server at {server.url} has stopped {server.restarts + 1} times")
            if isinstance(self._transfer, gpu.GpuTransfer):
                self._transfer.disconnect(server.url)
            server.client.model = server.client.base_model  # adapters have to be loaded again
            await server.restart()
            if self._publisher:
                await self._bring_up(server)
            else:
                await self._wait_for_weights(server)
            server.up = True
        except EngineFailed as err:
            self._lost[server.url] = err
        async with self._changed:
            self._changed.notify_all()

    async def _bring_up(self, server: VLLMServer) -> None:
        """Send the latest weights to a server, and again if newer ones are published in the meantime."""
        version = 0
        while version != self.version:
            version = self.version
            try:
                await self._apply(server, version)
            except EngineFailed:
                if version == self.version:
                    raise

    async def _wait_for_weights(self, server: VLLMServer) -> None:
        """Wait until the process that publishes has given a server the latest weights."""
        end = monotonic() + self._start_timeout
        while await server.client.weight_version() != str(self.version):
            if monotonic() > end:
                raise EngineFailed(f"the vLLM server at {server.url} has not received weights after its restart")
            await asyncio.sleep(_WATCH_SECONDS)
        self._select_adapter(server)

    def _select_adapter(self, server: VLLMServer) -> None:
        if self._lora:
            server.client.model = lora_name(self.version)

    # Weights

    async def publish(self, weights: Weights | None, version: int) -> None:
        if version <= self.version:
            raise BadValue(f"version must exceed the current version {self.version}, got {version}")
        await self.ready()
        if self._publisher:
            if weights is None:
                raise BadValue("VLLMEngine has no tensors in common with the trainer; publish the weights")
            named = dict(weights.items() if isinstance(weights, Mapping) else weights)
            if self._transfer is None:
                raise EngineFailed("the engine was closed")
            await asyncio.to_thread(self._transfer.prepare, named, version)
        self.version = version
        if self._publisher:
            await self._update_all(version)
        else:
            for server in self.servers:
                self._select_adapter(server)
        if not self._pauses:
            self._opened.set()

    async def _update_all(self, version: int) -> None:
        """Update every server that is running; a server that fails is restarted with the new weights."""
        waiting = [server for server in self.servers if server.url not in self._revivals_running()]
        outcomes = await asyncio.gather(*(self._apply(server, version) for server in waiting), return_exceptions=True)
        for server, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, EngineFailed):
                if await server.client.healthy():
                    raise outcome  # the server refused the update
                self._revive(server)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                server.up = True
        await self._choose(None)  # wait for at least one server
        if self._transfer is not None:
            self._transfer.finished(version)
        self._asleep = False

    def _revivals_running(self) -> set[str]:
        return {url for url, task in self._revivals.items() if not task.done()}

    async def _apply(self, server: VLLMServer, version: int) -> None:
        """Update one server. The pause also empties its prefix cache."""
        if self._transfer is None:
            raise EngineFailed("the engine was closed")
        if self._asleep:
            await gpu.wake_weights(server.client)
        await server.client.pause(clear_cache=True)
        await self._transfer.apply(server.client, version)
        await server.client.set_weight_version(version)
        if self._asleep:
            await gpu.wake_cache(server.client)
        await server.client.resume()

    async def verify(
        self, probes: Sequence[tuple[Sequence[int], Sequence[float]]], weights: Weights | None
    ) -> dict[str, float]:
        if not self._publisher:
            return {}
        named = dict((weights.items() if isinstance(weights, Mapping) else weights) if weights is not None else {})
        worst = 0.0
        for server in [server for server in self.servers if server.up]:
            try:
                difference = await check_server(
                    server.client, probes, named, bound=self._bound, dtype=self._dtype, tied=self._tied
                )
            except EngineFailed:
                if await server.client.healthy():
                    raise
                self._revive(server)
                continue
            worst = max(worst, difference)
        return {"probe_difference": worst}

    async def pause(self) -> None:
        self._pauses += 1
        self._opened.clear()
        # Every process interrupts its own replies, because a request sent after another process has paused the servers
        # would wait until they resume.
        if self._router.running:
            self._interrupted = True
            up = [server for server in self.servers if server.up]
            pauses = (server.client.pause(clear_cache=False) for server in up)
            results = await asyncio.gather(*pauses, return_exceptions=True)
            for server, result in zip(up, results, strict=True):
                if isinstance(result, EngineFailed):
                    self._revive(server)
        while self._router.running:
            await asyncio.sleep(0.005)

    async def resume(self) -> None:
        self._pauses -= 1
        if self._pauses:
            return
        if self._interrupted:
            self._interrupted = False
            up = [server for server in self.servers if server.up]
            await asyncio.gather(*(server.client.resume() for server in up), return_exceptions=True)
        if self.version:
            self._opened.set()

    async def release_memory(self) -> None:
        if self._settings.colocate and self._publisher and not self._asleep:
            await asyncio.gather(*(gpu.sleep(s.client, keep_weights=self._lora) for s in self.servers if s.up))
            self._asleep = True
