"""Property test: random failures in worker processes do not affect the results of the other envs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from palestra.vector import VectorEnv, make_vec
from palestra.workers.types import Autoreset
from tests.vector.envs import Trouble
from tests.vector.oracle import ACCIDENTS, OneEnv, seen

ENVS = 16
CAUSES = {"raise": "raised", "quit": "raised", "hang": "deadline", "exit": "died", "kill": "died"}


@pytest.fixture(scope="module", params=["same_step", "next_step"])
def vec(request: pytest.FixtureRequest) -> Iterator[VectorEnv]:
    autoreset: Autoreset = request.param
    with make_vec(
        Trouble,
        build_seconds=0.01,  # long enough that another thread in a new worker takes over the remaining commands
        num_envs=ENVS,
        backend="process",
        workers=2,
        autoreset=autoreset,
        step_timeout=2.5,
        max_restarts=10_000,
        max_failures_in_a_row=1_000,
    ) as vector:
        yield vector


def faults(*words: str) -> st.SearchStrategy[dict[int, str]]:
    return st.dictionaries(st.integers(0, ENVS - 1), st.sampled_from(words), max_size=5)


# Only one of the steps may hang, because every such step takes as long as the timeout.
schedules = st.lists(faults("raise", "exit", "kill", "quit", "sleep 0.02"), min_size=1, max_size=2).flatmap(
    lambda steps: faults("raise", "exit", "kill", "sleep 0.02", "hang").map(lambda last: [*steps, last])
)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), schedule=schedules)
@example(seed=0, schedule=[{1: "kill", 3: "exit", 5: "sleep 0.02"}, {13: "raise", 14: "hang", 15: "exit"}])
def test_healthy_envs_behave_as_in_an_undisturbed_run(
    vec: VectorEnv, seed: int, schedule: list[dict[int, str]]
) -> None:
    envs = [OneEnv(Trouble(), seed, index, vec.autoreset) for index in range(ENVS)]
    assert vec.reset(seed=seed)[0] == [env.reset() for env in envs]
    for step, bad in enumerate([*schedule, {}]):
        before = vec.failed
        actions = [bad.get(index, f"go {step}") for index in range(ENVS)]
        skipped = [env.pending for env in envs]  # this step only starts the env's next episode
        results = list(zip(*vec.step(actions), strict=True))
        expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        assert [seen(*result) for result in results] == expected
        failures = {index: result[4]["failure"].cause for index, result in enumerate(results) if "failure" in result[4]}
        assert failures == {
            index: CAUSES[word] for index, word in bad.items() if word in ACCIDENTS and not skipped[index]
        }
        assert vec.failed == before + len(failures)
