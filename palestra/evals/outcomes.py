"""Extract the fields needed for statistics from stored episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from palestra.errors import ParsingFailed
from palestra.rollout.store import read_json

EPISODES = "episodes.jsonl"
Key = tuple[int, int, int]  # suite entry, seed, attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one episode."""

    entry: int  # index of the suite entry
    seed: int
    task_id: str  # fingerprint of the task, if the environment reports one
    member: int  # number of the attempt at the task
    success: bool | None  # None if the episode failed
    reward: float  # total reward
    score: float  # the last turn's grade if the environment reports one, otherwise 1 for success and 0 for failure
    turns: int
    tokens_read: int | None  # None if the engine reports no token counts
    tokens_written: int | None
    tool_calls: int
    empty: int  # number of empty replies from a server; such a reply ends the episode
    cut: int  # number of replies that reached the maximum length
    invalid: int  # number of actions that could not be parsed or broke the rules
    ending: str  # how the episode ended, for example "solved", "lost" or "horizon"
    truncated: bool
    boundary: str | None  # component that failed, if the episode failed
    kind: str  # exception type of the failure
    message: str
    attempts: int  # number of times that the episode was played, including retries after infrastructure failures
    started: float  # seconds since the epoch
    seconds: float
    agent_seconds: float
    env_seconds: float

    @property
    def key(self) -> Key:
        return self.entry, self.seed, self.member

    @property
    def failed(self) -> bool:
        return self.boundary is not None


def outcome(episode: Mapping[str, Any]) -> Outcome:
    """Extract the outcome of a stored episode; raise ParsingFailed if the data is invalid."""
    try:
        turns = episode["turns"]
        failure = episode["failure"]
        last: Mapping[str, Any] = turns[-1]["info"] if turns else {}
        success = episode["success"]
        score = last.get("score")
        read, written = _tokens(turns)
        return Outcome(
            entry=episode["meta"].get("entry", 0),
            seed=episode["seed"],
            task_id=episode.get("task_id", ""),
            member=episode["member"],
            success=None if failure is not None else bool(success),
            reward=sum(turn["reward"] for turn in turns),
            score=float(score) if isinstance(score, (int, float)) and isfinite(score) else float(bool(success)),
            turns=len(turns),
            tokens_read=read,
            tokens_written=written,
            tool_calls=_tool_calls(turns),
            empty=sum(call["finish"] == "empty" for call in _calls(turns)),
            cut=sum(call["finish"] == "length" for call in _calls(turns)),
            invalid=sum("invalid" in turn["info"] for turn in turns),
            ending=str(last.get("ending", "")),
            truncated=bool(turns) and bool(turns[-1]["truncated"]),
            boundary=None if failure is None else failure["boundary"],
            kind="" if failure is None else failure["kind"],
            message="" if failure is None else failure["message"],
            attempts=episode["attempts"],
            started=episode["started"],
            seconds=episode["seconds"],
            agent_seconds=sum(turn["agent_seconds"] for turn in turns),
            env_seconds=sum(turn["env_seconds"] for turn in turns),
        )
    except (KeyError, TypeError, AttributeError) as err:
        raise ParsingFailed(f"not a stored episode: {type(err).__name__}: {err}") from err


def read_outcomes(folder: Path) -> dict[Key, Outcome]:
    """Return one outcome per episode; later attempts replace failed outcomes but not finished ones."""
    path = folder / EPISODES
    return latest(outcome(data) for data in read_json(path)) if path.exists() else {}


def latest(outcomes: Iterable[Outcome]) -> dict[Key, Outcome]:
    by_key: dict[Key, Outcome] = {}
    for one in outcomes:
        before = by_key.get(one.key)
        if before is None or before.failed:
            by_key[one.key] = one
    return by_key


def _calls(turns: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for turn in turns:
        yield from turn["calls"]


def _tokens(turns: Iterable[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """Return the number of prompt tokens and the number of sampled tokens, summed over all model calls."""
    read = written = 0
    asked = False
    for call in _calls(turns):
        asked = True
        usage = call.get("usage")
        if usage is not None:
            read, written = read + usage[0], written + usage[1]
        elif call["ids"]:
            read, written = read + call["prefix_tokens"] + len(call["prompt_ids"]), written + len(call["ids"])
        else:
            return None, None
    return (read, written) if asked else (0, 0)


def _tool_calls(turns: list[Mapping[str, Any]]) -> int:
    """Return the number of tool calls that the environment reports, or else count native tool calls in the replies."""
    used = next(
        (turn["info"]["tool_calls_used"] for turn in reversed(turns) if "tool_calls_used" in turn["info"]), None
    )
    return int(used) if used is not None else sum(len(turn["tool_calls"]) for turn in turns)
