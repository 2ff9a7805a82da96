"""Play episodes for other frameworks, which sample the replies and train on the tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from palestra.agents.chat import ChatAgent
from palestra.engines.base import Completion, Engine, Sampling, Tokenizer
from palestra.errors import BadValue, EnvFailed
from palestra.registry import EnvFactory
from palestra.rollout import collect
from palestra.rollout.samples import to_samples
from palestra.rollout.types import Task, Trajectory
from palestra.seeding import child_seed

# Maps prompt ids and sampling parameters to the sampled ids and their log-probabilities.
Sampler = Callable[[list[int], Sampling], Awaitable[tuple[Sequence[int], Sequence[float]]]]


class FrameworkEngine(Engine):
    """Engine that samples with a function from another framework."""

    def __init__(self, sample: Sampler, tokenizer: Tokenizer, *, max_context: int | None = None) -> None:
        self.tokenizer = self._tokenizer = tokenizer
        self.max_context = max_context
        self._sample = sample

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        conversation: Hashable | None = None,  # noqa: ARG002  # frameworks detect shared prefixes
    ) -> Completion:
        prompt = list(prompt_ids)
        sampled, logprobs = await self._sample(prompt, sampling)
        ids = [int(token) for token in sampled]
        stopped = bool(ids) and ids[-1] in {*sampling.stop_ids, self._tokenizer.eos_token_id}
        return Completion(
            ids=ids,
            logprobs=[float(value) for value in logprobs],
            text=str(self._tokenizer.decode(ids[:-1] if stopped else ids, skip_special_tokens=False)),
            finish="stop" if stopped else "length" if ids else "empty",
            version=self.version,
            prompt_ids=prompt,
        )


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The tokens of an episode as one prompt and one completion."""

    prompt_ids: list[int]
    completion_ids: list[int]  # all replies, with the environment's tokens between them
    logprobs: list[float]  # per completion token; 0 for tokens of the environment
    mask: list[int]  # 1 for sampled tokens, 0 for tokens of the environment
    turn_index: list[int]  # index of the turn that sampled the token; -1 for tokens of the environment


def token_row(trajectory: Trajectory) -> TokenRow:
    """Return an episode's tokens, for frameworks that train on one sequence per episode."""
    samples = to_samples(trajectory)
    if len(samples) != 1:
        raise BadValue(
            "this framework trains on one sequence per episode, but the chat template or context policy changes "
            'earlier turns; use context="full" and a template that only appends'
        )
    sample = samples[0]
    start = sample.mask.index(1)
    return TokenRow(
        sample.ids[:start],
        sample.ids[start:],
        sample.logprobs[start:],
        sample.mask[start:],
        sample.turn_index[start:],
    )


def env_tokens(prompt: Sequence[int], reply: Sequence[int], following: Sequence[int]) -> list[int]:
    """Return the tokens in the prompt `following` that the environment added after a prompt and its reply."""
    size = len(prompt) + len(reply)
    if list(following[:size]) != [*prompt, *reply]:
        raise BadValue(
            "this framework appends to the conversation, but the chat template or context policy changes earlier "
            'turns; use context="full" and a template that only appends'
        )
    return list(following[size:])


async def play_episode(
    engine: Engine,
    env: str,
    *,
    seed: int,
    kwargs: Mapping[str, Any] | None = None,
    member: int = 0,
    rollout: Mapping[str, Any] | None = None,
    **agent: Any,
) -> Trajectory:
    """Play one episode with the replies of `engine` and return it; raise EnvFailed if all attempts fail.

    `agent` options are those of `ChatAgent`, `rollout` options those of `collect`.
    """
    chat = ChatAgent(engine, **{"keep_thinking": True, **agent})
    task = Task(env_id=env, seed=seed, kwargs=dict(kwargs or {}), member=member)
    options: dict[str, Any] = {"concurrency": 1, **(rollout or {})}
    result = await collect(chat, [task], **options)
    if not result.trajectories:
        failure = result.failures[0].failure if result.failures else None
        reason = "no episode was started" if failure is None else f"{failure.kind}: {failure.message}"
        raise EnvFailed(f"the episode of {env} with seed {seed} failed: {reason}")
    return result.trajectories[0]


def task_seeds(env: str | Sequence[str], tasks: int, seed: int = 0) -> list[tuple[str, int]]:
    """Return the name of an environment and a seed for each task; several environments alternate."""
    names = [env] if isinstance(env, str) else list(env)
    if tasks < 1 or not names:
        raise BadValue(f"at least one environment and one task are required, got {names} and {tasks}")
    for name in names:
        EnvFactory.of(name)  # report an unknown name now
    return [(names[i % len(names)], child_seed(seed, "task", i) % 2**48) for i in range(tasks)]


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the rows of a dataset to a JSON Lines file and return its path."""
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return Path(path)


class SteppedEpisode:
    """Episode whose replies come from a framework that runs the loop of agent and environment itself.

    ```
    prompt_ids = await episode.start()
    while prompt_ids is not None:
        prompt_ids = await episode.reply(sample(prompt_ids))
    episode.trajectory
    ```

    Each prompt extends the previous prompt and reply, as in Palestra's own rollouts. A failed episode raises EnvFailed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        env: str,
        *,
        seed: int,
        kwargs: Mapping[str, Any] | None = None,
        max_context: int | None = None,
        **agent: Any,
    ) -> None:
        self.stop_ids: tuple[int, ...] = ()
        self.trajectory: Trajectory | None = None
        self._prompts: asyncio.Queue[list[int]] = asyncio.Queue()
        self._replies: asyncio.Queue[tuple[Sequence[int], Sequence[float]]] = asyncio.Queue()
        engine = FrameworkEngine(self._exchange, tokenizer, max_context=max_context)
        options: dict[str, Any] = {"max_tokens": 1, **agent}  # the framework limits the length of the replies
        self._play = partial(play_episode, engine, env, seed=seed, kwargs=kwargs, rollout={"retries": 0}, **options)
        self._task: asyncio.Task[Trajectory] | None = None

    async def start(self) -> list[int] | None:
        """Reset the environment and return the first prompt; None if it does not fit the context."""
        self._task = asyncio.create_task(self._play())
        return await self._next()

    async def reply(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> list[int] | None:
        """Pass a reply to the environment and return the next prompt, or None if the episode is over."""
        self._replies.put_nowait((ids, [0.0] * len(ids) if logprobs is None else logprobs))
        return await self._next()

    def finished(self) -> Trajectory:
        """Return the episode after its last reply."""
        if self.trajectory is None:
            raise BadValue("the episode is not over; call reply() until it returns None")
        return self.trajectory

    async def aclose(self) -> None:
        """Stop an unfinished episode. Idempotent."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _next(self) -> list[int] | None:
        if self._task is None:
            raise BadValue("call start() before reply()")
        prompt = asyncio.ensure_future(self._prompts.get())
        waiting: set[asyncio.Future[Any]] = {prompt, self._task}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if prompt.done():
            return prompt.result()
        prompt.cancel()
        self.trajectory = self._task.result()
        return None

    async def _exchange(self, prompt: list[int], sampling: Sampling) -> tuple[Sequence[int], Sequence[float]]:
        self.stop_ids = sampling.stop_ids
        self._prompts.put_nowait(prompt)
        return await self._replies.get()
