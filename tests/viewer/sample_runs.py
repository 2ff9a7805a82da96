"""Write sample runs for the viewer, with real episodes in the formats of training, evaluation and human play."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import palestra.engines
from palestra.agents import ChatAgent, ExpertAgent, RandomAgent
from palestra.agents.base import Agent
from palestra.engines import ByteTokenizer, ScriptedEngine
from palestra.rollout import Trajectory, Turn, Writer, collect
from palestra.types import Action, Call

TOKENIZER = Path(palestra.engines.__file__).parent / "data" / "tokenizer.json"
NASTY = "<img src=x onerror=alert(1)><script>alert(2)</script>"
GUESS = "game:GuessTheNumber-v0-easy"
CONFIG = {
    "env": {"name": [GUESS]},
    "model": {"name": "default:0.1M"},
    "sampling": {"episodes": 8},
    "algorithm": {"name": "rebn", "gamma": 0.5, "kl": 0.0, "kl_in": "loss", "normalize_per_env": True},
    "eval": {"target": 0.0},
    "run": {"steps": 6, "seed": 1},
}


def played(agent: Agent, env_id: str, episodes: int, *, seed: int = 3, **options: Any) -> list[Trajectory]:
    with ThreadPoolExecutor(1) as elsewhere:  # Playwright runs an event loop in this thread
        result = elsewhere.submit(
            lambda: asyncio.run(collect(agent, env_id, episodes=episodes, seed=seed, **options))
        ).result()
    return [*result.trajectories, *result.failures]


def store(path: Path, episodes: Iterable[Trajectory]) -> Path:
    with Writer(path) as writer:
        for episode in episodes:
            writer.write(episode)
    return path


def with_ids(episode: Trajectory, tokenizer: Tokenizer) -> Trajectory:
    """Add token ids and log-probabilities, as if a model had sampled the actions."""
    turns, context = [], list[int]()
    for turn in episode.turns:
        prompt = context + tokenizer.encode(str(turn.observation), add_special_tokens=False).ids
        ids = tokenizer.encode(turn.action.text, add_special_tokens=False).ids
        logprobs = [-0.1 * (i % 7) for i in range(len(ids))]
        call = Call(prompt_ids=prompt, ids=ids, logprobs=logprobs, finish="stop", version=1)
        turns.append(replace(turn, action=replace(turn.action, calls=(call,))))
        context = prompt + ids
    return replace(episode, turns=tuple(turns))


def training_step(run: Path, step: int, *, count: int = 8) -> list[Trajectory]:
    """Write the episodes and the metrics row for one training step."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    episodes = [
        replace(with_ids(t, tokenizer), meta={"step": step}) for t in played(RandomAgent(), GUESS, count, seed=step)
    ]
    store(run / "trajectories" / f"step-{step:06d}.jsonl.gz", episodes)
    row = {
        "step": step,
        "horizon": 2 if step < 2 else 4,
        "success": sum(bool(t.success) for t in episodes) / count,
        "return": sum(t.total_reward for t in episodes) / count,
        "tokens_per_episode": 8.0,
        "failures": 0,
        "entropy": 0.5 / (step + 1),
        "seconds_sampling": 1.0,
    }
    if step % 2:
        row |= {"eval_success": 0.2 + 0.1 * step, "eval_success_low": 0.1, "eval_success_high": 0.9}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    return episodes


def training_run(run: Path, *, steps: int = 4, **config: Any) -> Path:
    run.mkdir(parents=True)
    (run / "run.json").write_text(
        json.dumps({"config": CONFIG | config, "versions": {}, "command": ["palestra", NASTY]})
    )
    (run / "last").mkdir()
    (run / "last" / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    for step in range(steps):
        training_step(run, step)
    return run


def picture(color: tuple[int, int, int]) -> bytes:
    """Return a single-color PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(color) * 32 for _ in range(32))
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def nasty_episode() -> Trajectory:
    """Return an episode with images and with HTML markup in every text field."""
    turns = tuple(
        Turn(
            observation=[{"type": "text", "text": NASTY}, {"type": "image", "image": picture((200, 10 * i, 0))}],
            action=Action(text=f"</pre>{NASTY}"),
            reward=[-0.5, 1.0][i],
            terminated=i == 1,
            truncated=False,
            info={
                "note": NASTY,
                "success": True,
                "ending": NASTY,
                "tool_calls": [{"name": NASTY, "arguments": {"a": NASTY}}],
            },
            agent_seconds=0.1,
            env_seconds=0.2,
        )
        for i in range(2)
    )
    return Trajectory(
        env_id=f"web:{NASTY}",
        kwargs={"x": NASTY},
        seed=2**70 + 1,
        group=0,
        member=0,
        turns=turns,
        final_observation=NASTY,
        success=True,
        meta={"why": NASTY},
    )


def everything(folder: Path) -> Path:
    """Write a folder with runs of every kind."""
    training_run(folder / "trained")
    training_run(folder / "deeper" / "other", steps=2, algorithm={"name": "grpo"})
    games = ["game:Sokoban-v0-easy", "game:Sudoku-v0-easy"]
    store(folder / "expert" / "episodes.jsonl", [t for env in games for t in played(ExpertAgent(), env, 4)])
    store(folder / "random" / "episodes.jsonl", [t for env in games for t in played(RandomAgent(), env, 4)])
    broken = ChatAgent(ScriptedEngine("\\boxed{5}", tokenizer=ByteTokenizer(), fail_every=3))
    failed = played(broken, GUESS, 6, retries=0)
    assert any(t.failure for t in failed)
    store(folder / "failing" / "episodes.jsonl", failed)
    store(folder / "nasty" / "episodes.jsonl", [nasty_episode()])
    (folder / "nasty" / "run.json").write_text(json.dumps({"kind": "eval", "env": [NASTY], "agent": NASTY}))
    for agent in ("random", "expert"):
        palestra.evaluate(GUESS, agent, n=8, out=folder / "evaluated" / agent)
    store(folder / "loose.jsonl.gz", played(RandomAgent(), GUESS, 3))
    return folder
