"""One side of rollout.py, or the server, in a process of its own: reads a JSON command a line, answers a line.

Run with Palestra (`python rollout_side.py ours`; also `bare` and `server`) or with verifiers installed (`verifiers`).
Every side plays the same conversation: a game's prompt, five guesses, and the game's answer to each.
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
}  # the guesses 1 to 5 are all but never right
SAMPLING: dict[str, Any] = {"temperature": 1.0, "max_tokens": 64}
NAP = 0.2  # seconds that a slow env sleeps a step
ONE_IN = 32  # envs that do
REPLY = 0.1  # seconds, where replies take time


def guess(turn: int) -> str:
    return f"It is a large interval, so I try one number after the other: \\boxed{{{turn + 1}}}"


class Stub(asyncio.Protocol):
    """As little as an OpenAI server can do: HTTP/1.1 that is kept alive, and the guess whose turn it is."""

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
    """Plays rollouts against the server; `rollouts` says how fast."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def load(self, url: str, said: list[str]) -> None:
        """`said`: the prompt and the game's answers, for sides that do not have the game."""
        self.url, self.said = url, said

    @abstractmethod
    async def play(self, episodes: int, concurrency: int) -> int:
        """How many rollouts have all their turns."""

    def rollouts(self, episodes: int, concurrency: int) -> dict[str, float]:
        return self._timed(episodes, lambda: self.play(episodes, concurrency))

    def _timed(self, episodes: int, play: Callable[[], Any]) -> dict[str, float]:
        gc.collect()  # what the last run left is not this one's
        began, cpu = perf_counter(), process_time()
        whole = self.runner.run(play())
        took, worked = perf_counter() - began, process_time() - cpu
        if whole != episodes:
            raise RuntimeError(f"{whole} of {episodes} rollouts have {TURNS} turns")
        return {"rate": episodes / took, "cpu_ms": worked / episodes * 1e3}


class Bare(Side):
    """The posts and nothing else."""

    async def play(self, episodes: int, concurrency: int) -> int:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=concurrency)
        left, whole = iter(range(episodes)), 0
        async with aiohttp.ClientSession(connector=connector) as session:

            async def work() -> None:
                nonlocal whole
                for _ in left:
                    messages = [{"role": "user", "content": self.said[0]}]
                    for turn in range(TURNS):
                        body = {"model": "stub", "messages": messages, **SAMPLING}
                        async with session.post(f"{self.url}/chat/completions", json=body) as response:
                            answer = await response.json()
                        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
                        messages.append({"role": "user", "content": self.said[turn + 1]})
                    whole += len(messages) == 2 * TURNS + 1

            await asyncio.gather(*(work() for _ in range(concurrency)))
        return whole


class Ours(Side):
    def load(self, url: str, said: list[str]) -> None:
        import palestra
        from palestra.core import Wrapper
        from palestra.types import Step

        class Sleeps(Wrapper):
            async def astep(self, action: str) -> Step:
                await asyncio.sleep(NAP)
                return await super().astep(action)

        super().load(url, said)
        self.palestra, self.sleeps = palestra, Sleeps
        self.engine = palestra.engines.OpenAIEngine(base_url=url, model="stub", api_key="none")
        self.agent = palestra.agents.ChatAgent(self.engine, **SAMPLING)

    def conversation(self) -> list[str]:
        import palestra

        env = palestra.make(GAME, **LEVEL)
        prompt, _ = env.reset(seed=0)
        return [str(prompt), *(str(env.step(guess(turn)).observation) for turn in range(TURNS))]

    async def play(self, episodes: int, concurrency: int) -> int:
        return await self._collect(self.agent, GAME, episodes=episodes, concurrency=concurrency, kwargs=LEVEL)

    def slow(self, episodes: int, concurrency: int, naps: bool) -> dict[str, float]:
        """Replies that take as long as a model's; with `naps`, one env in ONE_IN sleeps at every step."""
        replies = self.palestra.engines.ScriptedEngine(lambda messages: guess(len(messages) // 2), delay=REPLY)
        agent = self.palestra.agents.ChatAgent(replies, **SAMPLING)
        made = itertools.count()

        def make() -> Any:
            env = self.palestra.make(GAME, **LEVEL)
            return self.sleeps(env) if naps and next(made) % ONE_IN == 0 else env

        return self._timed(episodes, lambda: self._collect(agent, make, episodes=episodes, concurrency=concurrency))

    async def _collect(self, agent: Any, env: Any, **options: Any) -> int:
        result = await self.palestra.rollout.collect(agent, env, seed=0, **options)
        return sum(len(trajectory.turns) == TURNS for trajectory in result.trajectories)


class Verifiers(Side):
    """Its MultiTurnEnv, its client and its `generate`; scored one by one, which is the quicker of its two ways."""

    def load(self, url: str, said: list[str]) -> None:
        verifiers: Any = import_module("verifiers")

        class Guesses(verifiers.MultiTurnEnv):  # type: ignore[misc]
            async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
                del messages
                return [verifiers.UserMessage(content=said[len(state["trajectory"])])]

        async def reward(**_: Any) -> float:
            return 0.0

        super().load(url, said)
        self.prompt = [{"role": "user", "content": said[0]}]
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


async def serve(answers: Any) -> None:
    """Say the port, then serve until the driver hangs up."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=1024)
    answers.write(json.dumps({"ok": server.sockets[0].getsockname()[1]}) + "\n")
    answers.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    main()
