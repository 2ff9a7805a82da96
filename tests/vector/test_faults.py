"""Test that a step that raises, hangs, uses up memory or kills its process affects only the results of its own env."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest

from palestra.errors import EnvFailed
from palestra.vector import EnvResult, VectorEnv, make_vec
from palestra.workers.types import Autoreset
from tests.vector.envs import DiesAtOnce, FailsAtOnce, SlowReset, Trouble
from tests.vector.oracle import OneEnv, seen

MB = 1 << 20
PROCESS: dict[str, Any] = {"backend": "process", "workers": 1, "step_timeout": 2.5, "memory_limit": 600 * MB}


def causes(vec: VectorEnv) -> list[str]:
    return [failure.cause for failure in vec.failures]


ACCIDENTS = {
    "raise": ("raised", "ZeroDivisionError"),
    "quit": ("raised", "SystemExit"),
    "hang": ("deadline", "TimeoutError"),
    "spin 100": ("deadline", "TimeoutError"),
    "exit": ("died", "WorkerDied"),
    "kill": ("died", "WorkerDied"),
    f"eat {4 << 30}": ("memory", "MemoryError"),
    "lambda": ("raised", "EnvFailed"),
}


@pytest.mark.parametrize(
    ("autoreset", "threads", "accidents"),
    [
        ("same_step", None, list(ACCIDENTS)),
        ("same_step", 1, ["hang", "exit", f"eat {4 << 30}", "lambda"]),
        ("next_step", None, ["raise", "hang", "exit", "lambda"]),
    ],
    ids=str,
)
def test_a_failure_affects_one_env(autoreset: Autoreset, threads: int | None, accidents: list[str]) -> None:
    with make_vec(Trouble, num_envs=4, autoreset=autoreset, threads=threads, **PROCESS) as vec:
        for number, accident in enumerate(accidents, 1):
            envs = [OneEnv(Trouble(), number, i, autoreset) for i in range(4)]
            assert vec.reset(seed=number)[0] == [env.reset() for env in envs]
            for actions in (["end"] * 4, ["a"] * 4, ["b", "c", accident, "d"], ["e"] * 4, ["f"] * 4):
                running = envs[2].seed
                outcome = vec.step(actions)
                expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
                assert [seen(*five) for five in zip(*outcome, strict=True)] == expected, accident
                if accident in actions:
                    broken = running
            assert len(vec.failures) == number
            failure = vec.failures[-1]
            assert (failure.index, failure.env, failure.boundary) == (2, "Trouble", "env")
            assert (failure.cause, failure.kind) == ACCIDENTS[accident]
            assert failure.action == accident
            assert failure.seed == broken  # seed of the second episode
            assert isinstance(failure.error(), EnvFailed)


@pytest.mark.slow
def test_several_failures_in_one_step() -> None:
    """Check several envs in one worker that fail in the same step, while the worker's other envs are running."""
    actions = ["exit", "sleep 0.3", "kill", "a", "sleep 0.3", "hang", "raise", "b"]
    with make_vec(Trouble, num_envs=8, **PROCESS) as vec:
        envs = [OneEnv(Trouble(), 0, i, "same_step") for i in range(8)]
        assert vec.reset()[0] == [env.reset() for env in envs]
        for _ in range(2):
            outcome = vec.step(actions)
            expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            assert [seen(*five) for five in zip(*outcome, strict=True)] == expected
        found = Counter((failure.index, failure.cause) for failure in vec.failures)
        assert found == {(0, "died"): 2, (2, "died"): 2, (5, "deadline"): 2, (6, "raised"): 2}


@pytest.mark.parametrize("threads", [1, None])
def test_one_env_raises_while_another_kills_their_worker(threads: int | None) -> None:
    """Check that both failures are reported with their causes and the worker's other envs continue their episodes."""
    with make_vec(Trouble, num_envs=6, backend="process", workers=1, threads=threads, seed=5) as vec:
        _, infos = vec.reset()
        seeds = [info["seed"] for info in infos]
        vec.step(["a"] * 6)
        step = vec.step(["b", "raise x", "b", "kill", "b", "b"])
        causes = {i: info["failure"].cause for i, info in enumerate(step.infos) if "failure" in info}
        assert causes == {1: "raised", 3: "died"}
        after = vec.step(["c"] * 6)
        for i in (0, 2, 4, 5):
            assert step.observations[i] == Trouble.after(seeds[i], "a", "b")
            assert after.observations[i] == Trouble.after(seeds[i], "a", "b", "c")


