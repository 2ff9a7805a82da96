"""Test that code written for GEM runs on Palestra's environments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from palestra.compat.gem.core import Env, EnvWrapper
from palestra.compat.gem.envs.code_env import CodeEnv
from palestra.compat.gem.envs.math_env import MathEnv
from palestra.compat.gem.envs.registration import ENV_REGISTRY
from palestra.compat.gem.tools.base_tool import BaseTool
from palestra.compat.gem.tools.mcp_tool import MCPTool
from palestra.compat.gem.tools.python_code_tool import PythonCodeTool
from palestra.compat.gem.tools.tool_env_wrapper import ToolEnvWrapper
from palestra.compat.gem.utils.constants import TERMINAL_STATE
from palestra.compat.gem.utils.debug import run_and_print_episode
from palestra.compat.gem.utils.parsing import extract_last_boxed_answer
from palestra.compat.gem.wrappers.wrapper_factory import WRAPPER_FACTORY, get_wrapper_fns

import palestra
import palestra.compat.gem as gem

EASY = "game:GuessTheNumber-v0-easy"
# Keyword arguments that GEM uses to register environments, one example per class.
REGISTERED: dict[str, dict[str, Any]] = {
    "game:GuessTheNumber-v0-hard": {"min_number": 1, "max_number": 50, "max_turns": 7},
    "game:Mastermind-v0-easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10, "duplicate_numbers": False},
    "game:Minesweeper-v0-random": {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
    "game:Wordle-v0-easy": {"word_length": 3, "only_real_words": True, "max_turns": 15},
    "game:FifteenPuzzle-v0-easy": {"num_rows": 2, "max_turns": 10},
    "game:Hangman-v0-easy": {"word_length": 3, "hardcore": False, "max_turns": 10},
    "game:Sudoku-v0-easy": {"clues": 10, "max_turns": 15, "scale": 4},
    "game:TowerofHanoi-v0-easy": {"num_disks": 3, "max_turns": 10},
    "game:Game2048-v0-extreme-hard": {"target_tile": 2048, "max_turns": 100},
    "game:Sokoban-v0-random": {"room_size": None, "num_boxes": None, "max_turns": None},
    "game:Crosswords-v0-easy": {"hardcore": False, "max_turns": 30, "num_words": 3},
    "game:WordSearch-v0-easy": {"num_words": 5, "max_turns": 20, "hardcore": False},
    "game:WikiGame-v0-easy": {"max_turns": 30},
    "rg:leg_counting": {"name": "leg_counting", "size": 500, "seed": 42},
    "webshop:test-text": {
        "observation_mode": "text",
        "max_turns": 15,
        "split": "test",
        "error_tolerance": 15,
        "format_error_reward": -0.1,
    },
}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with two of GEM's datasets, with the columns as published."""
    rows: dict[str, list[dict[str, Any]]] = {
        "GSM-8k/train": [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(20)],
        "HotpotQA/train": [{"problem": f"Who is number {i}?", "answer": [f"Person {i}"]} for i in range(20)],
    }
    for name, items in rows.items():
        file = tmp_path / "axon-rl" / f"{name}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(json.dumps(item) + "\n" for item in items))
    monkeypatch.setenv("PALESTRA_MIRROR", str(tmp_path))
    return tmp_path


@pytest.fixture
def installed() -> Iterator[None]:
    uninstall = gem.install()
    yield
    uninstall()


@pytest.mark.parametrize("env_id", REGISTERED)
def test_registered_keywords_are_accepted(env_id: str) -> None:
    env = gem.make(env_id=env_id, **REGISTERED[env_id])
    first, info = env.reset(seed=3)
    assert env.reset(seed=3)[0] == first
    assert isinstance(info, dict)
    assert isinstance(env, gem.Env)
    assert vars(env)["env_id"] == env_id
    _, reward, terminated, truncated, _ = env.step(env.sample_random_action())
    assert isinstance(reward, float)
    assert isinstance(terminated | truncated, bool)
    env.close()


