"""Test MiniWoB tasks: rewards, observations, options, and recovery after browser crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.browser.pool import pool
from palestra.browser.process import PREFIX
from palestra.envs.miniwob.experts import EXPERTS
from palestra.envs.miniwob.tasks import TASKS
from palestra.errors import BadValue


def play(env: palestra.Env, seed: int, *, kill_before: int | None = None) -> list[Any]:
    """Play an episode with the expert; return its prompt, actions, observations, rewards and flags."""
    shown: list[Any] = [env.reset(seed=seed)[0]]
    for turn in range(env.max_turns or 0):
        action = env.expert_action()
        assert action is not None
        if turn == kill_before:
            assert pool.browser is not None
            os.kill(pool.browser.process.pid, signal.SIGKILL)
        step = env.step(action)
        shown.append((action, step.observation, step.reward, step.terminated))
        if step.done:
            break
    return shown


def test_names_and_ids() -> None:
    assert len(TASKS) == 130
    assert palestra.get_spec("miniwob:click-button").id == "miniwob:ClickButton-v0"
    assert len(EXPERTS) >= 60
    assert set(EXPERTS) <= set(TASKS)
    with palestra.make("miniwob:enter-text") as env:
        assert env.reset(seed=1)[1]["task"] == "enter-text"
    with pytest.raises(BadValue, match="Did you mean click-button"):
        palestra.make("miniwob:ClickButton-v0", task="click-buton")


def test_success_needs_the_full_reward() -> None:
    """Check that submitting an empty form, which earns a partial reward, is not a success, unlike in other suites."""
    with palestra.make("miniwob:EnterText-v0") as env:
        env.reset(seed=1)
        submit = next(node.number for node in env.unwrapped.state.nodes if node.name == "Submit")  # type: ignore[attr-defined]
        step = env.step(f"click [{submit}]")
        assert (step.reward, step.terminated, step.info["success"], step.info["raw_reward"]) == (0.0, True, False, -1)
        env.reset(seed=1)
        for _ in range(2):
            step = env.step(env.expert_action() or "")
        assert (step.reward, step.info["success"], step.info["ending"]) == (1.0, True, "solved")


def test_partial_credit() -> None:
    rewards = []
    for partial in (False, True):
        with palestra.make("miniwob:ClickCheckboxesSoft-v0", partial_credit=partial) as env:
            env.reset(seed=2)
            nodes = env.unwrapped.state.nodes  # type: ignore[attr-defined]
            step = env.step(f"click [{next(node.number for node in nodes if node.name == 'Submit')}]")
            rewards.append((step.reward, step.info["success"], step.info["raw_reward"]))
    assert rewards[0][0] == 0.0
    assert rewards[1][0] == max(0.0, rewards[1][2])
    assert not rewards[1][1]


def test_a_time_limit_counts_the_time_of_the_page() -> None:
    with palestra.make("miniwob:ClickButton-v0", time_limit=3) as env:
        env.reset(seed=1)
        steps = [env.step("wait [0]") for _ in range(2)]
        assert [step.terminated for step in steps] == [False, True]
        assert not steps[1].info["success"]


@pytest.mark.parametrize("form", ["html", "screenshot"])
def test_other_observations(form: str) -> None:
    with palestra.make("miniwob:ClickButton-v0", observation=form) as env:
        prompt, _ = env.reset(seed=1)
        if form == "html":
            assert 'bid="' in prompt
        else:
            for observation in (prompt, env.step("hover [1]").observation):
                part: Any = observation[1]
                assert part["image"].startswith(b"\x89PNG")
        image = env.render("image")
        assert isinstance(image, bytes)


def test_brief_prompts() -> None:
    with palestra.make("miniwob:EnterText-v0", brief=True) as env:
        assert str(env.reset(seed=1)[0]).splitlines() == [
            'Enter "Bernardine" into the text field and press Submit.',
            "[2] textbox",
            "[3] button Submit",
        ]
        assert str(env.step("fill [2] [Bernardine]").observation).splitlines() == [
            'Enter "Bernardine" into the text field and press Submit.',
            "[2] textbox focused value Bernardine",
            "[3] button Submit",
        ]
    with palestra.make("miniwob:ClickCheckboxes-v0", brief=True) as env:
        assert str(env.reset(seed=1)[0]).splitlines()[1] == "[2] checkbox 3hIU"
        assert str(env.step("click [2]").observation).splitlines()[1] == "[2] checkbox 3hIU focused checked"


def test_elements_given_by_name() -> None:
    with palestra.make("miniwob:EnterText-v0", names=True) as env:
        prompt = str(env.reset(seed=1)[0])
        assert "click Submit" in prompt
        step = env.step("click Cancel")
        assert str(step.observation).startswith("The page has no element named 'Cancel'.")
        assert step.info["invalid"] == "rule"
        assert [(action, reward) for action, _, reward, _ in play(env, 1)[1:]] == [
            ("fill textbox [Bernardine]", 0.0),
            ("click Submit", 1.0),
        ]
    with palestra.make("miniwob:EnterText-v0") as env:
        assert "click Submit" not in str(env.reset(seed=1)[0])
        assert env.step("click Submit").info["invalid"] == "format"


def test_as_many_contexts_are_kept_as_were_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_keep", 1)
    rounds = []
    for _ in range(2):
        contexts = [pool.acquire("a page", {}, width=160, height=210) for _ in range(3)]
        rounds.append(set(contexts))
        for context in contexts:
            pool.release(context, "a page")
    assert rounds[0] == rounds[1]


def test_episodes_survive_a_crash_of_the_browser() -> None:
    with palestra.make("miniwob:ClickCheckboxes-v0") as env:
        undisturbed = play(env, 2)
        started = pool.started
        assert play(env, 2, kill_before=1) == undisturbed
        assert play(env, 2, kill_before=0) == undisturbed
        assert pool.started == started + 2
        assert undisturbed[-1][2] == 1.0


def test_seeds_with_the_same_page_are_the_same_task() -> None:
    tasks = {}
    for name in ("click-test", "click-button"):
        with palestra.make(f"miniwob:{name}") as env:
            tasks[name] = [env.reset(seed=seed)[1]["task_id"] for seed in (1, 2, 3, 1)]
    assert len(set(tasks["click-test"])) == 1
    assert len(set(tasks["click-button"])) == 3
    assert tasks["click-button"][0] == tasks["click-button"][3]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Check that the browser exits with its process, even after SIGKILL, and that its profile is removed later."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        _check_that_nothing_is_left_behind(Path(short))
    long = tmp_path / ("long" * 20)  # the paths of sockets in this folder would be too long
    long.mkdir()
    code = "import palestra\npalestra.make('miniwob:click-test').reset(seed=1)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(long)}, check=True)
    assert list(long.iterdir()) == []


def _check_that_nothing_is_left_behind(tmp_path: Path) -> None:
    code = (
        "import os, signal, palestra\n"
        "from palestra.browser.pool import pool\n"
        "env = palestra.make('miniwob:click-test')\nenv.reset(seed=1)\n"
        "print(pool.browser.process.pid, flush=True)\n"
    )
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    for ending in ("", "os.kill(os.getpid(), signal.SIGKILL)"):
        tmp_path.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", code + ending], env=variables, capture_output=True, text=True, check=False
        )
        assert done.stdout, done.stderr
        pid = int(done.stdout)
        _wait_for_end(pid)
        if not ending:
            assert list(tmp_path.glob(f"{PREFIX}*")) == []
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) <= 1
    subprocess.run(
        [sys.executable, "-c", "from palestra.browser.process import remove_stale_profiles as r; r()"],
        env=variables,
        check=True,
    )
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def _wait_for_end(pid: int) -> None:
    status = Path(f"/proc/{pid}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
        pass
