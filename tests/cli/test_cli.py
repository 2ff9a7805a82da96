"""Test the `palestra` command in a separate process, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import palestra
from palestra.cli import VERBS, main
from palestra.cli.envs import FAMILIES
from palestra.registry.specs import CATALOGS


def palestra_cli(*args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palestra", *args], input=stdin, capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_verb_and_each_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = palestra_cli("--help").stdout
    for verb, summary in VERBS.items():
        assert verb in text
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert summary in capsys.readouterr().out


def test_no_verb_shows_the_help() -> None:
    done = palestra_cli()
    assert done.returncode == 2
    assert "usage: palestra" in done.stdout


def test_version() -> None:
    assert palestra_cli("--version").stdout.strip() == f"palestra {palestra.__version__}"


def test_envs_lists_every_id() -> None:
    table = palestra_cli("envs", "--all").stdout
    for env_id in palestra.list_envs():
        assert env_id in table
    row = next(line for line in table.splitlines() if "logic:Rules-v0-d2 " in line)
    spec = palestra.get_spec("logic:Rules-v0-d2")
    rates = (spec.expert_success, spec.random_success, spec.echo_success, spec.constant_success)
    assert row.split()[2:6] == [f"{rate:.3f}" for rate in rates]
    assert row.endswith(f"[{spec.rates_reason}]")


def test_envs_overview_counts_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    rows = {line.split(":")[0]: line for line in capsys.readouterr().out.splitlines() if re.match(r"\w+: ", line)}
    assert list(rows) == list(CATALOGS)
    assert set(FAMILIES) == set(CATALOGS)
    assert f" {len(palestra.list_envs('game'))}  {FAMILIES['game']}" in rows["game"]


def test_envs_by_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "SUDOKU", "grid", "--json"]) == 0
    found = [spec["id"] for spec in json.loads(capsys.readouterr().out)]
    assert found == [f"game:Sudoku-v0-{level}" for level in ("easy", "hard", "random")]
    assert main(["envs", "game:sudoku", "--json"]) == 0
    assert [spec["id"] for spec in json.loads(capsys.readouterr().out)] == found
    assert main(["envs", "sudoko"]) == 2
    assert "Did you mean Sudoku?" in capsys.readouterr().err


def test_envs_as_json_and_by_pattern() -> None:
    specs = json.loads(palestra_cli("envs", "--json").stdout)
    assert [spec["id"] for spec in specs] == palestra.list_envs()
    easy = json.loads(palestra_cli("envs", "game:*-easy", "--json").stdout)
    assert [spec["id"] for spec in easy] == [i for i in palestra.list_envs("game") if i.endswith("-easy")]
    games = [spec for spec in specs if spec["id"].startswith("game:")]
    assert json.loads(palestra_cli("envs", "game:", "--json").stdout) == games


@pytest.mark.parametrize("agent", ["expert", "random"])
def test_play_by_an_agent_is_repeatable(agent: str) -> None:
    runs = [palestra_cli("play", "game:GuessTheNumber-v0-easy", "--agent", agent, "--seed", "4") for _ in range(2)]
    assert runs[0].returncode == 0
    assert runs[0].stdout == runs[1].stdout
    assert "seed 4" in runs[0].stdout
    assert "return" in runs[0].stdout


def test_several_episodes_are_counted_and_recorded(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    args = ["--agent", "expert", "--episodes", "3", "--record", str(path), "--set", "max_turns=5"]
    done = palestra_cli("play", "game:GuessTheNumber-v0-easy", *args)
    assert "solved 3 of 3" in done.stdout
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    assert [episode["kwargs"]["max_turns"] for episode in episodes] == [5, 5, 5]


def test_a_person_plays_with_hints_and_without_typing_boxes() -> None:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=4)
    lines = [":hint", "", "99", str(env.hidden)]  # type: ignore[attr-defined]
    done = palestra_cli("play", "game:GuessTheNumber-v0-easy", "--seed", "4", stdin="\n".join(lines) + "\n")
    assert done.returncode == 0
    assert "The expert would play \\boxed{5}" in done.stdout
    assert "99 is outside the range" in done.stdout
    assert "solved, return 1" in done.stdout


ECHO = """
import time, palestra