def test_classes_of_environments_can_be_told_apart() -> None:
    assert issubclass(type(palestra.make(EASY)), gem.Env)
    assert not issubclass(int, gem.Env)
    assert not issubclass(int, palestra.Env)  # must not recurse forever through the check in gem.Env
    assert not issubclass(type(palestra.make(EASY)), Reverse)


def test_short_max_turns_truncates() -> None:
    env = gem.make("game:TowerofHanoi-v0-easy", max_turns=2)
    env.reset(seed=1)
    assert not env.step(r"\boxed{A B}").truncated
    assert env.step(r"\boxed{A C}").truncated


def test_keyword_without_effect_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        gem.make(EASY, load_from_cache_file=False)
    assert [record.message for record in caplog.records] == [
        "the keyword argument 'load_from_cache_file' has no effect in Palestra's GuessTheNumber"
    ]


def test_step_after_the_end_has_no_reward() -> None:
    env = gem.make(EASY)
    env.reset(seed=1)
    while not (step := env.step(str(env.expert_action()))).terminated:
        pass
    assert step.reward == 1
    assert env.step(r"\boxed{1}")[1:3] == (0.0, True)


def test_seeds_of_spawned_environments() -> None:
    env: Any = gem.make("rg:leg_counting", seed=7)
    assert env.seed == 7
    first = env.reset()[0]
    assert env.reset()[0] != first
    assert env.seed == 7  # the seed of the environment, not of its current question
    child = env.spawn(seed=env.seed + 2)
    assert child.seed == 9
    assert child.reset()[0] == gem.make("rg:leg_counting", seed=9).reset()[0] != first
    assert (child.env_id, env.spawn().seed) == ("rg:leg_counting", 7)


def test_states_can_be_restored() -> None:
    env: Any = gem.make("game:Mastermind-v0-easy")
    env.reset(seed=5)
    state = env.get_state()
    first = env.step(r"\boxed{1 2}")
    env.set_state(state)
    assert env.step(r"\boxed{1 2}") == first
    copy = env.spawn(same_state=True)
    assert copy.step(r"\boxed{3 4}") == env.step(r"\boxed{3 4}")


@pytest.mark.usefixtures("mirror")
def test_math_dataset() -> None:
    env: Any = gem.make("math:GSM8K", verbose=True, use_format_error_reward=True)
    question, _ = env.reset()
    assert question.startswith("What is ")
    assert question.endswith("?")
    after, reward, terminated, _, info = env.step(f"\\boxed{{{env.answer}}}")
    assert (after, reward, terminated, info["correct"]) == (TERMINAL_STATE, 1.0, True, True)
    env.answer = "17"  # as in GEM's evaluation script, which grades many answers without a reset
    assert env.step(r"\boxed{17}")[1] == 1.0
    assert env.step("no box")[1] == -0.1
    fresh = gem.make("math:GSM8K", seed=7)
    assert len({fresh.reset()[0] for _ in range(20)}) == 20
    assert gem.make("math:GSM8K", eval=True).reset()[0] == "What is 0 + 0?"
    assert env.reset(idx=3)[0] == "What is 3 + 3?"
    assert env.dataset["problem"][3] == "What is 3 + 3?"


@pytest.mark.usefixtures("mirror")
@pytest.mark.parametrize("boxed", [True, False])
def test_extract_boxed(boxed: bool) -> None:
    env: Any = gem.make("qa:HotpotQA", extract_boxed=boxed, max_turns=3)
    env.reset()
    in_box, in_tag = f"\\boxed{{{env.answer[0]}}}", f"<answer>{env.answer[0]}</answer>"
    assert env.step(in_box)[1] == float(boxed)
    assert env.step(in_tag)[1] == float(not boxed)


