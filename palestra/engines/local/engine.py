"""The engine that runs a Hugging Face model in this process, on a CPU or a GPU, for many conversations at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from palestra.engines.base import Completion, PolicyEngine, Sampling, Weights
from palestra.engines.local.admission import SETTLED, Settling
from palestra.errors import BadValue, EngineFailed
from palestra.optional import require

if TYPE_CHECKING:
    from palestra.engines.local.scheduler import Request, Stats

SMALL = 20_000_000  # parameters; below, threads of torch wait for each other longer than they compute
LARGE = 500_000_000  # parameters; from here on a GPU has enough to do with few tokens

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class LocalEngine(PolicyEngine):
    """Runs `model` (a folder, a hub id, or a loaded transformers model with its `tokenizer`) with continuous batching.

    Up to `slots` requests run at once, in one batch: each step gives every one of them a token; those that are done
    leave and waiting ones join at once. What was computed for a conversation (requests with the same `conversation`)
    stays cached, in `cache_gb` of memory, until the room is needed, the longest idle going first; its next one reads
    only what is new. Prompts that begin alike share what they have in common. A step reads at most `prefill` tokens of
    prompts beside the tokens it decodes.

    The steps run in a thread of their own, so the event loop stays free; event loops may come and go. There torch uses
    `threads` threads: by default one for a small model on a CPU, and else what torch is set to.

    Models of the Llama family (Llama, Mistral, Qwen2, Qwen3) run through a lean decoder on the model's own parameters;
    others through their forward pass in transformers; those that keep more than keys and values are computed without a
    cache. `decoder` says which ("lean", "cached", "recomputing") and may be given.

    With `lockstep` the event loop waits for each step, which is made when everybody who can act has acted. Nothing else
    moves meanwhile, but batches do not depend on which thread was faster: where environments answer at once and
    requests carry seeds, a run repeats bit for bit.

    `model` may be trained in the same process: hold `paused()` while its weights change, then `publish(None, version)`.
    """

    shares_weights = True

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        device: str = "auto",
        dtype: str | None = None,
        slots: int = 256,
        max_context: int | None = None,
        cache_gb: float | None = None,
        prefill: int | None = None,
        threads: int | None = None,
        eos_ids: Sequence[int] | None = None,
        decoder: Literal["lean", "cached", "recomputing"] | None = None,
        lockstep: bool = False,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("slots", slots), ("prefill", prefill), ("threads", threads)):
            if value is not None and value < 1:
                raise BadValue(f"{name} is 1 or more, got {value}")
        if cache_gb is not None and cache_gb <= 0:
            raise BadValue(f"cache_gb is more than 0, got {cache_gb}")
        if decoder not in (None, "lean", "cached", "recomputing"):
            raise BadValue(f"decoder is 'lean', 'cached', 'recomputing' or None, got {decoder!r}")
        for package in ("torch", "transformers", "tokenizers"):
            require(package, extra="hf")
        from palestra.engines.local import loading
        from palestra.engines.local.kv_cache import Arena
        from palestra.engines.local.runner import choose, dear_calls
        from palestra.engines.local.scheduler import Batcher

        self.model, self.tokenizer, self._device = loading.load(
            model, tokenizer=tokenizer, device=device, dtype=dtype, options=load_options or {}
        )
        self._stop_ids = loading.stop_ids(self.model, self.tokenizer) if eos_ids is None else frozenset(eos_ids)
        self._vocabulary = loading.vocabulary_size(self.model)
        arena = Arena(most=128)  # enough to try a runner; how much there is room for is known when one was tried
        self._choose = partial(choose, self.model, arena, self._device, decoder)
        runner = self._choose()
        arena.limit(_room(cache_gb, self._device, arena.bytes_per_token))
        if arena.most == 0:
            raise BadValue(
                f"a cache of {cache_gb} GB holds no text at {arena.bytes_per_token} bytes a token; raise cache_gb"
            )
        context = loading.context_length(self.model, max_context)
        self.max_context = min(context or arena.largest, arena.largest)
        on_cpu = self._device.type == "cpu"
        size = self.model.num_parameters()
        if prefill is None:
            prefill = 2048 if on_cpu else 65_536 if size < LARGE else 8192
        self._batcher = Batcher(runner, arena, rows=slots, budget=prefill)
        self._decoding_tokenizer: Any = None  # of the worker: fast tokenizers refuse to be used by two threads at once
        self.version = 0

        self._lock = threading.Lock()  # holds the five below; never held during a step
        self._inbox: deque[Request] = deque()
        self._forgotten: deque[Hashable] = deque()
        self._working = False  # the worker is in, or on its way into, its loop
        self._pauses = 0
        self._closed = False
        self._waiters: list[Waiter] = []  # for the worker to leave its loop
        self._seen_version = 0
        self._lockstep = lockstep
        self._submitted = 0
        self._driver: asyncio.Task[None] | None = None
        self._settling = Settling() if dear_calls(self._device) and not lockstep else None
        if threads is None and on_cpu and size < SMALL:
            threads = 1
        self._worker = ThreadPoolExecutor(1, "palestra-hf", _set_threads, (threads,))

    @property
    def decoder(self) -> str:
        """How the model is run: "lean", "cached" or "recomputing"."""
        return self._batcher.runner.name

    @property
    def stats(self) -> Stats:
        """What the engine has done so far."""
        return replace(self._batcher.stats)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        """Sample a reply; one that spans a change of the weights carries the version it began with.

        Raises BadValue for a prompt that is empty, too long or not the model's ids; EngineFailed where the model broke.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        request = self._request(list(prompt_ids), sampling, conversation, (loop, future))
        self._submit(request)
        try:
            await future
        except asyncio.CancelledError:
            self._batcher.abandon(request)  # the worker frees its row before the next step
            raise
        return self._completion(request)

    def forget(self, conversation: Hashable) -> None:
        """The conversation is over: what is cached for it goes before the next step."""
        with self._lock:
            self._forgotten.append(conversation)
        if self._settling is not None:
            self._settling.forgotten(conversation)

    async def publish(self, weights: Weights | None, version: int) -> None:
        """Use new weights from the next step on, and compute nothing from the cache of the old ones.

        Without `weights` the trainer has already changed the tensors of `model`, while the engine was paused. With
        `weights` the named tensors are copied into `model` here.
        Requests in progress are recomputed and continue with the new weights.
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
        """Return once no step is running. No step starts until `resume` has been called as often as `pause`."""
        with self._lock:
            self._pauses += 1
        try:
            await self._stopped()
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

    async def aclose(self) -> None:
        """End the worker and give the cache's memory back; requests under way get EngineFailed."""
        with self._lock:
            self._closed = True
        await self._stopped()
        self._worker.shutdown(wait=True)  # it is idle, so this takes no time
        with self._lock:
            self._batcher.add(self._inbox)
            self._inbox.clear()
        self._deliver(self._batcher.abort("the engine was closed"))
        self._batcher.arena.clear()

    # A request, from the event loop's side.

    def _request(self, ids: list[int], sampling: Sampling, key: Hashable | None, deliver: Any) -> Request:
        from palestra.engines.local.scheduler import Request, within
        from palestra.engines.stop_strings import StopStrings

        if not ids:
            raise BadValue("the prompt is empty; a model needs at least one token to go on from")
        if not within(ids, self._vocabulary):
            raise BadValue(f"prompt ids lie in 0..{self._vocabulary - 1}, got {min(ids)}..{max(ids)}")
        assert self.max_context is not None  # noqa: S101  set in the constructor
        if len(ids) >= self.max_context:
            raise BadValue(
                f"the prompt has {len(ids)} tokens, but prompt and reply together have {self.max_context} at most"
            )
        watch = None
        if sampling.stop:
            if self.tokenizer is None:
                raise BadValue("stop strings need a tokenizer; give the engine one, or use stop_ids")
            if self._decoding_tokenizer is None:
                from palestra.engines.local.loading import private_copy

                self._decoding_tokenizer = private_copy(self.tokenizer)
            watch = StopStrings(self._decoding_tokenizer, sampling.stop)
        return Request(
            ids,
            sampling,
            key=key,
            limit=min(len(ids) + sampling.max_tokens, self.max_context),
            stop_ids=self._stop_ids.union(sampling.stop_ids) if sampling.stop_ids else self._stop_ids,
            deliver=deliver,
            watch=watch,
        )

    def _completion(self, request: Request) -> Completion:
        from palestra.engines.stop_strings import cut, text_of

        if request.error is not None or request.finish is None or request.version is None:
            raise EngineFailed(request.error or "the engine lost the request")
        ids = request.ids[request.prompt :]
        finish = request.finish
        said = ids[:-1] if ids[-1] in request.stop_ids else ids
        text = "" if self.tokenizer is None else text_of(self.tokenizer, said)
        if request.sampling.stop:
            text, stopped = cut(text, request.sampling.stop)
            finish = "stop" if stopped else finish
        return Completion(
            ids=ids,
            logprobs=request.logprobs,
            text=text,
            finish=finish,
            version=request.version,
            prompt_ids=request.ids[: request.prompt],
        )

    def _submit(self, request: Request) -> None:
        with self._lock:
            if self._closed:
                raise EngineFailed("the engine is closed")
            self._inbox.append(request)
            self._submitted += 1
            if self._settling is not None:
                self._settling.asked(request.deliver[0], request.key)
            self._start()

    def _start(self) -> None:
        """Have the worker enter its loop, if there is something to do; the lock is held."""
        if not (self._working or self._pauses or self._closed) and (self._inbox or not self._batcher.idle):
            self._working = True
            if self._lockstep:
                self._driver = asyncio.get_running_loop().create_task(self._drive())
            else:
                self._worker.submit(self._work)

    async def _stopped(self) -> None:
        """Wait for the worker to leave its loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._working:
                return
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, future))
        await future

    # The worker's side.

    def _work(self) -> None:
        """Step until there is nothing to do, or somebody wants the model for themselves."""
        settling = self._settling
        if settling is None:
            while self._step():
                pass
            return
        while True:
            settling.wait(lambda: self._batcher.running + len(self._inbox), lambda: self._pauses > 0 or self._closed)
            if not self._step():
                return

    async def _drive(self) -> None:
        """As `_work`, in the event loop: before each step, wait until nobody sends any more requests."""
        try:
            going = True
            while going:
                quiet = 0
                while quiet < SETTLED:
                    before = self._submitted
                    await asyncio.sleep(0)
                    quiet = quiet + 1 if self._submitted == before else 0
                going = self._worker.submit(self._step).result()  # nothing else moves meanwhile, as promised
        except asyncio.CancelledError:
            with self._lock:
                self._leave()  # the event loop ends; another one may come
            raise

    def _step(self) -> bool:
        """One step of the batch; False where there was none to make."""
        batcher = self._batcher
        with self._lock:
            batcher.add(self._inbox)
            self._inbox.clear()
            if self._pauses or self._closed or batcher.idle:
                self._leave()
                return False
            forgotten = list(self._forgotten)
            self._forgotten.clear()
            version = self.version
        try:
            for key in forgotten:
                batcher.forget(key)
            if version != self._seen_version:
                self._seen_version = version
                batcher.invalidate()
                if not batcher.runner.refresh():
                    batcher.runner = self._choose()
            done = batcher.step(version)
        except Exception as err:  # noqa: BLE001  nobody is left waiting, whatever happens
            done = batcher.abort(f"the engine failed: {type(err).__name__}: {err}")
        self._deliver(done)
        return True

    def _leave(self) -> None:
        """No step runs from here on, which some may be waiting for; the lock is held."""
        self._working = False
        waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            _call(loop, _resolve, [future])

    def _deliver(self, requests: list[Request]) -> None:
        """Wake those who wait, on their own event loops."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Request]] = {}
        for request in requests:
            by_loop.setdefault(request.deliver[0], []).append(request)
        for loop, done in by_loop.items():
            if self._settling is not None:
                self._settling.answered(loop, [request.key for request in done])
            _call(loop, _resolve, [request.deliver[1] for request in done])


def _call(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():  # then nobody waits there any more
            raise


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _set_threads(threads: int | None) -> None:
    """Have torch use so many threads for what this one computes, and for nobody else."""
    if threads is not None:
        import torch

        usual = torch.get_num_threads()
        torch.set_num_threads(threads)
        other = threading.Thread(target=torch.set_num_threads, args=(usual,))  # for threads that start from here on
        other.start()
        other.join()


def _room(cache_gb: float | None, device: Any, bytes_per_token: int) -> int:
    """How many tokens the cache may hold; by default up to 60% of a GPU's free memory, or 25% of the machine's."""
    if bytes_per_token == 0:
        return 1 << 40  # nothing is kept
    if cache_gb is not None:
        room = cache_gb * 2**30
    elif device.type == "cuda":
        import torch

        room = 0.6 * torch.cuda.mem_get_info(device)[0]
    else:
        room = 0.25 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(room) // bytes_per_token
