"""Test vectors in an event loop: asynchronous lock-step, `async for`, and envs that a rollout acquires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import ExpertAgent, RandomAgent
from palestra.errors import BadValue, EnvFailed, EpisodeOver
from palestra.rollout import collect
from palestra.vector import VectorEnv, make_vec
from tests.vector.envs import Trouble
from tests.vector.test_lockstep import each_backend

GUESS = "game:GuessTheNumber-v0-easy"


@each_backend
def test_awaitable_lock_step_equals_lock_step(how: dict[str, Any]) -> None:
    async def drive() -> list[Any]:
        async with make_vec(Trouble, num_envs=5, turns=3, **how) as vec:
            seen: list[Any] = [(await vec.areset())[0]]
            seen += [(await vec.astep([word] * 5)).observations for word in ("a", "b", "raise", "c")]
            seen.append((await vec.astep({4: "d", 0: "e"})).observations)
            seen.append((await vec.areset(indices=[1], seed=[5]))[0])
            return seen

    with make_vec(Trouble, num_envs=5, turns=3) as vec:
        expected: list[Any] = [vec.reset()[0], *(vec.step([w] * 5).observations for w in ("a", "b", "raise", "c"))]
        expected += [vec.step({4: "d", 0: "e"}).observations, vec.reset(indices=[1], seed=[5])[0]]
    assert asyncio.run(drive()) == expected


@each_backend
def test_async_for_yields_results_until_nothing_is_in_flight(how: dict[str, Any]) -> None:
    async def drive(vec: VectorEnv) -> list[int]:
        steps = [0] * vec.num_envs
        await vec.areset()
        vec.send(["a"] * vec.num_envs)
        async for item in vec:
            steps[item.index] += 1
            if steps[item.index] < 5:
                vec.send({item.index: "a"})
        return steps

    with make_vec(Trouble, num_envs=7, **how) as vec:
        assert asyncio.run(drive(vec)) == [5] * 7
        assert asyncio.run(drive(vec)) == [5] * 7  # works in another event loop
        assert vec.step(["a"] * 7).rewards == [0.0] * 7  # works without an event loop


@each_backend
def test_leaving_the_loop_early_keeps_the_remaining_results(how: dict[str, Any]) -> None:
    async def drive(vec: VectorEnv) -> int:
        vec.send(["a"] * 4)
        async for item in vec:
            return item.index
        raise AssertionError("nothing came")

    with make_vec(Trouble, num_envs=4, **how) as vec:
        vec.reset()
        first = asyncio.run(drive(vec))
        rest: list[int] = []
        while len(rest) < 3:
            rest += [item.index for item in vec.recv()]
        assert sorted([first, *rest]) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", [{"backend": "thread"}, {"backend": "process", "workers": 2}], ids=str)
def test_event_loop_is_not_blocked_and_timeouts_hold(how: dict[str, Any], tmp_path: Path) -> None:
    async def drive(vec: VectorEnv) -> None:
        await vec.areset()
        vec.send({0: f"wait {tmp_path / 'first'}", 1: "a"})
        results: list[Any] = []
        while not results:  # once, unless the machine is busy
            results = await vec.arecv(min_ready=2, timeout=0.2)
        assert [item.index for item in results] == [1]
        receiving = asyncio.create_task(vec.arecv(timeout=120))
        for _ in range(3):
            await asyncio.sleep(0.01)
        assert not receiving.done()  # otherwise it has blocked the event loop until the timeout
        (tmp_path / "first").touch()
        assert [item.index for item in await receiving] == [0]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(vec.astep({2: f"wait {tmp_path / 'second'}", 3: "b"}), timeout=0.1)
        (tmp_path / "second").touch()
        both: list[Any] = []
        while len(both) < 2:  # the results of the canceled step are not lost
            both += await vec.arecv()
        assert sorted(item.index for item in both) == [2, 3]

    with make_vec(Trouble, num_envs=4, **how) as vec:
        asyncio.run(drive(vec))


@each_backend
def test_many_tasks_share_a_vector(how: dict[str, Any]) -> None:
    async def play(vec: VectorEnv, seed: int) -> list[str]:
        env = vec.acquire()
        observation, info = await env.areset(seed=seed)
        assert info["seed"] == seed
        seen = [observation]
        seen += [(await env.astep(f"play {seed}")).observation for _ in range(3)]
        env.close()
        return [str(one) for one in seen]

    async def everybody(vec: VectorEnv) -> list[list[str]]:
        games: list[Awaitable[list[str]]] = [play(vec, seed) for seed in range(vec.num_envs)]
        return list(await asyncio.gather(*games))

    with make_vec(Trouble, num_envs=40, autoreset="disabled", **how) as vec:
        results = asyncio.run(everybody(vec))
        again = asyncio.run(everybody(vec))
    alone = []
    for seed in range(40):
        env = Trouble()
        alone.append([env.reset(seed=seed)[0], *(env.step(f"play {seed}").observation for _ in range(3))])
    assert results == again == alone


@each_backend
def test_collect_plays_on_a_vector(how: dict[str, Any]) -> None:
    with make_vec(GUESS, num_envs=8, autoreset="disabled", **how) as vec:
        result = asyncio.run(collect(RandomAgent(), vec.acquire, episodes=24, concurrency=8, seed=5))
        plain = asyncio.run(collect(RandomAgent(), GUESS, episodes=24, concurrency=8, seed=5))
        assert not result.failures
        assert {(t.seed, tuple(turn.action.text for turn in t.turns)) for t in result.trajectories} == {
            (t.seed, tuple(turn.action.text for turn in t.turns)) for t in plain.trajectories
        }
        won = asyncio.run(collect(ExpertAgent(), vec.acquire, episodes=8, concurrency=4, seed=6))
        assert all(t.success for t in won.trajectories)


def test_failure_of_an_acquired_env_is_raised() -> None:
    async def drive(vec: VectorEnv) -> None:
        env, other = vec.acquire(), vec.acquire()
        with pytest.raises(EnvFailed, match="all 2 envs are in use"):
            vec.acquire()
        await asyncio.gather(env.areset(seed=1), other.areset(seed=2))
        outcomes: list[Any] = await asyncio.gather(env.astep("a"), other.astep("exit"), return_exceptions=True)
        assert outcomes[0].observation == Trouble.after(1, "a")
        assert isinstance(outcomes[1], EnvFailed)
        with pytest.raises(EpisodeOver):
            await other.astep("a")
        await other.areset(seed=3)
        assert (await other.astep("a")).observation == Trouble.after(3, "a")
        assert (await env.astep("b")).observation == Trouble.after(1, "a", "b")
        task = asyncio.create_task(env.astep("sleep 0.2"))
        await asyncio.sleep(0.05)
        task.cancel()
        assert (await env.areset(seed=8))[0] == Trouble.after(8)  # the reset waits for the canceled step

    with make_vec(Trouble, num_envs=2, backend="process", workers=1, autoreset="disabled") as vec:
        asyncio.run(drive(vec))
    with make_vec(Trouble) as vec, pytest.raises(BadValue, match="autoreset='disabled', got 'same_step'"):
        vec.acquire()


def test_error_of_the_vector_reaches_every_waiter() -> None:
    async def drive(vec: VectorEnv) -> list[Any]:
        envs = [vec.acquire() for _ in range(3)]
        await asyncio.gather(*(env.areset() for env in envs))
        steps = [envs[0].astep("exit"), envs[1].astep("sleep 30"), envs[2].astep("sleep 30")]
        return list(await asyncio.gather(*steps, return_exceptions=True))

    with make_vec(Trouble, num_envs=3, backend="process", workers=1, autoreset="disabled", max_restarts=0) as vec:
        assert [type(outcome) for outcome in asyncio.run(drive(vec))] == [EnvFailed] * 3