@pytest.mark.usefixtures("mirror")
def test_a_dataset_can_be_registered() -> None:
    gem.register(
        "math:Example",
        "gem.envs.math_env:MathEnv",
        dataset_name="axon-rl/GSM-8k",
        question_key="problem",
        answer_key="answer",
    )
    try:
        env: Any = gem.make("math:Example")
        env.reset()
        assert env.step(f"\\boxed{{{env.answer}}}")[1] == 1
        assert "math:Example" in ENV_REGISTRY
        with pytest.raises(ValueError, match="already registered"):
            gem.register("math:Example", MathEnv)
    finally:
        palestra.unregister("math:Example")


def test_rows_in_memory() -> None:
    from datasets import Dataset

    rows = {"problem": ["Read n and print its double."], "tests": [{"inputs": ["2\n"], "outputs": ["4\n"]}]}
    env = CodeEnv(dataset=Dataset.from_dict(rows), dataset_name="codecontests", max_tests=3, verbose=True)
    env.reset()
    assert env.tests["inputs"] == ["2\n"]
    assert env.step("```python\nprint(2 * int(input()))\n```")[1] == 1
    assert env.step("```python\nprint(int(input()))\n```")[1] == 0


class Reverse(Env):
    """An environment like GEM's example, which uses the global random generator."""

    def __init__(self, str_len: int = 5) -> None:
        super().__init__()
        self.str_len = str_len

    def reset(self, seed: int | None = None) -> Any:
        import random

        super().reset(seed)
        self.text = "".join(random.choices("abcdef", k=self.str_len))
        return f"Reverse {self.text}.", {}

    def step(self, action: str) -> Any:
        answer = extract_last_boxed_answer(action)
        return TERMINAL_STATE, float(answer == self.text[::-1]), True, True, {}


class Shout(EnvWrapper):
    """A wrapper written for GEM."""

    def reset(self, seed: int | None = None) -> Any:
        observation, info = self.env.reset(seed=seed)
        return str(observation).upper(), info


def test_own_environment_and_wrapper() -> None:
    gem.register("game:Reverse", Reverse, str_len=4)
    try:
        env: Any = gem.make("game:Reverse")
        first, info = env.reset(seed=8)
        assert info["seed"] == 8
        assert env.step(f"\\boxed{{{env.text[::-1]}}}")[1] == 1
        vector = gem.make_vec(["game:Reverse"] * 2, wrappers=[Shout], seed=4)
        assert all(str(text).startswith("REVERSE ") for text in vector.reset(seed=8)[0])
        assert vector.reset(seed=8)[0][0] == first.upper()
        assert palestra.make("game:Reverse").reset(seed=8)[0] == first
    finally:
        palestra.unregister("game:Reverse")


def test_ids_without_a_family() -> None:
    assert "reverse" not in ENV_REGISTRY
    gem.register("reverse", Reverse, str_len=3)  # ROLL registers ids such as "sokoban"
    assert ENV_REGISTRY["reverse"].kwargs == {"str_len": 3}
    assert len(gem.make(env_id="reverse", str_len=6).reset(seed=1)[0]) == len("Reverse abcdef.")
    assert len(gem.make_vec(["reverse"] * 2).reset(seed=1)[0]) == 2


@pytest.mark.parametrize("async_mode", [False, True])
def test_vectors_return_arrays(async_mode: bool, capsys: pytest.CaptureFixture[str]) -> None:
    vector = gem.make_vec([EASY, "game:Mastermind-v0-easy"], [WRAPPER_FACTORY["concat"]], async_mode=async_mode)
    observations, _ = vector.reset(seed=1)
    assert len(observations) == len(vector) == 2
    _, rewards, terminated, truncated, _ = vector.step([r"\boxed{1}", r"\boxed{1 2}"])
    assert isinstance(rewards, np.ndarray)
    assert rewards.shape == (2,)
    assert not (terminated | truncated).all()
    assert rewards[terminated].size == terminated.sum()
    _, some, _, _, _ = vector.step({1: r"\boxed{2 3}"})
    assert some.shape == (1,)
    run_and_print_episode(
        vector, lambda _: [env.sample_random_action() for env in vector.envs], ignore_done=True, max_steps=3
    )
    assert capsys.readouterr().out.count("Step ") == 3
    vector.close()


