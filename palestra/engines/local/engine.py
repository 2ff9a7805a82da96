"""In-process engine: runs a Hugging Face model on a CPU or a GPU with continuous batching."""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from palestra.engines.base import Completion, PolicyEngine, Sampling, Weights
from palestra.engines.local.admission import QUIET_ROUNDS, AdmissionGate
from palestra.engines.local.waiters import FutureWaiter, Waiter, call_in_loop, notify, resolve
from palestra.engines.reply_text import ReplyText
from palestra.engines.stop_strings import StopStrings
from palestra.errors import BadValue, EngineFailed
from palestra.optional import require
from palestra.seeding import hash_seed

if TYPE_CHECKING:
    from palestra.engines.local.generation_request import GenerationRequest
    from palestra.engines.local.scheduler import EngineStats

SMALL_MODEL = 20_000_000  # number of parameters below which torch threads spend more time synchronizing than computing
SWITCH_INTERVAL = 0.0005  # Python's thread switch interval in seconds while the engine uses a GPU
LARGE_MODEL = 500_000_000  # number of parameters above which a few tokens keep a GPU busy


class LocalEngine(PolicyEngine):
    """Runs `model`: a folder, a hub id, or a loaded transformers model with its `tokenizer`.

    Up to `max_running` requests form one batch. Each step samples one token for each of them; finished requests leave
    the batch and waiting ones join it between steps. The engine caches the keys and values of each conversation
    (requests with the same `conversation`) in up to `kv_cache_gb` of memory and evicts the least recently used. The
    next request in a conversation computes only its new tokens, and prompts with a common prefix share its computation.
    A step reads at most `prefill_tokens` prompt tokens.

    Steps run in a separate thread, so the event loop stays responsive; several event loops may use the engine one after
    the other. In that thread torch uses `threads` threads: by default one for a small model on a CPU, otherwise torch's
    own setting.

    `runner` selects the implementation: "paged" (CUDA graphs and Triton kernels for Llama, Mistral, Qwen2, Qwen3,
    Qwen3-MoE and Gemma 3), "native" (a decoder for Llama, Mistral, Qwen2 and Qwen3 on a CPU), "transformers" (the
    model's forward pass with a KV cache), or "recompute" (no cache, for models with other kinds of state). The default
    is the fastest runner for the device whose log-probabilities match the model's.

    With `lockstep` the event loop waits during each step, and a step starts only when all tasks are blocked. Batches
    then do not depend on thread timing, so runs with seeded requests and environments that reply immediately are
    bit-identical.

    `model` may be trained in the same process: change its weights inside `paused()` and call `publish(None, version)`.
    """

    shares_weights = True
    supports_lora = True

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str | None = None,
        max_running: int = 256,
        max_context: int | None = None,
        kv_cache_gb: float | None = None,
        prefill_tokens: int | None = None,
        threads: int | None = None,
        eos_ids: Sequence[int] | None = None,
        runner: Literal["paged", "native", "transformers", "recompute"] | None = None,
        lockstep: bool = False,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("max_running", max_running), ("prefill_tokens", prefill_tokens), ("threads", threads)):
            if value is not None and value < 1:
                raise BadValue(f"{name} must be at least 1, got {value}")
        if kv_cache_gb is not None and kv_cache_gb <= 0:
            raise BadValue(f"kv_cache_gb must be positive, got {kv_cache_gb}")
        if runner not in (None, "paged", "native", "transformers", "recompute"):
            raise BadValue(f"runner must be 'paged', 'native', 'transformers', 'recompute' or None, got {runner!r}")
        for package in ("torch", "transformers", "tokenizers"):
            require(package, extra="hf")
        from palestra.engines.local import loading
        from palestra.engines.local.devices import current_device, set_up_thread
        from palestra.engines.local.generation_request import GenerationRequest, with_unknown_ids
        from palestra.engines.local.runner import launch_bound
        from palestra.engines.local.scheduler_selection import select_scheduler

        self._request_type, self._with_unknown_ids = GenerationRequest, with_unknown_ids  # imported late, with torch
        self.model, self.tokenizer, self._device = loading.load(
            model, tokenizer=tokenizer, device=device, dtype=dtype, options=load_options or {}
        )
        self.stop_ids = loading.stop_ids(self.model, self.tokenizer) if eos_ids is None else frozenset(eos_ids)
        self._text = ReplyText(self.tokenizer)
        self._all_stop_ids = lru_cache(maxsize=64)(self.stop_ids.union)
        self._vocabulary = loading.vocabulary_size(self.model)
        on_cpu = self._device.type == "cpu"
        size = self.model.num_parameters()
        if prefill_tokens is None:
            prefill_tokens = 2048 if on_cpu else 65_536 if size < LARGE_MODEL else 16_384
        self._select_scheduler = partial(
            select_scheduler,
            self.model,
            self._device,
            only=runner,
            kv_cache_gb=kv_cache_gb,
            context=loading.context_length(self.model, max_context),
            max_running=max_running,
            prefill_tokens=prefill_tokens,
        )
        with current_device(self._device):
            self._scheduler, self.max_context = self._select_scheduler()
        self._worker_tokenizer: Any = None  # a copy, because fast tokenizers cannot be used by two threads at once
        self.version = 0

        self._lock = threading.Lock()  # guards the attributes below; never held during a step
        self._inbox: deque[GenerationRequest] = deque()
        self._closed_conversations: deque[Hashable] = deque()
        self._working = False  # the worker is in its loop, or about to enter it
        self._pauses = 0
        self._closed = False
        # Tasks that wait until the worker's loop has ended.
        self._stop_waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._computed_version = 0  # version of the weights that the cache was computed with
        self._lockstep = lockstep
        self._submitted = 0
        self._driver: asyncio.Task[None] | None = None
        self._admission = AdmissionGate() if launch_bound(self._device) and not lockstep else None
        if not on_cpu:
            # While the event loop is busy, the worker and the GPU wait up to this long before every call into torch.
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        if threads is None and on_cpu and size < SMALL_MODEL:
            threads = 1
        self._worker = ThreadPoolExecutor(1, "palestra-engine", set_up_thread, (self._device, threads))

    @property
    def runner(self) -> str:
        """Name of the selected runner: "paged", "native", "transformers" or "recompute"."""
        return self._scheduler.runner.name

    @property
    def stats(self) -> EngineStats:
        """Counters of steps, tokens and cache entries since the engine was created."""
        return replace(self._scheduler.stats)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        """Sample a reply. Its `version` is the version of the weights that sampled its first token.

        Raises BadValue if the prompt is empty, too long or contains unknown ids, and EngineFailed if the model raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        ids = list(prompt_ids)
        try:
            prompt = array("I", ids).tobytes()  # "I" is the fastest type
        except OverflowError:
            raise self._unknown_ids(ids) from None
        seed = None if sampling.seed is None else hash_seed(sampling.seed)
        waiter = FutureWaiter(loop, future)
        request = self.make_request(prompt, sampling, ids=ids, key=conversation, waiter=waiter, seed=seed)
        self.submit([request])
        try:
            await future
        except asyncio.CancelledError:
            self.cancel(request)
            raise
        return self._completion(request)

    def forget(self, conversation: Hashable) -> None:
        """Free a finished conversation's cache before the next step."""
        with self._lock:
            self._closed_conversations.append(conversation)
        if self._admission is not None:
            self._admission.conversation_closed(conversation)

    async def publish(self, weights: Weights | None, version: int) -> None:
        """Use new weights from the next step on, and discard everything cached from the old ones.

        If `weights` is None, the trainer must have changed `model`'s tensors in place while the engine was paused.
        Otherwise the named tensors are copied into `model`.
        """
        if version <= self.version:
            raise BadValue(f"version must exceed the current version {self.version}, got {version}")
        if weights is None:
            with self._lock:
                self.version = version
            return
        from palestra.engines.local.loading import copy_weights

        async with self.paused():
            copy_weights(self.model, weights)
            with self._lock:
                self.version = version

    async def pause(self) -> None:
        """Wait until no step is running. No step starts until `resume` has been called as many times as `pause`."""
        with self._lock:
            self._pauses += 1
        try:
            await self._wait_until_stopped()
        except asyncio.CancelledError:
            await self.resume()
            raise

    async def resume(self) -> None:
        """Undo one `pause`."""
        with self._lock:
            if self._pauses == 0:
                raise BadValue("resume() was called without a matching pause()")
            self._pauses -= 1
            self._start()

    async def release_memory(self) -> None:
        """Free a GPU's KV cache until the next request, so that a learner can use its memory. Does nothing on a CPU."""
        if self._device.type != "cpu":
            async with self.paused():
                self._scheduler.release_memory()

    async def aclose(self) -> None:
        """Stop the worker and free the cache; requests in progress raise EngineFailed."""
        with self._lock:
            self._closed = True
        await self._wait_until_stopped()
        self._worker.shutdown(wait=True)  # the worker is idle, so this returns immediately
        with self._lock:
            self._scheduler.add(self._inbox)
            self._inbox.clear()
        self._deliver(self._scheduler.abort("the engine was closed"))
        self._scheduler.close()

    # Methods that run in the event loop

    def make_request(
        self,
        prompt: bytes,
        sampling: Sampling,
        *,
        key: Hashable | None,
        waiter: Waiter,
        seed: int | None,
        max_tokens: int | None = None,
        ids: list[int] | None = None,
        number: int = -1,
    ) -> GenerationRequest:
        """Return a request for `submit`. `max_tokens` and `seed` (see `hash_seed`) replace those in `sampling`.

        `prompt` contains the ids as 32-bit integers; `ids` is the same as a list, if known. `waiter` may use `number`.
        """
        count = len(prompt) // 4
        if not count:
            raise BadValue("the prompt is empty; it must have at least one token")
        assert self.max_context is not None  # noqa: S101  set in the constructor
        if count >= self.max_context:
            raise BadValue(
                f"the prompt has {count} tokens, but prompt and reply together may have at most {self.max_context}"
            )
        stop_strings = None
        if sampling.stop:
            if self.tokenizer is None:
                raise BadValue("stop strings need a tokenizer; pass tokenizer= to the engine, or use stop_ids")
            if self._worker_tokenizer is None:
                from palestra.engines.local.loading import private_copy

                self._worker_tokenizer = private_copy(self.tokenizer)
            stop_strings = StopStrings(self._worker_tokenizer, sampling.stop)
        return self._request_type(
            prompt,
            sampling,
            ids=ids,
            key=key,
            max_length=min(count + (max_tokens or sampling.max_tokens), self.max_context),
            stop_ids=self._all_stop_ids(sampling.stop_ids),
            waiter=waiter,
            number=number,
            stop_strings=stop_strings,
            seed=seed,
        )

    def _unknown_ids(self, ids: list[int]) -> BadValue:
        return BadValue(f"prompt ids must be in 0..{self._vocabulary - 1}, got {min(ids)}..{max(ids)}")

    def error_of(self, request: GenerationRequest) -> BadValue | EngineFailed | None:
        """Return the error that ended a request; None if it has a reply."""
        if request.error is None and request.finish is not None and request.version is not None:
            return None
        prompt = request.ids[: request.prompt_length]
        if max(prompt) >= self._vocabulary:
            return self._unknown_ids(prompt)
        return EngineFailed(request.error or "the request ended without a result")

    def _completion(self, request: GenerationRequest) -> Completion:
        error = self.error_of(request)
        if error is not None:
            raise error
        assert request.finish is not None and request.version is not None  # noqa: S101, PT018  there is no error
        request.unpack_reply()
        ids = request.ids[request.prompt_length :]
        text, stopped = self._text.read(ids, request.stop_ids, request.sampling.stop)
        return Completion(
            ids=ids,
            logprobs=request.logprobs,
            text=text,
            finish="stop" if stopped else request.finish,
            version=request.version,
            prompt_ids=request.ids[: request.prompt_length],
        )

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Start requests; each one's waiter is called when it has finished."""
        with self._lock:
            if self._closed:
                raise EngineFailed("the engine is closed")
            self._inbox += requests
            self._submitted += len(requests)
            if self._admission is not None:
                for request in requests:
                    if not request.waiter.remote:
                        self._admission.request_submitted(request.waiter.loop, request.key)
            self._start()

    def cancel(self, request: GenerationRequest) -> None:
        """Drop a request before the next step; its waiter is not called unless it has already finished."""
        self._scheduler.cancel(request)

    def _start(self) -> None:
        """Start the worker if there is work for it. The caller holds the lock."""
        if not (self._working or self._pauses or self._closed) and (self._inbox or not self._scheduler.idle):
            self._working = True
            if self._lockstep:
                self._driver = asyncio.get_running_loop().create_task(self._run_lockstep())
            else:
                self._worker.submit(self._run)

    async def _wait_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._working:
                return
            future: asyncio.Future[None] = loop.create_future()
            self._stop_waiters.append((loop, future))
        await future

    # Methods that run in the worker thread, except `_run_lockstep`

    def _run(self) -> None:
        """Run steps until no requests remain, or until the engine is paused or closed."""
        admission = self._admission
        if admission is None:
            while self._step():
                pass
            return
        while True:
            admission.wait(lambda: self._scheduler.running + len(self._inbox), self._must_step)
            if not self._step():
                return

    def _must_step(self) -> bool:
        return self._pauses > 0 or self._closed or self._scheduler.starving

    async def _run_lockstep(self) -> None:
        """Run steps from the event loop; before each step, wait until no task sends further requests."""
        try:
            active = True
            while active:
                quiet_rounds = 0
                while quiet_rounds < QUIET_ROUNDS:
                    before = self._submitted
                    await asyncio.sleep(0)
                    quiet_rounds = quiet_rounds + 1 if self._submitted == before else 0
                active = self._worker.submit(self._step).result()  # blocks the event loop on purpose
        except asyncio.CancelledError:
            with self._lock:
                self._mark_stopped()  # the event loop is ending; another one may use the engine later
            raise

    def _step(self) -> bool:
        """Run one step. Return False if there was nothing to run."""
        scheduler = self._scheduler
        with self._lock:
            unknown = self._with_unknown_ids(self._inbox, self._vocabulary)  # all prompts at once, which is faster
            if unknown:
                self._deliver(unknown)  # `_completion` raises an error
            scheduler.add(request for request in self._inbox if request not in unknown)
            self._inbox.clear()
            stopping = self._pauses or self._closed
            if (stopping and not scheduler.in_flight) or scheduler.idle:
                self._mark_stopped()
                return False
            closed_conversations = list(self._closed_conversations)
            self._closed_conversations.clear()
            version = self.version
        try:
            for key in closed_conversations:
                scheduler.forget(key)
            if stopping:
                self._deliver(scheduler.drain())
                return True
            if version != self._computed_version:
                self._computed_version = version
                scheduler.invalidate()
                if not scheduler.runner.reload_weights():
                    requests = scheduler.take_requests()
                    scheduler.close()
                    self._scheduler, _ = self._select_scheduler()
                    scheduler = self._scheduler
                    scheduler.add(requests)
            finished = scheduler.step(version)
        except Exception as err:  # noqa: BLE001  every waiting request must get a result
            finished = scheduler.abort(f"the engine failed: {type(err).__name__}: {err}")
        self._deliver(finished)
        return True

    def _mark_stopped(self) -> None:
        """Record that no step is running, and wake the tasks waiting for that. The caller holds the lock."""
        self._working = False
        waiters, self._stop_waiters = self._stop_waiters, []
        for loop, future in waiters:
            call_in_loop(loop, resolve, future)

    def _deliver(self, requests: list[GenerationRequest]) -> None:
        """Pass finished requests to their waiters; each waiter is called in its own event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[GenerationRequest]] = {}
        for request in requests:
            by_loop.setdefault(request.waiter.loop, []).append(request)
        for loop, finished in by_loop.items():
            if self._admission is not None:
                keys = [request.key for request in finished if not request.waiter.remote]
                if keys:
                    self._admission.requests_finished(loop, keys)
            call_in_loop(loop, notify, finished)
