"""Test that with `send` and `recv` fast envs do not wait for slow ones, no result is lost, and order has no effect."""

from __future__ import annotations

import random
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.vector import EnvResult, VectorEnv, make_vec
from tests.vector.envs import Echo, Trouble
from tests.vector.test_lockstep import each_backend

GAMES = ["game:GuessTheNumber-v0-hard", "game:Mastermind-v0-easy", "game:Sokoban-v0-easy", "game:Hangman-v0-easy"]


@each_backend
def test_results_are_those_of_the_sent_actions(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=6, **how) as vec:
        vec.reset()
        assert vec.recv() == []  # no command is in flight
        vec.send({0: "a", 4: "a"})
        results = vec.recv(min_ready=2)
        assert sorted(item.index for item in results) == [0, 4]
        assert vec.recv(min_ready=16, timeout=5.0) == []
        vec.send({1: "a", 2: "a"})
        stepped = vec.step({5: "a"})  # a lock-step in the meantime returns only its own results
        assert len(stepped.observations) == 1
        assert sorted(item.index for item in vec.recv(min_ready=16)) == [1, 2]
        vec.send_reset([3, 0])
        firsts = vec.recv(min_ready=2)
        assert {item.observation[:5] for item in firsts} == {"start"}
        assert {(item.reward, item.done) for item in firsts} == {(0.0, False)}
        assert vec.in_flight == 0


@pytest.mark.parametrize("how", [{"backend": "thread"}, {"backend": "process", "workers": 2}], ids=str)
def test_recv_returns_what_is_ready_at_the_timeout(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=4, **how) as vec:
        vec.reset()
        vec.send(["a", "a", "sleep 30", "a"])
        results: list[EnvResult] = []
        while len(results) < 3:  # once, unless the machine is busy
            start = monotonic()
            results += vec.recv(min_ready=4, timeout=0.5)
            assert monotonic() - start < 20
        assert sorted(item.index for item in results) == [0, 1, 3]
        with pytest.raises(BadValue, match="env 2 has a command in flight"):
            vec.send({2: "b"})
        assert vec.recv(timeout=0.0) == []
        assert vec.in_flight == 1


@pytest.mark.parametrize("how", [{"backend": "thread"}, {"backend": "process", "workers": 1}], ids=str)
def test_fast_envs_overtake_slow_ones(how: dict[str, Any], tmp_path: Path) -> None:
    """Check that envs can take many steps while another env in the same worker waits in every step."""
    with make_vec(Trouble, num_envs=8, turns=10_000, **how) as vec:
        vec.reset()
        for turn in range(3):
            released = tmp_path / str(turn)
            vec.send([f"wait {released}" if i == 3 else "a" for i in range(8)])
            steps = {i: 0 for i in range(8) if i != 3}
            while min(steps.values()) < 30:
                results = vec.recv(timeout=120)
                assert results, "the other envs wait for the slow one"
                for item in results:
                    steps[item.index] += 1
                    if steps[item.index] < 30:
                        vec.send({item.index: "a"})
            released.touch()
            assert [item.index for item in vec.recv()] == [3]


def test_a_message_larger_than_any_buffer() -> None:
    long = "x" * 300_000
    with make_vec(Echo, num_envs=16, backend="process", workers=2) as vec:
        vec.reset()
        vec.send([f"{long}{i}" for i in range(16)])  # returns even though no reply has been read yet
        results = {item.index: item.observation for item in vec.recv(min_ready=16)}
        assert results == {i: f"{long}{i}" for i in range(16)}


def transcript(vec: VectorEnv, order: random.Random, steps: int = 12) -> list[list[Any]]:
    """Return the results of every env with random actions. `order` determines the order in which envs are stepped."""
    observations, _ = vec.reset()
    seen: list[list[Any]] = [[observation] for observation in observations]
    players = [random.Random(i) for i in range(vec.num_envs)]
    todo = list(range(vec.num_envs))
    while todo:
        order.shuffle(todo)
        batch, todo = todo[: order.randint(1, len(todo))], todo[:0]
        rest = [i for i in range(vec.num_envs) if i not in batch and len(seen[i]) <= steps]
        vec.send({i: f"play {players[i].randrange(100)} \\boxed{{{players[i].randrange(1, 9)}}}" for i in batch})
        for item in vec.recv(min_ready=order.randint(1, 8)):
            seen[item.index].append(item[1:5])
        while vec.in_flight:
            for item in vec.recv():
                seen[item.index].append(item[1:5])
        todo = [i for i in {*batch, *rest} if len(seen[i]) <= steps]
    return seen


@pytest.mark.parametrize("seed", [0, 12345])
def test_the_same_seed_gives_the_same_transcripts_on_every_backend(seed: int) -> None:
    ids: list[Any] = [*GAMES, Trouble] * 3
    transcripts = []
    for number, how in enumerate(
        [
            {"backend": "sync"},
            {"backend": "sync"},
            {"backend": "thread"},
            {"backend": "thread", "threads": 2},
            {"backend": "process", "workers": 1},
            {"backend": "process", "workers": 2, "threads": 1},
            {"backend": "process", "workers": 5},
        ]
    ):
        with make_vec(ids, seed=seed, **how) as vec:  # type: ignore[arg-type]
            transcripts.append(transcript(vec, random.Random(number)))
    assert all(other == transcripts[0] for other in transcripts)


@settings(max_examples=20)
@given(order=st.randoms(use_true_random=False), backend=st.sampled_from(["sync", "thread"]), envs=st.integers(1, 9))
def test_order_of_results_changes_no_episode(order: random.Random, backend: Any, envs: int) -> None:
    with make_vec(Trouble, num_envs=9, seed=4) as reference:
        expected = transcript(reference, random.Random(0), steps=6)
    with make_vec(Trouble, num_envs=envs, seed=4, backend=backend) as vec:
        assert transcript(vec, order, steps=6) == expected[:envs]