class Echo(BaseTool):
    """A tool written for GEM."""

    tool_type = "echo"

    def instruction_string(self) -> str:
        return "Write echo: TEXT."

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        return ("echo:" in action, "fail" in action, action.partition("echo:")[2], action)


def test_tool_wrapper() -> None:
    env = ToolEnvWrapper(gem.make(EASY), [Echo()], tool_reward=0.05, tool_success_reward=0.25, max_tool_uses=2)
    observation, info = env.reset(seed=1)
    assert observation.endswith("Write echo: TEXT.")
    assert info["use_tool"] is False
    after, reward, terminated, _, info = env.step("echo: hello")
    assert (after, terminated, info["tool_type"]) == (" hello", False, "echo")
    assert reward == pytest.approx(0.3)
    assert env.step("echo: fail")[1] == 0.05
    assert env.step(r"echo: used up \boxed{1}")[4]["use_tool"] is False
    assert env.reset()[1]["prev_ep_tool_use_counter"] == 2


def test_python_tool() -> None:
    tool = PythonCodeTool(timeout=60, keep_error_last_line=True)
    assert tool.execute_action("think <python>print(6 * 7)</python> more") == (
        True,
        False,
        "Code execution result: 42\n\n",
        "think <python>print(6 * 7)</python>",
    )
    found, failed, text, _ = tool.execute_action("```python\nprint(1 / 0)\n```")
    assert (found, failed) == (True, True)
    assert text.strip() == "Code execution result: ZeroDivisionError: division by zero"
    assert tool.execute_action("no program")[0] is False


def test_mcp_tool() -> None:
    server = Path(__file__).parents[1] / "tools" / "mcp_server.py"
    tool = MCPTool.from_local_command({"command": sys.executable, "args": [str(server)]})
    names = [item["name"] for item in tool.get_available_tools()]
    assert names[0] in tool.instruction_string()
    found, failed, text, parsed = tool.execute_action(
        "<tool_call><tool_name>nothing</tool_name><arguments>{}</arguments></tool_call> rest"
    )
    assert (found, failed) == (False, True)
    assert text.startswith("Tool 'nothing' not found")
    assert parsed.endswith("</tool_call>")
    tool.close()


def test_wrappers_by_name() -> None:
    class Tokenizer:
        def apply_chat_template(self, messages: Any, **_: Any) -> str:
            return "".join(f"[{message['role']}]{message['content']}" for message in messages)

    plain: Any = WRAPPER_FACTORY["concat_with_action"](gem.make(EASY))
    first, _ = plain.reset(seed=1)
    assert plain.step(r"\boxed{10}")[0].startswith(first.rstrip("\n") + "\n\\boxed{10}\n")
    chat, track = get_wrapper_fns("concat_chat,episode_tracking", tokenizer=Tokenizer())
    env = track(chat(gem.make(EASY)))
    assert env.reset(seed=1)[0].startswith("[user]")
    step = env.step(r"\boxed{10}")
    assert r"[assistant]\boxed{10}[user]" in step[0]
    assert step[4]["step_counter"] == 1
    board: Any = WRAPPER_FACTORY["concat"](gem.make("game:Sokoban-v0-easy"))
    text, info = board.reset(seed=1)
    assert text.count(info["suffix"]) == 1
    assert len(WRAPPER_FACTORY) == 10


@pytest.mark.usefixtures("installed")
def test_install() -> None:
    import gem as alias
    from gem.tools.search_tool import SearchTool

    assert alias is gem
    assert SearchTool(search_url="http://localhost:1").topk == 3


def test_script_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, gem\n"
        "from gem.envs.game_env.guess_the_number import GuessTheNumberEnv\n"
        "env = GuessTheNumberEnv(min_number=1, max_number=10, max_turns=4)\n"
        "env.reset(seed=1)\n"
        "print(sys.argv[1], len(env.step('\\\\boxed{3}')))\n"
    )
    command = [sys.executable, "-m", "palestra.compat.gem", str(script), "argument"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "argument 5\n", done.stderr