def test_envs_that_are_slow_to_rebuild_continue_their_episodes() -> None:
    """Check that a new worker finishes replaying an env before it runs the env's next command.

    The envs take so long to build that the worker starts another thread in the meantime.
    """
    with make_vec(Trouble, build_seconds=0.1, num_envs=4, backend="process", workers=1, seed=2) as vec:
        _, infos = vec.reset()
        seeds = [info["seed"] for info in infos]
        vec.step(["a"] * 4)
        step = vec.step(["b", "kill", "b", "b"])
        assert [i for i, info in enumerate(step.infos) if "failure" in info] == [1]
        assert [step.observations[i] for i in (0, 2, 3)] == [Trouble.after(seeds[i], "a", "b") for i in (0, 2, 3)]


def test_thread_backend_abandons_a_step_that_hangs() -> None:
    with make_vec(Trouble, num_envs=4, backend="thread", threads=2, step_timeout=2.5) as vec:
        envs = [OneEnv(Trouble(), 0, i, "same_step") for i in range(4)]
        assert vec.reset()[0] == [env.reset() for env in envs]
        for actions in (["a"] * 4, ["hang", "hang", "hang", "b"], ["c"] * 4):
            outcome = vec.step(actions)
            expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            assert [seen(*five) for five in zip(*outcome, strict=True)] == expected
        assert causes(vec) == ["deadline"] * 3


def test_other_envs_continue_while_one_hangs() -> None:
    """Check that the other envs do not wait for a hanging env's deadline."""
    for how in ({"backend": "thread"}, {"backend": "process", "workers": 1}):
        with make_vec(Trouble, num_envs=4, turns=1000, step_timeout=5.0, **how) as vec:
            vec.reset()
            vec.send(["a", "hang", "a", "a"])
            order: list[EnvResult] = []
            while len(order) < 300:
                for item in vec.recv():
                    order.append(item)
                    vec.send({item.index: "a"})
            assert 1 not in {item.index for item in order}
            assert vec.failed == 0


def test_reset_has_a_separate_deadline() -> None:
    class_options: dict[str, Any] = {"backend": "process", "workers": 1, "step_timeout": 0.3, "reset_timeout": 120.0}
    with make_vec(SlowReset, nap=0.6, **class_options) as vec:
        assert vec.reset()[0] == ["awake"]
        assert causes(vec) == []
    class_options["reset_timeout"] = 0.2
    with (
        make_vec(SlowReset, nap=60.0, max_restarts=2, **class_options) as vec,
        pytest.raises(EnvFailed, match="more than 2 workers were lost.*deadline"),
    ):
        vec.reset()


@pytest.mark.parametrize("backend", ["sync", "thread", "process"])
def test_a_reset_that_raises_is_recorded_and_the_next_episode_starts(backend: Any) -> None:
    with make_vec(Trouble, num_envs=6, backend=backend, bad_seed_reset=True, turns=1) as vec:
        _, infos = vec.reset()
        for _ in range(5):
            outcome = vec.step(["end"] * 6)
            assert outcome.rewards == [1.0] * 6  # the step succeeded, even if the following reset failed
            infos += outcome.infos
        assert all(info["seed"] % 4 for info in infos)
        failed = [info["failure"] for info in infos if "failure" in info]
        assert {(failure.cause, failure.kind) for failure in failed} == {("raised", "OSError")}
        assert len(failed) == vec.failed > 0


def test_vector_raises_after_repeated_reset_failures() -> None:
    with make_vec(NeverBegins, num_envs=2, max_failures_in_a_row=3) as vec:
        assert vec.reset()[0] == ["", ""]
        for _ in range(2):
            vec.step(["a", "a"])
        with pytest.raises(EnvFailed, match="failed 4 times in a row.*no luck"):
            vec.step(["a", "a"])


class NeverBegins(Trouble):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise OSError("no luck")


def test_number_of_replaced_workers_is_limited() -> None:
    with make_vec(Trouble, num_envs=2, backend="process", workers=1, max_restarts=3) as vec:
        vec.reset()
        for _ in range(3):
            vec.step({0: "exit"})
        with pytest.raises(EnvFailed, match="more than 3 workers were lost.*exit status 7"):
            vec.step({0: "exit"})
        with pytest.raises(EnvFailed):
            vec.step({1: "a"})


