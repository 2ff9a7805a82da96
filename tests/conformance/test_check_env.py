"""check_env accepts what is sound and names every defect of the zoo, with code that shows it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.conformance.strings import STRANGE
from palestra.errors import BadValue, ConformanceError, UnknownEnv
from tests.conformance import zoo

DEFECTS = [
    (zoo.SharedGenerator, "law 1", "process-wide generator of random"),
    (zoo.SharedGeneratorQuietly, "law 1", "process-wide generator of random"),
    (zoo.NumpyGenerator, "law 1", "process-wide generator of numpy"),
    (zoo.Clock, "law 1", "the clock"),
    (zoo.Calendar, "law 1", "the clock"),
    (zoo.Entropy, "law 1", "operating system's randomness"),
    (zoo.HashSeed, "law 1", "PYTHONHASHSEED"),
    (zoo.SeedIgnored, "law 1", "the seed is ignored"),
    (zoo.SeedForgotten, "law 1", "the same seed and actions gave something else"),
    (zoo.SeedUntold, "law 3", 'info["seed"]'),
    (zoo.Carryover, "law 1", "gave something else in a fresh env, from the prompt"),
    (zoo.ClassState, "law 1", "when other envs ran in between"),
    (zoo.PlayerMovesWorld, "law 1", "the same seed and actions gave something else"),
    (zoo.Crash, "law 2", "step raised ValueError"),
    (zoo.Hang, "law 2", "hangs"),
    (zoo.Echo, "law 2", "echoes"),
    (zoo.Speechless, "law 2", "observation is empty"),
    (zoo.BothFlags, "law 3", "never both"),
    (zoo.FourTuple, "law 3", "palestra.Step"),
    (zoo.NoSuccess, "law 3", 'info["success"]'),
    (zoo.OutOfRange, "law 3", "outside the stated range"),
    (zoo.NotANumber, "law 3", "finite number"),
    (zoo.Overpaid, "law 3", "success is worth 1"),
    (zoo.GoesOn, "law 3", "must raise EpisodeOver"),
    (zoo.NeedsNoReset, "law 3", "must raise ResetNeeded"),
    (zoo.OverBudget, "law 3", "budget of 2 turns"),
    (zoo.Peeking, "law 4", "peeks"),
    (zoo.RewardsSilence, "law 4", "an empty answer earns"),
    (zoo.SharedFork, "law 5", "after forks of it were played"),
    (zoo.ForgetfulFork, "law 5", "in a fork taken after"),
    (zoo.NoFork, "law 5", "fork raised TypeError"),
    (zoo.Unpicklable, "law 5", "snapshot raised"),
    (zoo.NoExample, "law 6", "does not show the example action"),
    (zoo.NoBudget, "law 6", "budget of 4 turns"),
    (zoo.UnreadableExample, "law 6", "cannot be read"),
    (zoo.LeaksFile, "tidiness", "files stay open"),
    (zoo.LeaksThread, "tidiness", "threads stay open"),
]


def check(target: object, **options: object) -> palestra.conformance.Report:
    return palestra.check_env(target, step_timeout=2.0, **options)  # type: ignore[arg-type]


def test_an_expert_may_peek_where_the_env_says_so() -> None:
    report = check(zoo.PeeksAndSaysSo, processes=False, episodes=20)
    assert "law 4: validity" in report.passed
    assert any("knows what is hidden" in note for note in report.notes)


def test_a_sound_env_passes_every_check() -> None:
    report = check(zoo.Sound)
    assert len(report.passed) == 8
    assert report.notes == []
    assert report.expert is not None
    assert report.random is not None
    assert "sound" in str(report)


@pytest.mark.parametrize(("broken", "law", "words"), DEFECTS, ids=lambda value: getattr(value, "__name__", None))
def test_each_defect_is_named(broken: type[palestra.Env], law: str, words: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check(broken)
    assert caught.value.invariant.startswith(law), caught.value
    assert words in caught.value.defect
    assert f"env = {broken.__name__}()" in caught.value.reproduce


def test_every_animal_of_the_zoo_is_tested() -> None:
    animals = {c for c in vars(zoo).values() if isinstance(c, type) and issubclass(c, zoo.Sound)} - {zoo.Sound}
    assert animals == {row[0] for row in DEFECTS} | {zoo.PeeksAndSaysSo}  # which is sound, and has a test above


def test_the_reproduction_reproduces() -> None:
    with pytest.raises(ConformanceError) as caught:
        check(zoo.Crash)
    code = "\n".join(line.strip() for line in caught.value.reproduce.splitlines())
    with pytest.raises(ValueError, match="invalid literal"):
        exec(code, {"Crash": zoo.Crash})


def test_stated_rates_are_held_against_the_measured_ones() -> None:
    for player, rate in (("expert", 1.0), ("random", 0.99)):
        stated: Any = {f"{player}_success": rate}
        spec = palestra.EnvSpec(
            id="zoo:Boast-v0", entry_point="tests.conformance.zoo:Sound", reward_range=(-0.1, 1.0), **stated
        )
        palestra.register_spec(spec)
        try:
            with pytest.raises(ConformanceError, match=f"the {player} player's success is stated as"):
                check("zoo:Boast-v0")
        finally:
            palestra.unregister("zoo:Boast-v0")


def test_the_stated_reward_range_must_be_the_envs() -> None:
    palestra.register("zoo:Range-v0", "tests.conformance.zoo:Sound", reward_range=(0.0, 0.5))
    try:
        with pytest.raises(ConformanceError, match="the spec states rewards"):
            check("zoo:Range-v0")
    finally:
        palestra.unregister("zoo:Range-v0")


def test_a_tolerated_clock() -> None:
    assert "law 1: determinism" in check(zoo.Clock, allow=["clock"]).passed


def test_an_instance_and_a_local_class_can_be_checked() -> None:
    assert check(zoo.Sound()).notes == []

    class Local(zoo.Sound):
        pass

    assert any("fresh process" in note for note in check(Local).notes)


def test_the_checker_leaves_the_shared_generator_alone() -> None:
    before = random.getstate()
    check(zoo.Sound, processes=False)
    assert random.getstate() == before


def test_wrong_targets() -> None:
    with pytest.raises(UnknownEnv, match="Did you mean"):
        check("game:Sudokku-v0-easy")
    with pytest.raises(BadValue, match="takes an id"):
        check(3)
    with pytest.raises(BadValue, match="not a palestra"):
        check(dict)


def test_strange_strings_are_what_their_code_says() -> None:
    for code, value in STRANGE:
        assert eval(code) == value


@pytest.fixture(autouse=True)
def _put_back() -> object:
    yield
    for handle in zoo.leaked:
        handle.close()
        Path(handle.name).unlink()
    zoo.leaked.clear()
