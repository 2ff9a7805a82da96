"""ScienceWorld as an env: rewards, commands, forks, worlds side by side. All tests share one Java process."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.sciworld import engine as engine_module
from palestra.envs.sciworld.env import SciWorld, read_command
from palestra.envs.sciworld.pool import pool
from palestra.envs.sciworld.tasks import GROUPS, SPLITS, TYPES, types_of
from palestra.errors import BadValue, EpisodeOver, UnknownKeyword


def made(**kwargs: Any) -> SciWorld:
    return SciWorld(**{"tasks": "Find", "prepare_next": False, **kwargs})


def test_types_variations_and_splits_are_the_engines() -> None:
    engine = pool.engine()
    wire = engine.wire
    with engine.lock:
        asked = wire.new("scienceworld.runtime.pythonapi.PythonInterface")
        names = wire.ref(asked, "getTaskNames")
        assert set(wire.text("java.lang.String", "join", "\n", names).split("\n")) == set(TYPES)
        for task in TYPES.values():
            assert wire.call(asked, "getTaskMaxVariations", task.name) == task.variations
            wire.call(asked, "taskStr_$eq", task.name)
            for split, method in (("train", "Train"), ("dev", "Dev"), ("test", "Test")):
                found = wire.ref(asked, f"getVariations{method}")
                assert wire.text(found, "toString") == str(list(task.split(split)))
                wire.free(found)
        wire.free(names)
        wire.free(asked)


def test_groups_are_the_types_that_begin_alike() -> None:
    assert len(TYPES) == 30
    assert {group: len(names) for group, names in GROUPS.items()} == {
        "Measure": 2,
        "TestConductivity": 2,
        "Find": 4,
        "ChemistryMix": 3,
        "Lifespan": 3,
        "All": 30,
    }
    assert len(palestra.list_envs("sciworld")) == 6 * 3 + 30
    assert palestra.get_spec("sciworld:ChemistryMix-v0").kwargs["tasks"] == "ChemistryMix"
    assert [task.name for task in types_of(("4-3", "Boil", "find-plant"))] == ["find-plant", "boil"]
    for task in TYPES.values():
        parts = [task.split(split) for split in SPLITS[:3]]
        assert sum(map(len, parts)) == len({v for part in parts for v in part})


def test_the_gold_path_earns_one_step_by_step_and_forks_go_on_alike() -> None:
    with made() as env:
        prompt, info = env.reset(seed=3)
        assert info["goal"] in prompt
        rewards, twin, rest = [], None, []
        step = None
        while step is None or not step.done:
            if env.turn == 5:
                twin = env.fork()
            action = env.expert_action()
            step = env.step(action)
            rewards.append(step.reward)
            if twin is not None:
                rest.append((action, step))
        assert step.info["success"]
        assert step.info["ending"] == "solved"
        assert sum(rewards) == pytest.approx(1.0)
        assert sum(reward > 0 for reward in rewards) >= 4
        with pytest.raises(EpisodeOver):
            env.step("wait")
        assert twin is not None
        assert twin.render() != env.render()
        for action, expected in rest:
            assert twin.step(action) == expected


def test_a_player_who_strays_can_ask_the_expert_again() -> None:
    with made() as env:
        env.reset(seed=3)
        first = env.expert_action()
        env.step("inventory")
        assert env.expert_action() == first
        env.step(first)
        assert env.expert_action() != first


def test_a_wrong_focus_takes_back_what_was_earned() -> None:
    with made() as env:
        env.reset(seed=3)
        earned = env.step(env.expert_action()).reward
        assert earned > 0
        step = env.step("focus on air")
        assert step.reward == -earned
        assert step.done
        assert step.info["success"] is False
        assert step.info["ending"] == "lost"
        assert "failed" in step.observation


def test_bad_commands_are_answered_and_change_nothing() -> None:
    with made(error_reward=-0.1) as env:
        env.reset(seed=3)
        seen = env.render()
        for bad in ("", "xyzzy", "open", "focus on unicorn", "look around " * 40, "\ud800", "\x00", "Action:"):
            step = env.step(bad)
            assert step.info["invalid"] == "format"
            assert step.reward == -0.1
            assert "pick up OBJ" in step.observation
        assert env.render() == seen
        assert "invalid" not in env.step("help").info
        assert "door to kitchen" in env.step("objects").observation
        assert env.score == 0.0


@pytest.mark.parametrize(("task", "actions"), [
    ("find-animal", ["open door to outside", "go to outside", "wait", "look around", "wait", "look around"]),
    ("boil", ["open cupboard", "open door", "9", "open door", "0", "inventory", "wait1", "look around"]),
])  # fmt: skip
def test_what_cannot_be_read_leaves_no_trace(task: str, actions: list[str]) -> None:
    """No time passes and no chance is drawn, so worlds are built again without it; not so in answer to a question."""
    with made(tasks=task) as plain, made(tasks=task) as env:
        for one in (plain, env):
            one.reset(seed=1, options={"variation": 3})
        for action in actions:
            if not env._choices:
                assert env.step("xyzzy").info["invalid"] == "format"
            assert env.step(action).observation == plain.step(action).observation
        with env.fork() as twin:
            assert twin.render() == plain.render()
            assert twin.step("wait").observation == plain.step("wait").observation
            assert twin.render() == plain.render()
        with made(tasks=task) as one:
            one.reset(seed=1, options={"variation": 3})
            one.step("open door")
            one.step("xyzzy")
            with one.fork() as twin:
                assert twin.step("0") == one.step("0")


def test_where_the_engine_breaks_the_world_is_as_it_was_before() -> None:
    with made() as env, made() as twin:
        for one in (env, twin):
            one.reset(seed=3)
            one.step("open door to kitchen")
        assert env._world is not None
        engine, live = env._world._engine, env._world._live
        assert engine is not None
        assert live is not None
        with engine.lock:  # the state that the engine is in after an exception of its own
            inner = engine.wire.ref(engine.wire.ref(live.interface, "agentInterface"), "get")
            engine.wire.call(inner, "setErrorState", "java.lang.NullPointerException")
        step = env.step("go to kitchen")
        assert step.info["invalid"] == "rule"
        assert "NullPointerException" in step.observation
        assert not step.done
        for action in ("go to kitchen", "look around"):
            assert env.step(action).observation == twin.step(action).observation


def test_where_a_command_is_ambiguous_a_number_decides() -> None:
    with made() as env:
        env.reset(seed=3)
        step = env.step("open door")
        assert str(step.observation).startswith("Ambiguous request")
        assert env.sample_random_action().isdigit()
        assert "now open" in env.step("0").observation


def test_commands_are_found_in_replies() -> None:
    assert read_command("open door to kitchen") == "open door to kitchen"
    assert read_command("I am in the hallway.\n\nopen   door to kitchen\n") == "open door to kitchen"
    assert read_command("Thought: it is cold\nAction: go to kitchen\nObservation: warm") == "go to kitchen"
    assert read_command("<think>look\naround</think>wait") == "wait"
    assert read_command(" \n ") == ""


def test_simplifications_change_the_world() -> None:
    with made(simplifications="easy") as easy, made() as plain:
        hard, _ = plain.reset(seed=3)
        prompt, _ = easy.reset(seed=3)
        assert "teleport" in prompt
        assert "connect" not in prompt
        assert "connect" in hard
        assert "that is closed" not in prompt
        assert "teleport" in str(easy.step("teleport to kitchen").observation).lower()
        assert plain.step("teleport to kitchen").info["invalid"] == "format"  # beside it, in the same process
        assert easy.step("help").observation != plain.step("help").observation


def test_episodes_can_be_named() -> None:
    with made(tasks="All", split="test") as env:
        _, info = env.reset(seed=1, options={"task": "4-3", "variation": 7})
        assert (info["task"], info["variation"]) == ("find-plant", 7)
        assert info["max_turns"] == TYPES["find-plant"].turns
        _, info = env.reset(seed=1, options={"task": "find-plant"})
        assert info["variation"] in TYPES["find-plant"].split("test")
        for wrong in ({"task": "Find"}, {"task": "find-plan"}, {"variation": 10_000}, {"variatoin": 1}):
            with pytest.raises(BadValue):
                env.reset(seed=1, options=wrong)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"tasks": "find-plan"}, "find-plant"),
        ({"tasks": ()}, "at least one"),
        ({"split": "training"}, "train, dev, test"),
        ({"simplifications": "openDoor"}, "openDoors"),
        ({"simplifications": ("easy", "openDoors")}, "leave out"),
        ({"tasks": "TestConductivity", "simplifications": "noElectricalAction"}, "needs electrical"),
        ({"max_turns": 0}, "from 1 up"),
    ],
)
def test_wrong_settings_are_refused_with_the_fix(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        made(**kwargs)


def test_a_misspelt_keyword_is_refused() -> None:
    with pytest.raises(UnknownKeyword, match="simplifications"):
        palestra.make("sciworld:Find-v0", simplification="easy")


def transcript(env: SciWorld, seed: int, actions: list[str]) -> list[str]:
    prompt, _ = env.reset(seed=seed)
    return [str(prompt), *(str(env.step(action).observation) for action in actions)]


def test_more_worlds_than_fit_are_built_again_and_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = ["wait", "open door to kitchen", "look around"]
    with made() as env:
        alone = {seed: transcript(env, seed, actions) for seed in (3, 4, 5)}
    monkeypatch.setattr(engine_module, "MOST_WORLDS", 2)
    envs = {seed: made() for seed in alone}
    beside = {seed: [str(env.reset(seed=seed)[0])] for seed, env in envs.items()}
    for action in actions:
        for seed, env in envs.items():
            beside[seed].append(str(env.step(action).observation))
    assert len(pool.engines[0].worlds) <= 2
    assert beside == alone
    for env in envs.values():
        env.close()


def test_worlds_are_freed_by_closing_and_by_garbage_collection() -> None:
    env = made()
    env.reset(seed=3)
    env.step("wait1")
    before = len(pool.engines[0].worlds)
    others = [env.fork() for _ in range(3)]
    for other in others:
        other.step("wait1")
    assert len(pool.engines[0].worlds) == before + 3
    others[0].close()
    others[0].close()
    assert len(pool.engines[0].worlds) == before + 2
    del other, others
    gc.collect()
    env.step("wait1")
    assert len(pool.engines[0].worlds) == before
    env.close()
    assert len(pool.engines[0].worlds) == before - 1


def test_random_players_know_what_is_there() -> None:
    with made() as env:
        env.reset(seed=3)
        drawn = {env.sample_random_action() for _ in range(8)}
        assert len(drawn) > 4
        assert not any("OBJ" in action for action in drawn)
        seen = env.fork()
        env.valid_actions()
        assert "go to kitchen" not in drawn or "open door to kitchen" in env.valid_actions()
        assert [env.step(action) for action in ("wait", "look around")] == [
            seen.step(action) for action in ("wait", "look around")
        ]  # asking changed nothing


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8")))
def test_any_text_reaches_java_and_comes_back(text: str) -> None:
    engine = pool.engine()
    with engine.lock:
        assert engine.wire.text("java.util.Objects", "toString", text) == text
