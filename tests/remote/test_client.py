"""Test environments on a Palestra server: RemoteEnv, vectors, rollouts, and server or network failures."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra import check_env
from palestra.agents import ExpertAgent
from palestra.errors import (
    BadValue,
    EnvFailed,
    EpisodeOver,
    ResetNeeded,
    SessionLost,
    UnknownEnv,
    UnknownKeyword,
)
from palestra.evals.suite import Suite, resolve_tasks, suite_entry
from palestra.registry import with_split
from palestra.remote import RemoteEnv
from palestra.rollout import collect
from palestra.server.fault_injection import FaultyProxy
from tests.server.servers import GUESS, Server, serving, until

FAULTS = "palestra.server.fault_injection.envs"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    served = (GUESS, "fault:", "babyai:GoTo-v0", "math:Geometry-v0-easy", "textcraft:All-v0")
    with serving(*served, imports=[FAULTS], workers=2) as running:
        yield running


@pytest.fixture(params=["socket", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_remote_env_passes_check_env(server: Server) -> None:
    url = f"{server.url}/{GUESS}"
    with palestra.make(url):  # open the shared connection before check_env looks for side effects
        assert check_env(lambda: palestra.make(url), allow={"clock"}, episodes=5, processes=False).passed


def test_remote_env_equals_local_env(server: Server, transport: str) -> None:
    local = palestra.make(GUESS)
    with palestra.make(f"{server.url}/{GUESS}", transport=transport) as remote:
        assert remote.max_turns == local.max_turns
        assert remote.reward_range == local.reward_range
        assert remote.spec == local.spec
        for seed in range(3):
            assert remote.reset(seed=seed) == local.reset(seed=seed)
            assert remote.example_action() == local.example_action()
            done = False
            while not done:
                action = local.expert_action()
                assert remote.expert_action() == action
                assert action is not None
                step = remote.step(action)
                assert step == local.step(action)
                done = step.done
        remote.reset(seed=1)
        local.reset(seed=1)
        remote.player_rng.seed(7)
        local.player_rng.seed(7)
        assert [remote.sample_random_action() for _ in range(5)] == [local.sample_random_action() for _ in range(5)]


def test_keywords_and_first_seed_reach_the_env(server: Server) -> None:
    with palestra.make(f"{server.url}/{GUESS}", seed=5, max_number=99, max_turns=3) as env:
        observation, info = env.reset()
        assert "from 1 to 99" in observation
        assert (info["seed"], info["max_turns"]) == (5, 3)
        assert env.reset()[1]["seed"] == palestra_next(5)


def palestra_next(seed: int) -> int:
    env = palestra.make(GUESS, seed=seed)
    env.reset()
    return int(env.reset()[1]["seed"])


def test_splits_and_all_tasks_of_an_env_on_a_server(server: Server) -> None:
    name = "math:Geometry-v0-easy"
    geometry = f"{server.url}/{name}"
    assert with_split(geometry, {"max_attempts": 2}, "train") == {"max_attempts": 2, "split": "train"}
    assert with_split(f"{geometry}?split=test", {}, "train") == {}
    assert with_split(f"{server.url}/{GUESS}", {}, "test") == {}  # this environment has no splits
    assert suite_entry(geometry, n=3).kwargs == {"split": "test"}
    with (
        palestra.make(geometry, split="test") as remote,
        palestra.make(name, split="test") as env,
    ):
        assert remote.reset(seed=1) == env.reset(seed=1)
        assert remote.spawn(split="train").reset(seed=1) == env.spawn(split="train").reset(seed=1)
    entry = suite_entry(f"{server.url}/textcraft:All-v0", n="all", kwargs={"order": "agentgym", "split": None})
    count = palestra.make("textcraft:All-v0", order="agentgym").num_tasks
    assert count
    assert resolve_tasks(Suite(name="goals", entries=(entry,))).entries[0].seeds == tuple(range(count))
    with pytest.raises(UnknownEnv, match="does not serve"):
        with_split(f"{server.url}/game:Nope-v0", {}, "train")
    with pytest.raises(EnvFailed, match="cannot be reached"):
        with_split(f"http://127.0.0.1:9/{GUESS}", {"patience": 0.1}, "train")


def test_images_and_renderings(server: Server, transport: str) -> None:
    with palestra.make(f"{server.url}/math:Geometry-v0-easy", transport=transport) as env:
        observation, _ = env.reset(seed=1)
        local, _ = palestra.make("math:Geometry-v0-easy").reset(seed=1)
        assert observation == local
    with palestra.make(f"{server.url}/babyai:GoTo-v0", transport=transport) as env:
        env.reset(seed=1)
        picture = env.render("image")
        assert isinstance(picture, bytes)
        assert picture.startswith(b"\x89PNG")
        assert isinstance(env.render(), str)


def test_forks_and_snapshots_are_independent(server: Server, transport: str) -> None:
    with palestra.make(f"{server.url}/{GUESS}", transport=transport, max_number=1000, max_turns=9) as env:
        env.reset(seed=3)
        env.step("\\boxed{500}")
        fork, copy = env.fork(), pickle.loads(pickle.dumps(env))
        after = env.step("\\boxed{250}")
        env.step("\\boxed{1}")
        assert fork.step("\\boxed{250}") == after
        assert copy.step("\\boxed{250}") == after
        fork.close()
        assert copy.step("\\boxed{2}").info["turn"] == 3
        copy.close()


def test_usage_errors_equal_those_of_local_envs(server: Server, transport: str) -> None:
    url = f"{server.url}/{GUESS}"
    with pytest.raises(UnknownEnv, match="Did you mean"):
        palestra.make(f"{server.url}/game:GuessTheNumber-v0-eas", transport=transport)
    with pytest.raises(UnknownKeyword, match="max_number"):
        palestra.make(url, transport=transport, max_numbr=3)
    with pytest.raises(BadValue, match="max_number"):
        palestra.make(url, transport=transport, max_number=1)
    with pytest.raises(BadValue, match="could be file names"):
        palestra.make(url, transport=transport, max_number="/etc/passwd")
    with pytest.raises(BadValue, match="cannot set 'tools'"):
        RemoteEnv(url, kwargs={"tools": ["python"]})
    with palestra.make(url, transport=transport) as env:
        with pytest.raises(ResetNeeded):
            env.step("x")
        env.reset(seed=1)
        with pytest.raises(BadValue, match="string"):
            env.step(5)  # type: ignore[arg-type]
        with pytest.raises(BadValue):
            env.reset(seed=-1)
        env.reset(seed=2**63 - 1)
        assert env.step("no box").done
        with pytest.raises(EpisodeOver):
            env.step("x")
        assert env.reset(seed=1)[1]["seed"] == 1  # the env can still be used
    with pytest.raises(EnvFailed, match="closed"):
        env.reset()
    for wrong in ("http://x", "ftp://h/a:b", "http://h:0/a:b", "http://user@h/a:b", "http://h/nothing"):
        with pytest.raises(BadValue):
            palestra.make(wrong)


def test_unreachable_server_is_an_infrastructure_failure(transport: str) -> None:
    with pytest.raises(EnvFailed, match="no server responds"):
        palestra.make("http://127.0.0.1:9/game:X-v0", transport=transport, patience=0.3)


def test_unusual_actions(server: Server, transport: str) -> None:
    with palestra.make(f"{server.url}/{GUESS}", transport=transport) as env:
        for action in ("", "\0", "\ud800", "é" * 1000, "\\boxed{" * 9999, "x" * 3_000_000):
            env.reset(seed=1)
            assert env.step(action).info["ending"] == "format"


def test_garbage_collected_env_closes_its_session(server: Server) -> None:
    before = server.number("sessions")
    env = palestra.make(f"{server.url}/{GUESS}")
    assert server.number("sessions") == before + 1
    del env
    gc.collect()
    until(lambda: server.number("sessions") == before)


def test_many_envs_in_one_event_loop(server: Server) -> None:
    async def play(seed: int) -> float:
        env = palestra.make(f"{server.url}/{GUESS}")
        await env.areset(seed=seed)
        guide = palestra.make(GUESS)
        guide.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            action = str(guide.expert_action())
            guide.step(action)
            step = await env.astep(action)
            total, done = total + step.reward, step.done
        await env.aclose()
        return total

    async def main() -> list[float]:
        return await asyncio.gather(*(play(seed) for seed in range(40)))

    assert asyncio.run(main()) == [1.0] * 40


def test_keyword_arguments_in_the_url_of_a_vector(server: Server) -> None:
    with (
        palestra.make_vec(f"{server.url}/{GUESS}?max_turns=2", num_envs=2, seed=1) as remote,
        palestra.make_vec(GUESS, num_envs=2, seed=1, max_turns=2) as local,
    ):
        assert remote.reset() == local.reset()
        for _ in range(3):
            assert remote.step(["\\boxed{1}"] * 2) == local.step(["\\boxed{1}"] * 2)


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_remote_vector_equals_local_vector(server: Server, autoreset: str) -> None:
    settings = {"num_envs": 6, "seed": 9, "autoreset": autoreset}
    remote = palestra.make_vec(f"{server.url}/{GUESS}", **settings)  # type: ignore[arg-type]
    local = palestra.make_vec(GUESS, **settings)  # type: ignore[arg-type]
    assert remote.reset() == local.reset()
    for turn in range(12):
        actions = [f"\\boxed{{{1 + (turn * 3 + i) % 10}}}" for i in range(6)]
        if autoreset == "disabled":
            over = sorted(set(remote._idle))
            assert over == sorted(set(local._idle))
            if over:
                assert remote.reset(indices=over) == local.reset(indices=over)
        assert remote.step(actions) == local.step(actions)
    assert remote.call("expert_action") == local.call("expert_action")
    remote.close()
    local.close()


def test_vector_does_not_wait_for_its_slowest_env(server: Server) -> None:
    ids = [f"{server.url}/fault:Slow-v0", *[f"{server.url}/{GUESS}"] * 7]
    with palestra.make_vec(ids, seed=0, vec_kwargs=[{"seconds": 5.0}, *[{}] * 7]) as vec:
        vec.reset()
        vec.send(["\\boxed{1}"] * 8)
        first = vec.recv(min_ready=7)
        assert {item.index for item in first} == set(range(1, 8))
        assert {item.index for item in vec.recv()} == {0}


def test_an_env_that_raises_fails_alone(server: Server, transport: str) -> None:
    with palestra.make(f"{server.url}/fault:Raise-v0", transport=transport) as env:
        env.reset(seed=1)
        with pytest.raises(EnvFailed, match="injected failure") as caught:
            env.step("x")
        assert caught.value.boundary == "env"
        with pytest.raises(EnvFailed, match="injected failure"):
            env.step("x")
        assert env.reset(seed=1)[1]["seed"] == 1
    ids = [f"{server.url}/fault:Raise-v0", f"{server.url}/{GUESS}"]
    with palestra.make_vec(ids, seed=0) as vec:
        vec.reset()
        step = vec.step(["\\boxed{1}"] * 2)
        assert step.infos[0]["failure"].kind == "RuntimeError"
        assert step.truncated == [True, False]
        assert vec.failures[0].index == 0
        assert str(step.observations[0]).startswith("You are playing")


def test_replay_recovers_a_session_whose_worker_died() -> None:
    with serving(GUESS, workers=1) as server:
        url = f"{server.url}/{GUESS}"
        lost = palestra.make(url, max_number=1000, max_turns=9)
        replaying = palestra.make(url, max_number=1000, max_turns=9, recover="replay")
        over_http = palestra.make(url, max_number=1000, max_turns=9, recover="replay", transport="http")
        local = palestra.make(GUESS, max_number=1000, max_turns=9)
        for env in (lost, replaying, over_http, local):
            env.reset(seed=8)
            env.step("\\boxed{500}")
        vec = palestra.make_vec(url, num_envs=2, seed=1)
        vec.reset()
        os.kill(server.workers()[0].pid, signal.SIGKILL)
        until(lambda: server.number("worker_deaths_total") == 1)
        after = local.step("\\boxed{250}")
        for env in (replaying, over_http):
            assert env.step("\\boxed{250}") == after
            assert env.recovered == 1  # type: ignore[attr-defined]
        with pytest.raises(SessionLost) as caught:
            lost.step("\\boxed{250}")
        assert caught.value.cause == "worker"
        with pytest.raises(SessionLost, match="reset"):
            lost.step("\\boxed{250}")
        assert lost.reset(seed=8) == palestra.make(GUESS, max_number=1000, max_turns=9).reset(seed=8)
        step = vec.step(["\\boxed{1}"] * 2)  # both failures are reported, and new episodes start
        assert [info["failure"].cause for info in step.infos] == ["lost", "lost"]
        local_vec = palestra.make_vec(GUESS, num_envs=2, seed=1)
        local_vec.reset()
        assert list(step.observations) == local_vec.reset()[0]
        assert vec.step(["\\boxed{1}"] * 2) == local_vec.step(["\\boxed{1}"] * 2)
        for env in (lost, replaying, over_http):
            env.close()
        vec.close()


def test_a_session_that_crashed_its_worker_is_not_replayed() -> None:
    with serving(GUESS, "fault:", imports=[FAULTS], workers=1) as server:
        bad = palestra.make(f"{server.url}/fault:Crash-v0", recover="replay")
        good = palestra.make(f"{server.url}/{GUESS}", recover="replay")
        for env in (bad, good):
            env.reset(seed=1)
        with pytest.raises(SessionLost) as caught:  # the episode is not replayed, because it would crash again
            bad.step("\\boxed{1}")
        assert caught.value.cause == "crashed"
        step = good.step("\\boxed{1}")
        assert step.info["turn"] == 1
        bad.close()
        good.close()


@pytest.mark.parametrize(
    "faults", [{"drop": 0.15}, {"duplicate": 0.3}, {"reorder": 0.3}, {"garbage": 0.1}, {"delay": 0.3}]
)
def test_every_step_happens_once_with_faulty_responses(
    server: Server, faults: dict[str, float], transport: str
) -> None:
    local = palestra.make(GUESS, max_number=10**6, max_turns=40)
    with FaultyProxy(server.url, seed=3, seconds=0.02, **faults) as faulty:
        env = palestra.make(f"{faulty.url}/{GUESS}", transport=transport, max_number=10**6, max_turns=40)
        assert env.reset(seed=4) == local.reset(seed=4)
        for number in range(1, 30):
            action = f"\\boxed{{{number}}}"
            assert env.step(action) == local.step(action)
        env.close()
    assert faulty.counts[next(iter(faults))] > 0, "no fault was injected"


def test_half_open_connections_time_out(server: Server, transport: str) -> None:
    with FaultyProxy(server.url, half_open=1.0) as faulty, pytest.raises(EnvFailed):
        palestra.make(f"{faulty.url}/{GUESS}", transport=transport, timeout=0.5, patience=0.5)


def test_a_wrong_seed_is_visible_in_info(server: Server) -> None:
    with palestra.make(f"{server.url}/fault:WrongSeed-v0") as env:
        assert env.reset(seed=5)[1]["seed"] == 6


def test_growing_memory_ends_at_the_limit_of_the_worker() -> None:
    with serving("fault:Grow-v0", imports=[FAULTS], memory=400 << 20) as server:
        env = palestra.make(f"{server.url}/fault:Grow-v0", megabytes=64)
        for seed in range(3):
            env.reset(seed=seed)
        with pytest.raises(EnvFailed, match="MemoryError"):
            any(env.step(f"\\boxed{{{number}}}").done for number in range(100, 200))
        env.reset(seed=1)
        assert env.step("\\boxed{1}").info["turn"] == 1
        env.close()


@pytest.mark.parametrize("env_backend", ["inline", "process"])
def test_rollouts_play_on_a_server(server: Server, env_backend: Any) -> None:
    def play(env: str, **options: Any) -> list[Any]:
        result = asyncio.run(collect(ExpertAgent(), env, episodes=4, concurrency=2, seed=3, **options))
        assert result.failures == []
        return [[turn.observation for turn in trajectory.turns] for trajectory in result.trajectories]

    assert play(f"{server.url}/{GUESS}", env_backend=env_backend, env_workers=1) == play(GUESS)