class Echo(palestra.Env):
    '''Repeat the word.'''

    def __init__(self, word="hello", delay=0.0):
        self.word, self.delay = word, delay

    def reset(self, seed=None, options=None):
        return f"Say {self.word}.", {"seed": self.start_episode(seed)}

    def step(self, action):
        time.sleep(self.delay)
        return "Over.", float(self.word in action), True, False, {"success": self.word in action}

    def sample_random_action(self):
        return self.word

palestra.register("own:Echo-v0", Echo, summary="An environment of a user.")
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_envs.py").write_text(ECHO)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize("name", [["own_envs:Echo"], ["own:Echo-v0", "--import", "own_envs"]])
def test_custom_environments_can_be_played(name: list[str]) -> None:
    options = ["--agent", "random", "--env-kwargs", '{"word": "moon"}', "--wrappers", "Horizon(turns=3)", "Statistics"]
    done = palestra_cli("play", *name, *options)
    assert done.returncode == 0, done.stderr
    assert "Say moon." in done.stdout
    assert "solved, return 1" in done.stdout
    assert name[0] in done.stdout
    assert name[0] in palestra_cli("envs", *name).stdout


@pytest.mark.usefixtures("own_module")
def test_a_hanging_step_is_reported() -> None:
    options = ["--agent", "random", "--set", "delay=30", "--step-timeout", "0.2"]
    done = palestra_cli("play", "own_envs:Echo", *options)
    assert done.returncode == 3
    assert "env failed: step took longer than 0.2 seconds" in done.stderr


def test_tools_are_named_on_the_command_line() -> None:
    done = palestra_cli("play", "game:GuessTheNumber-v0-easy", "--agent", "expert", "--tools", "python", "search")
    assert done.returncode == 0, done.stderr
    assert "<python>" in done.stdout or "python" in done.stdout


@pytest.mark.parametrize("stdin", ["", "3\n", ":quit\n"])
def test_a_person_can_quit(stdin: str) -> None:
    done = palestra_cli("play", "game:GuessTheNumber-v0-hard", "--seed", "4", stdin=stdin)
    assert done.returncode == 0
    assert done.stdout.endswith("You quit the game.\n")


def test_check_reports_as_text_and_as_json() -> None:
    done = palestra_cli("check", "game:GuessTheNumber-v0-easy", "--episodes", "10")
    assert done.returncode == 0
    assert "passed" in done.stdout
    row = json.loads(palestra_cli("check", "game:GuessTheNumber-v0-easy", "--json").stdout)
    assert row["passed"]
    assert row["expert"] == 1.0


def test_check_skips_environments_that_need_data_unless_it_is_given(tmp_path: Path) -> None:
    done = palestra_cli("check", "eval:")
    assert done.returncode == 0
    assert done.stdout.count("skipped, needs data") == len(palestra.list_envs("eval"))
    assert "[data]" in palestra_cli("envs", "eval:").stdout
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"problem": f"{i} + 1?", "answer": i + 1}) + "\n" for i in range(5)))
    args = ["math:File-v0", "--set", f"path={rows}", "--episodes", "5", "--seconds", "1"]
    assert "passed" in palestra_cli("check", *args).stdout


