"""Test SciWorld's rewards, commands, forks and concurrent episodes. All tests share one Java process."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.sciworld import simulator as simulator_module
from palestra.envs.sciworld.env import SciWorld
from palestra.envs.sciworld.pool import pool
from palestra.envs.sciworld.tasks import GROUPS, SPLITS, TYPES, types_of
from palestra.errors import BadValue, EpisodeOver, UnknownKeyword
from palestra.parsing import read_command


def make_env(**kwargs: Any) -> SciWorld:
    return SciWorld(**{"tasks": "Find", "prepare_next": False, **kwargs})


def test_types_variations_and_splits_equal_scienceworlds() -> None:
    simulator = pool.simulator()
    connection = simulator.connection
    with simulator.lock, connection.errors():
        interface = connection.java_class("scienceworld.runtime.pythonapi.PythonInterface")()
        names = interface.getTaskNames()
        assert set(connection.java_class("java.lang.String").join("\n", names).split("\n")) == set(TYPES)
        for task in TYPES.values():
            assert interface.getTaskMaxVariations(task.name) == task.variations
            getattr(interface, "taskStr_$eq")(task.name)
            for split, method in (("train", "Train"), ("dev", "Dev"), ("test", "Test")):
                variations = getattr(interface, f"getVariations{method}")()
                assert variations.toString() == str(list(task.split(split)))
                connection.free(variations)
        connection.free(names)
        connection.free(interface)


def test_groups_are_types_with_a_common_prefix() -> None:
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


def test_the_gold_path_earns_one_in_total_and_forks_continue_identically() -> None:
    with make_env() as env:
        prompt, info = env.reset(seed=3)
        assert info["goal"] in prompt
        rewards, fork, rest = [], None, []
        step = None
        while step is None or not step.done:
            if env.turn == 5:
                fork = env.fork()
            action = env.expert_action()
            step = env.step(action)
            rewards.append(step.reward)
            if fork is not None:
                rest.append((action, step))
        assert step.info["success"]
        assert step.info["ending"] == "solved"
        assert sum(rewards) == pytest.approx(1.0)
        assert sum(reward > 0 for reward in rewards) >= 4
        with pytest.raises(EpisodeOver):
            env.step("wait")
        assert fork is not None
        assert fork.render() != env.render()
        for action, expected in rest:
            assert fork.step(action) == expected


def test_the_expert_continues_after_other_actions() -> None:
    with make_env() as env:
        env.reset(seed=3)
        first = env.expert_action()
        env.step("inventory")
        assert env.expert_action() == first
        env.step(first)
        assert env.expert_action() != first


def test_a_wrong_focus_removes_the_earned_reward() -> None:
    with make_env() as env:
        env.reset(seed=3)
        earned = env.step(env.expert_action()).reward
        assert earned > 0
        step = env.step("focus on air")
        assert step.reward == -earned
        assert step.done
        assert step.info["success"] is False
        assert step.info["ending"] == "lost"
        assert "failed" in step.observation


def test_bad_commands_get_feedback_and_change_nothing() -> None:
    with make_env(error_reward=-0.1) as env:
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
def test_unparsed_commands_change_nothing(task: str, actions: list[str]) -> None:
    """Unparsed commands use no time and no random numbers, so replays skip them, except after an ambiguous command."""
    with make_env(tasks=task) as plain, make_env(tasks=task) as env:
        for one in (plain, env):
            one.reset(seed=1, options={"variation": 3})
        for action in actions:
            if not env._choices:
                assert env.step("xyzzy").info["invalid"] == "format"
            assert env.step(action).observation == plain.step(action).observation
        with env.fork() as fork:
            assert fork.render() == plain.render()
            assert fork.step("wait").observation == plain.step("wait").observation
            assert fork.render() == plain.render()
        with make_env(tasks=task) as one:
            one.reset(seed=1, options={"variation": 3})
            one.step("open door")
            one.step("xyzzy")
            with one.fork() as fork:
                assert fork.step("0") == one.step("0")


def test_a_java_exception_leaves_the_state_as_before() -> None:
    with make_env() as env, make_env() as fork:
        for one in (env, fork):
            one.reset(seed=3)
            one.step("open door to kitchen")
        assert env._simulation is not None
        simulator, instance = env._simulation._simulator, env._simulation._instance
        assert simulator is not None
        assert instance is not None
        with simulator.lock, simulator.connection.errors():  # set the state that ScienceWorld has after an exception
            instance.interface.agentInterface().get().setErrorState("java.lang.NullPointerException")
        step = env.step("go to kitchen")
        assert step.info["invalid"] == "rule"
        assert "NullPointerException" in step.observation
        assert not step.done
        for action in ("go to kitchen", "look around"):
            assert env.step(action).observation == fork.step(action).observation


def test_an_ambiguous_command_is_resolved_by_a_number() -> None:
    with make_env() as env:
        env.reset(seed=3)
        step = env.step("open door")
        assert str(step.observation).startswith("Ambiguous request")
        assert env.sample_random_action().isdigit()
        assert "now open" in env.step("0").observation


def test_commands_are_parsed_from_replies() -> None:
    assert read_command("open door to kitchen") == "open door to kitchen"
    assert read_command("I am in the hallway.\n\nopen   door to kitchen\n") == "open door to kitchen"
    assert read_command("Thought: it is cold\nAction: go to kitchen\nObservation: warm") == "go to kitchen"
    assert read_command("<think>look\naround</think>wait") == "wait"
    assert read_command(" \n ") == ""


def test_simplifications_change_the_simulation() -> None:
    with make_env(simplifications="easy") as easy, make_env() as plain:
        hard, _ = plain.reset(seed=3)
        prompt, _ = easy.reset(seed=3)
        assert "teleport" in prompt
        assert "connect" not in prompt
        assert "connect" in hard
        assert "that is closed" not in prompt
        assert "teleport" in str(easy.step("teleport to kitchen").observation).lower()
        assert plain.step("teleport to kitchen").info["invalid"] == "format"  # this env is not simplified
        assert easy.step("help").observation != plain.step("help").observation


def test_reset_options_select_the_episode() -> None:
    with make_env(tasks="All", data_split="test") as env:
        _, info = env.reset(seed=1, options={"task": "4-3", "variation": 7})
        assert (info["task"], info["variation"]) == ("find-plant", 7)
        assert info["max_turns"] == TYPES["find-plant"].turns
        _, info = env.reset(seed=1, options={"task": "find-plant"})
        assert info["variation"] in TYPES["find-plant"].split("test")
        for wrong in ({"task": "Find"}, {"task": "find-plan"}, {"variation": 10_000}, {"variatoin": 1}):
            with pytest.raises(BadValue):
                env.reset(seed=1, options=wrong)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"tasks": "find-plan"}, "find-plant"),
        ({"tasks": ()}, "at least one"),
        ({"data_split": "training"}, "train, dev, test"),
        ({"simplifications": "openDoor"}, "openDoors"),
        ({"simplifications": ("easy", "openDoors")}, "leave out"),
        ({"tasks": "TestConductivity", "simplifications": "noElectricalAction"}, "needs electrical"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_wrong_arguments_raise_with_the_accepted_values(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        make_env(**kwargs)


def test_a_misspelt_keyword_raises() -> None:
    with pytest.raises(UnknownKeyword, match="simplifications"):
        palestra.make("sciworld:Find-v0", simplification="easy")


def transcript(env: SciWorld, seed: int, actions: list[str]) -> list[str]:
    prompt, _ = env.reset(seed=seed)
    return [str(prompt), *(str(env.step(action).observation) for action in actions)]


def test_dropped_instances_are_rebuilt_transparently(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = ["wait", "open door to kitchen", "look around"]
    with make_env() as env:
        alone = {seed: transcript(env, seed, actions) for seed in (3, 4, 5)}
    monkeypatch.setattr(simulator_module, "MAX_INSTANCES", 2)
    envs = {seed: make_env() for seed in alone}
    beside = {seed: [str(env.reset(seed=seed)[0])] for seed, env in envs.items()}
    for action in actions:
        for seed, env in envs.items():
            beside[seed].append(str(env.step(action).observation))
    assert len(pool.simulators[0].instances) <= 2
    assert beside == alone
    for env in envs.values():
        env.close()


def test_instances_are_freed_by_close_and_garbage_collection() -> None:
    env = make_env()
    env.reset(seed=3)
    env.step("wait1")
    before = len(pool.simulators[0].instances)
    others = [env.fork() for _ in range(3)]
    for other in others:
        other.step("wait1")
    assert len(pool.simulators[0].instances) == before + 3
    others[0].close()
    others[0].close()
    assert len(pool.simulators[0].instances) == before + 2
    del other, others
    gc.collect()
    env.step("wait1")
    assert len(pool.simulators[0].instances) == before
    env.close()
    assert len(pool.simulators[0].instances) == before - 1


def test_random_actions_name_existing_objects() -> None:
    with make_env() as env:
        env.reset(seed=3)
        drawn = {env.sample_random_action() for _ in range(8)}
        assert len(drawn) > 4
        assert not any("OBJ" in action for action in drawn)
        seen = env.fork()
        env.valid_actions()
        assert "go to kitchen" not in drawn or "open door to kitchen" in env.valid_actions()
        assert [env.step(action) for action in ("wait", "look around")] == [
            seen.step(action) for action in ("wait", "look around")
        ]  # the queries had no effect


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_the_round_trip_to_java(text: str) -> None:
    simulator = pool.simulator()
    with simulator.lock, simulator.connection.errors():
        assert simulator.connection.java_class("java.util.Objects").toString(text) == text


def test_the_order_of_agentgym_selects_tasks_by_number() -> None:
    env = SciWorld(order="agentgym", prepare_next=False)
    assert env.num_tasks == 4_639
    episodes = [env.episode_of(seed) for seed in (0, 31, 31 + 4_639)]
    assert [(one.task, one.variation) for one in episodes] == [("boil", 0), ("melt", 1), ("melt", 1)]
    _, info = env.reset(seed=31)
    assert (info["task"], info["variation"]) == ("melt", 1)
    env.close()
    with pytest.raises(BadValue, match="`order` must be"):
        SciWorld(order="random")  # type: ignore[arg-type]
