"""Child process that runs one side of rollout.py, or its server. Commands and replies are JSON Lines.

Run with Palestra (`python rollout_side.py ours`; also `bare` and `server`) or with verifiers installed (`verifiers`).
Every side plays the same conversation: a game's prompt, five guesses, and the observation after each guess.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

from sides import serve_commands

TURNS = 5
GAME = "game:GuessTheNumber-v0-easy"
LEVEL: dict[str, Any] = {
    "min_number": 1,
    "max_number": 10**9,
    "max_turns": TURNS,
}  # the range is so large that the guesses 1 to 5 are wrong
SAMPLING: dict[str, Any] = {"temperature": 1.0, "max_tokens": 64}
STEP_SECONDS = 0.2  # time that a slow env sleeps per step
SLOW_ONE_IN = 32  # one in this many envs is slow
REPLY_SECONDS = 0.1  # time per reply in the measurement with slow envs


def guess(turn: int) -> str:
    return f"It is a large interval, so I try one number after the other: \\boxed{{{turn + 1}}}"


class Stub(asyncio.Protocol):
    """Minimal OpenAI server: HTTP/1.1 with keep-alive; each reply is the guess for the current turn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
            self.transport.write(MODELS if head.startswith(b"get") else REPLIES[body.count(b'"assistant"')])


def _http(data: dict[str, Any]) -> bytes:
    body = json.dumps(data).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


MODELS = _http({"object": "list", "data": [{"id": "stub", "object": "model"}]})
REPLIES = [
    _http(
        {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": "stub",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": guess(turn)},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 150, "completion_tokens": 20, "total_tokens": 170},
        }
    )
    for turn in range(TURNS)
]


class Side(ABC):
    """One side of the benchmark, which plays rollouts against the server and measures their rate."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def load(self, url: str, messages: list[str]) -> None:
        """Prepare the side. `messages` are the prompt and the observations, for sides that do not run the game."""
        self.url, self.messages = url, messages

    @abstractmethod
    async def play(self, episodes: int, concurrency: int) -> int:
        """Play rollouts and return the number of complete ones."""

    def rollouts(self, episodes: int, concurrency: int) -> dict[str, float]:
        return self._timed(episodes, lambda: self.play(episodes, concurrency))

    def _timed(self, episodes: int, play: Callable[[], Any]) -> dict[str, float]:
        gc.collect()  # prevents collection of the previous run's garbage during this run
        started, cpu_started = perf_counter(), process_time()
        complete = self.runner.run(play())
        seconds, cpu = perf_counter() - started, process_time() - cpu_started
        if complete != episodes:
            raise RuntimeError(f"{complete} of {episodes} rollouts have {TURNS} turns")
        return {"rate": episodes / seconds, "cpu_ms": cpu / episodes * 1e3}


class Bare(Side):
    """Client that only posts the requests."""

    async def play(self, episodes: int, concurrency: int) -> int:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=concurrency)
        remaining, complete = iter(range(episodes)), 0
        async with aiohttp.ClientSession(connector=connector) as session:

            async def work() -> None:
                nonlocal complete
                for _ in remaining:
                    messages = [{"role": "user", "content": self.messages[0]}]
                    for turn in range(TURNS):
                        body = {"model": "stub", "messages": messages, **SAMPLING}
                        async with session.post(f"{self.url}/chat/completions", json=body) as response:
                            reply = await response.json()
                        messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
                        messages.append({"role": "user", "content": self.messages[turn + 1]})
                    complete += len(messages) == 2 * TURNS + 1

            await asyncio.gather(*(work() for _ in range(concurrency)))
        return complete


class Ours(Side):
    def load(self, url: str, messages: list[str]) -> None:
        import palestra
        from palestra.core import Wrapper
        from palestra.types import Step

        class SlowSteps(Wrapper):
            async def astep(self, action: str) -> Step:
                await asyncio.sleep(STEP_SECONDS)
                return await super().astep(action)

        super().load(url, messages)
        self.palestra, self.slow_steps = palestra, SlowSteps
        self.engine = palestra.engines.OpenAIEngine(base_url=url, model="stub", api_key="none")
        self.agent = palestra.agents.ChatAgent(self.engine, **SAMPLING)

    def conversation(self) -> list[str]:
        import palestra

        env = palestra.make(GAME, **LEVEL)
        prompt, _ = env.reset(seed=0)
        return [str(prompt), *(str(env.step(guess(turn)).observation) for turn in range(TURNS))]

    async def play(self, episodes: int, concurrency: int) -> int:
        return await self._collect(self.agent, GAME, episodes=episodes, concurrency=concurrency, kwargs=LEVEL)

    def slow(self, episodes: int, concurrency: int, slow_envs: bool) -> dict[str, float]:
        """Measure rollouts with slow replies; with `slow_envs`, one env in SLOW_ONE_IN sleeps at every step."""
        replies = self.palestra.engines.ScriptedEngine(lambda messages: guess(len(messages) // 2), delay=REPLY_SECONDS)
        agent = self.palestra.agents.ChatAgent(replies, **SAMPLING)
        created = itertools.count()

        def make() -> Any:
            env = self.palestra.make(GAME, **LEVEL)
            return self.slow_steps(env) if slow_envs and next(created) % SLOW_ONE_IN == 0 else env

        return self._timed(episodes, lambda: self._collect(agent, make, episodes=episodes, concurrency=concurrency))

    async def _collect(self, agent: Any, env: Any, **options: Any) -> int:
        result = await self.palestra.rollout.collect(agent, env, seed=0, **options)
        return sum(len(trajectory.turns) == TURNS for trajectory in result.trajectories)


class Verifiers(Side):
    """A verifiers MultiTurnEnv with its own client. Episodes are scored one by one, which is faster in verifiers."""

    def load(self, url: str, messages: list[str]) -> None:
        verifiers: Any = import_module("verifiers")
        observations = messages

        class Guesses(verifiers.MultiTurnEnv):  # type: ignore[misc]
            async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
                del messages
                return [verifiers.UserMessage(content=observations[len(state["trajectory"])])]

        async def reward(**_: Any) -> float:
            return 0.0

        super().load(url, messages)
        self.prompt = [{"role": "user", "content": messages[0]}]
        dataset = import_module("datasets").Dataset.from_list([{"prompt": self.prompt, "answer": ""}])
        self.env = Guesses(dataset=dataset, rubric=verifiers.Rubric(funcs=[reward]), max_turns=TURNS)
        self.client = import_module("verifiers.types").ClientConfig(api_base_url=url, api_key_var="NO_KEY")

    async def play(self, episodes: int, concurrency: int) -> int:
        inputs = [{"prompt": self.prompt, "answer": "", "example_id": number} for number in range(episodes)]
        outputs = await self.env.generate(
            inputs,
            self.client,
            "stub",
            sampling_args=SAMPLING,
            max_concurrent=concurrency,
            independent_scoring=True,
            state_columns=["trajectory"],
            on_progress=lambda *_: None,
        )
        return sum(len(output["trajectory"]) == TURNS for output in outputs["outputs"])


def main() -> None:
    name = sys.argv[1]
    if name == "server":
        asyncio.run(serve(sys.stdout))
        return
    sides: dict[str, type[Bare | Ours | Verifiers]] = {"bare": Bare, "ours": Ours, "verifiers": Verifiers}
    serve_commands(sides[name]).runner.close()


async def serve(replies: Any) -> None:
    """Write the port to `replies`, then serve until the driver closes standard input."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=1024)
    replies.write(json.dumps({"ok": server.sockets[0].getsockname()[1]}) + "\n")
    replies.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    main()