def test_an_env_that_cannot_be_replayed_is_reported_lost() -> None:
    with make_vec(Trouble, num_envs=2, backend="process", workers=1) as vec:
        vec.reset()
        vec.step(["clock", "a"])  # the observation of env 0 is the time, so it cannot be replayed
        vec.step({1: "exit"})
        outcome = vec.step(["a", "a"])
        assert "failure" not in outcome.infos[1]
        failure = outcome.infos[0]["failure"]
        assert (failure.index, failure.cause) == (0, "lost")
        assert "not deterministic" in failure.message
        assert str(outcome.observations[0]).startswith("start")


def test_a_call_that_kills_its_worker_is_reported_with_the_lost_episode() -> None:
    with make_vec(Trouble, num_envs=2, backend="process", workers=1) as vec:
        vec.reset()
        vec.step(["a", "a"])
        with pytest.raises(EnvFailed, match="env 0 .*died"):
            vec.call("step", "exit", indices=[0])
        outcome = vec.step(["b", "b"])
        assert outcome.infos[0]["failure"].cause == "died"
        assert str(outcome.observations[1]).startswith("2 ")


def test_child_processes_of_an_env_end_with_its_worker() -> None:
    with make_vec(Trouble, num_envs=1, backend="process", workers=1) as vec:
        vec.reset()
        vec.step(["child"])
        pid = vec.call("reset")[0][1]["pid"]
        [child] = psutil.Process(pid).children()
        vec.step(["exit"])
        assert psutil.wait_procs([child], timeout=60)[1] == [] or child.status() == psutil.STATUS_ZOMBIE


def test_a_worker_that_cannot_start_reports_the_reason() -> None:
    with pytest.raises(EnvFailed, match="ended with exit status 9 while creating its envs"):
        make_vec(DiesAtOnce, backend="process")
    with pytest.raises(EnvFailed, match="could not create an env: OSError: not today"):
        make_vec(FailsAtOnce, num_envs=3, backend="process", workers=2)


def soak(vec: VectorEnv, steps: int, rates: dict[str, float], seed: int = 0) -> Counter[str]:
    """Run `vec` with `send` and `recv` and random failures, and compare all results with the reference implementation.

    `rates` maps actions that cause failures to their probabilities. Return the number of failures by cause.
    """
    rng = random.Random(seed)
    envs = [OneEnv(Trouble(turns=8), vec.seed, i, vec.autoreset) for i in range(vec.num_envs)]
    observations, _ = vec.reset()
    assert observations == [env.reset() for env in envs]

    def draw() -> str:
        at = rng.random()
        for word, rate in rates.items():
            at -= rate
            if at < 0:
                return word
        return rng.choice(["go", "play 7", "end"])

    sent: dict[int, str] = {}
    started = finished = 0
    count: Counter[str] = Counter()
    while finished < steps:
        free = [i for i in range(vec.num_envs) if i not in sent][: steps - started]
        batch = {i: draw() for i in free}
        started += len(batch)
        sent.update(batch)
        vec.send(batch)
        for item in vec.recv(min_ready=min(8, len(sent))):
            action = sent.pop(item.index)  # raises KeyError if this env has no step in flight
            assert seen(*item[1:]) == envs[item.index].step(action), (item, action)
            if item.failure is not None:
                assert item.failure.action == action
                count[item.failure.cause] += 1
            finished += 1
    assert not sent
    assert vec.recv() == []
    return count


def test_a_short_run_with_many_failures() -> None:
    how: dict[str, Any] = {"backend": "process", "workers": 2, "step_timeout": 2.5, "max_restarts": 1000}
    with make_vec(Trouble, num_envs=16, **how) as vec:
        count = soak(vec, 400, {"raise": 0.03, "hang": 0.005, "exit": 0.01, "kill": 0.005})
        assert count["raised"] > 3
        assert count["died"] > 1
        assert count["deadline"] > 0


@pytest.mark.slow
def test_three_thousand_steps_with_failures() -> None:
    how: dict[str, Any] = {"backend": "process", "workers": 2, "step_timeout": 2.5}
    with make_vec(Trouble, num_envs=64, **how) as vec:
        count = soak(vec, 3_000, {"raise": 0.02, "hang": 0.001, "exit": 0.001}, seed=1)
        assert count["raised"] > 30
        assert count["deadline"] > 0
        assert count["died"] > 0
        assert vec.failed == sum(count.values())