def test_check_reports_a_violation_and_fails() -> None:
    args = ["check", "game:GuessTheNumber-v0-hard", "--set", "fail_reward=0.5"]
    assert palestra_cli(*args).returncode == 0, "a lost game may have a reward if fail_reward is set"
    code = (
        "import sys, palestra\n"
        "from palestra.cli import main\n"
        "palestra.register('zoo:Clock-v0', 'tests.conformance.defective_envs:Clock')\n"
        "sys.exit(main(['check', 'zoo:Clock-v0']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "the clock" in done.stdout
    assert "env = palestra.make('zoo:Clock-v0')" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["play", "sudoku"], "Valid names are family:Name-vN"),
        (["play", "game:Sudoku-v0-easy", "--set", "clus=3"], "Did you mean clues"),
        (["play", "game:Sudoku-v0-easy", "--set", "clues"], "--set takes KEY=VALUE"),
        (["play", "game:Sudoku-v0-easy", "--env-kwargs", "[1]"], "--env-kwargs must be a JSON object"),
        (["play", "game:Sudoku-v0-easy", "--env-kwargs", "{"], "--env-kwargs must be a JSON object"),
        (["play", "game:Sudoku-v0-easy", "--tools", "pyhton"], "Did you mean python?"),
        (["play", "game:Sudoku-v0-easy", "--wrappers", "Horizn"], "no wrapper 'Horizn'"),
        (["play", "game:Sudoku-v0-easy", "--import", "no_such_module"], "no module named 'no_such_module'"),
        (["play", "no_such_module:Env"], "neither a family of environments nor a module"),
        (["play", "verifiers:owner/name"], "verifiers is not installed. Install it with: pip install"),
        (["play", "game:Sudoku-v0-easy", "--agent", "expert", "--episodes", "0"], "at least 1"),
        (["play", "game:Sudoku-v0-easy", "--seed", "-4"], "a seed must be an integer"),
        (["check", "game:Nothing*"], "no environment matches"),
        (["check", "nothing:"], "no family 'nothing'"),
        (["check"], "the following arguments are required"),
        (["plya", "game:Sudoku-v0-easy"], "there is no verb 'plya'. Did you mean play?"),
    ],
)
def test_usage_errors_print_one_sentence_and_exit_with_2(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(args))
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_usage_error_ends_the_process_without_a_traceback() -> None:
    done = palestra_cli("play", "game:Sudokku-v0-easy")
    assert done.returncode == 2
    assert "Did you mean game:Sudoku-v0-easy" in done.stderr
    assert "Traceback" not in done.stderr


def test_infrastructure_failures_exit_with_3() -> None:
    done = palestra_cli("play", "game:GuessTheNumber-v0-easy", "--agent", "expert", "--record", "/dev/full")
    assert done.returncode == 3
    assert "store failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_exits_without_a_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "palestra", "play", "game:GuessTheNumber-v0-easy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "Type your action" not in process.stdout.readline():
        pass
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", [["envs"], ["train", "--help"], ["eval", "--help"], ["--help"], ["--version"]])
def test_a_closed_pipe_exits_without_a_traceback(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "palestra", *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == ""


def test_doctor_reports_features_and_fixes() -> None:
    findings = {finding["feature"]: finding for finding in json.loads(palestra_cli("doctor", "--json").stdout)}
    assert {"machine", "sandbox", "GPU", "Java", "browser", "forge", "store"} <= findings.keys()
    assert findings["sandbox"]["state"] == "ok"
    assert "bubblewrap" in findings["sandbox"]["detail"]
    assert "[gymnasium]" in findings
    text = palestra_cli("doctor").stdout
    for finding in findings.values():
        assert finding["feature"] in text
        assert finding["fix"] in text
    bare = subprocess.run(
        [sys.executable, "-m", "palestra", "doctor"], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert bare.returncode == 0
    assert "apt-get install bubblewrap" in bare.stdout
    assert "apt-get install chromium" in bare.stdout


def test_commands_and_unreadable_lines_do_not_use_up_a_turn() -> None:
    lines = ":help\n:foo\n:HINT\nnot a number\n\n:quit\n"
    done = palestra_cli("play", "game:GuessTheNumber-v0-easy", "--seed", "3", stdin=lines)
    assert done.returncode == 0
    assert "There is no command :foo" in done.stdout
    assert "The expert would play" in done.stdout
    assert "Your action could not be read, so it does not use a turn." in done.stdout
    assert "Turn 1" not in done.stdout
    assert done.stdout.endswith("You quit the game.\n")


def test_several_environments_are_checked_in_processes_and_summarized(tmp_path: Path) -> None:
    (tmp_path / "own_envs.py").write_text(
        "import palestra\nfrom tests.conformance.defective_envs import Clock\n"
        "palestra.register('zoo:Clock-v0', Clock)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "palestra", "check", "game:Mastermind-v0-easy", "zoo:Clock-v0"),
            *("--import", "own_envs", "--episodes", "2", "--workers", "2"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])},
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("1 passed, 1 failed, 0 skipped\n  failed: zoo:Clock-v0\n")
