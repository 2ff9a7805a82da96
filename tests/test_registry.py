"""Test the registry: ids, specs, registration, and errors with suggestions."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import AlreadyRegistered, BadEnvId, BadValue, MissingExtra, UnknownEnv, UnknownKeyword
from palestra.optional import require
from palestra.spec import EnvId
from tests.conformance.defective_envs import Sound

GAMES = {
    "Crosswords",
    "FifteenPuzzle",
    "Game2048",
    "GuessTheNumber",
    "Hangman",
    "Mastermind",
    "Minesweeper",
    "Sokoban",
    "Sudoku",
    "TowerofHanoi",
    "WordSearch",
    "Wordle",
}


@pytest.fixture
def spare_id() -> Any:
    yield "zoo:Spare-v0"
    if "zoo:Spare-v0" in palestra.list_envs():
        palestra.unregister("zoo:Spare-v0")


def test_every_game_of_the_suite_is_listed() -> None:
    stems = {env_id.split("-")[0].removeprefix("game:") for env_id in palestra.list_envs("game")}
    assert stems >= GAMES
    for stem in GAMES:
        variants = {env_id.rsplit("-", 1)[1] for env_id in palestra.list_envs("game") if f":{stem}-" in env_id}
        assert {"easy", "hard", "random"} <= variants


def test_specs_are_json_and_ids_follow_the_grammar() -> None:
    for env_id in palestra.list_envs():
        spec = palestra.get_spec(env_id)
        assert json.loads(json.dumps(spec.to_json()))["id"] == env_id
        assert spec.summary, env_id
        assert spec.parts.family == env_id.split(":")[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("game:Sudoku-v0-easy", ("game", "Sudoku", 0, "easy")),
        ("game:Game2048-v0-extreme-hard", ("game", "Game2048", 0, "extreme-hard")),
        ("math:GSM8K", ("math", "GSM8K", None, None)),
        ("logic:RuleTaker-d5", ("logic", "RuleTaker", None, "d5")),
        ("math:Math8K-3to5", ("math", "Math8K", None, "3to5")),
        ("eval:2Wiki", ("eval", "2Wiki", None, None)),
        ("babyai:GoTo-v12", ("babyai", "GoTo", 12, None)),
    ],
)
def test_ids_are_parsed(text: str, parts: tuple[Any, ...]) -> None:
    assert EnvId.parse(text) == parts


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_a_clear_error(text: str) -> None:
    try:
        EnvId.parse(text)
    except BadEnvId as err:
        assert "family:Name-vN" in str(err)


def test_unknown_ids_raise_with_the_nearest_id() -> None:
    with pytest.raises(UnknownEnv, match="Did you mean game:Sudoku-v0-easy"):
        palestra.make("game:sudoku-v0-easy")
    with pytest.raises(UnknownEnv, match="`palestra envs` lists all ids"):
        palestra.make("nonsense:Nothing-v0")
    with pytest.raises(BadEnvId, match="Valid names are family:Name-vN"):
        palestra.make("sudoku")
    with pytest.raises(UnknownEnv, match="no family 'gmae'. The families are .*game"):
        palestra.list_envs("gmae")


def test_unknown_keywords_raise_with_the_nearest_keyword() -> None:
    with pytest.raises(UnknownKeyword, match=r"Sudoku has no keyword argument clus\. Did you mean clues\?"):
        palestra.make("game:Sudoku-v0-easy", clus=9)
    with pytest.raises(TypeError, match="It has none"):
        Sound(anything=1)  # type: ignore[call-arg]


def test_register_by_name_by_class_and_by_function(spare_id: str) -> None:
    for entry in ("tests.conformance.defective_envs:Sound", Sound, lambda: Sound()):
        palestra.register(spare_id, entry)
        env = palestra.make(spare_id)
        assert isinstance(env, Sound)
        assert env.spec is palestra.get_spec(spare_id)
        with pytest.raises(AlreadyRegistered, match="is already registered"):
            palestra.register(spare_id, Sound, expert_success=0.5)
        palestra.unregister(spare_id)
        with pytest.raises(UnknownEnv):
            palestra.make(spare_id)


def test_registered_keywords_are_defaults(spare_id: str) -> None:
    palestra.register(spare_id, "palestra.envs.games.guess_the_number:GuessTheNumber", max_number=30, max_turns=3)
    assert palestra.make(spare_id).max_turns == 3
    assert palestra.make(spare_id, max_turns=8).max_turns == 8


@pytest.mark.parametrize("entry", ["nowhere", "tests.conformance.defective_envs:", 3])
def test_malformed_entry_points_are_rejected_by_register(entry: Any, spare_id: str) -> None:
    with pytest.raises(BadValue, match="an entry point"):
        palestra.register(spare_id, entry)


@pytest.mark.parametrize("entry", ["tests.conformance.defective_envs:Unicorn", "no_such_package.envs:Env"])
def test_entry_points_that_cannot_be_imported_raise_in_make(entry: str, spare_id: str) -> None:
    palestra.register(spare_id, entry)
    with pytest.raises(BadValue, match="cannot be imported"):
        palestra.make(spare_id)


def test_a_missing_extra_raises_with_the_pip_command(spare_id: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install .*\[worlds\]'"):
        require("no_such_package.inner", extra="worlds")
    with pytest.raises(MissingExtra, match=r"Install it with: pip install git\+https://host/repo$"):
        require("no_such_package", command="pip install git+https://host/repo")
    palestra.register_spec(palestra.EnvSpec(id=spare_id, entry_point="no_such_package:Env", extra="worlds"))
    with pytest.raises(MissingExtra, match=r"needs no_such_package.*pip install .*\[worlds\]'"):
        palestra.make(spare_id)


def test_require_returns_an_installed_module() -> None:
    assert require("json", extra="none") is json


def test_print_envs() -> None:
    text = io.StringIO()
    palestra.print_envs(file=text)
    lines = text.getvalue().splitlines()
    assert len(lines) == len(palestra.list_envs())
    assert any("Sudoku(scale=4, clues=10, max_turns=15)" in line for line in lines)


def test_make_accepts_a_first_seed_and_wrappers() -> None:
    from palestra.wrappers import Horizon, Statistics

    env = palestra.make("game:GuessTheNumber-v0-easy", seed=12, wrappers=[lambda inner: Horizon(inner, 2), Statistics])
    assert isinstance(env, Statistics)
    assert isinstance(env.env, Horizon)
    assert env.reset()[1]["seed"] == 12
    second = env.reset()[1]["seed"]
    assert second != 12
    other = palestra.make("game:GuessTheNumber-v0-easy")
    other.reset(seed=12)
    assert other.reset()[1]["seed"] == second


def test_the_order_of_ids_does_not_depend_on_the_first_env_created() -> None:
    code = "import palestra; palestra.make('{}'); print(palestra.list_envs())"
    lists = {
        subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True).stdout
        for first in ("logic:Rules-v0-d0", "game:Wordle-v0-easy")
    }
    assert len(lists) == 1
