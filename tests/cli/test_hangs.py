"""Test that commands exit even if an environment, a tool or a thread hangs or tries to end the process."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from palestra.cli import build_parser, main
from tests import warm_process

ENVS = '''
import asyncio, sys, threading
import palestra

class Bad(palestra.Env):
    def __init__(self, *, hangs="", exits=""):
        self.hangs, self.exits = hangs, exits

    def _at(self, call):
        if self.exits == call:
            sys.exit(0)
        if self.hangs == call:
            threading.Thread(target=threading.Event().wait).start()  # Python waits for this thread
            threading.Event().wait()

    def reset(self, seed=None, options=None):
        seed = self.start_episode(seed)
        self._at("reset")
        return "Say yes, for example \\\\boxed{yes}.", {"seed": seed}

    def step(self, action):
        self._at("step")
        return "Done.", 1.0, True, False, {"success": True}

    def sample_random_action(self):
        return "yes"

    def expert_action(self):
        return "yes"

class HangsInStep(Bad):
    def __init__(self):
        super().__init__(hangs="step")

class HangsInExecutor(Bad):
    async def astep(self, action):
        await asyncio.to_thread(threading.Event().wait)

def stuck(question: str) -> str:
    """Never return."""
    threading.Event().wait()

def call_tool(observation):
    return '<tool_call>{"name": "stuck", "arguments": {"question": "x"}}</tool_call>'
'''
LIMITS = ["--step-timeout", "0.2", "--reset-timeout", "0.2"]
EVAL = ["eval", "bad_envs:Bad", "--agent", "expert", "-n", "2", "--retries", "0", "--quiet"]
TRAIN = [
    "train",
    "--env",
    "bad_envs:HangsInStep",
    "--model",
    "default:0.1M",
    "--warm-start",
    "0",
    "--steps",
    "1",
    "--quiet",
]
TRAIN += ["--episodes", "4", "--group-size", "2", "--eval-episodes", "2", "--threads", "1", "--retries", "0"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad_envs.py").write_text(ENVS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bad_envs", raising=False)


def command(*args: str) -> tuple[int, str]:
    """Run a command that waits at most half a second when it exits; return its exit code and standard error."""
    code = "import palestra.cli; palestra.cli.MAX_EXIT_SECONDS = 0.5; palestra.cli.entry_point()"
    done = warm_process.run([sys.executable, "-c", code, *args], capture_output=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([*EVAL, "--set", "hangs=step"], "env: TimeoutError: no reply within the time limit"),
        (["eval", "bad_envs:HangsInExecutor", *EVAL[2:]], "env: TimeoutError"),
        ([*EVAL, "--set", "hangs=reset", "--env-backend", "process"], "env: EnvFailed"),
        (["play", "bad_envs:Bad", "--agent", "expert", "--set", "hangs=step"], "step took longer than 0.2 seconds"),
        (["check", "bad_envs:Bad", "--set", "hangs=reset"], ""),
        (TRAIN, "TimeoutError"),
    ],
    ids=["eval", "eval-to_thread", "eval-process", "play", "check", "train"],
)
def test_commands_end_although_an_environment_hangs(args: list[str], expected: str) -> None:
    code, errors = command(*args, *LIMITS)
    assert code in (1, 3), errors
    assert expected in errors


def test_eval_ends_although_a_tool_hangs() -> None:
    tool = ["--agent", "bad_envs:call_tool", "--tools", "bad_envs:stuck"]
    code, errors = command("eval", "bad_envs:Bad", *tool, "-n", "1", "--retries", "0", "--quiet", *LIMITS)
    assert (code, "TimeoutError" in errors) == (3, True), errors


@pytest.mark.parametrize("call", ["reset", "step"])
def test_sys_exit_in_an_environment_is_not_success(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    exits = ["--set", f"exits={call}"]
    assert main([*EVAL, *exits]) == 3
    assert "env: SystemExit: the code tried to end the process: SystemExit(0)" in capsys.readouterr().err
    assert main(["play", "bad_envs:Bad", "--agent", "expert", *exits]) == 3
    assert main(["check", "bad_envs:Bad", *exits]) == 1
    assert f"{call} raised SystemExit" in capsys.readouterr().out


def test_sys_exit_in_an_imported_module_is_not_success(capsys: pytest.CaptureFixture[str]) -> None:
    Path("exits.py").write_text("import sys\nsys.exit(0)\n")
    assert main(["envs", "--import", "exits"]) == 1
    assert "sys.exit()" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["train", "eval", "play", "check", "rescore", "view", "serve", "mcp-serve"])
def test_every_verb_that_runs_environments_has_timeouts(verb: str) -> None:
    verbs = next(a for a in build_parser([verb])._actions if isinstance(a, argparse._SubParsersAction))
    flags = verbs.choices[verb]._option_string_actions
    assert {"--step-timeout", "--reset-timeout"} <= flags.keys()
