"""Test the terminal output of a training run."""

from __future__ import annotations

import io
import json
import re
import shutil
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palestra.progress import displayed, phase
from palestra.training.reporting import console
from palestra.training.reporting.metrics import BARS, sparkline

CONFIG = {
    "env": {"name": ["game:GuessTheNumber-v0-easy"]},
    "algorithm": {"name": "rebn"},
    "model": {"name": "default:0.1M"},
    "run": {"steps": 20},
}


def row(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "success": 0.5,
        "success_low": 0.4,
        "success_high": 0.6,
        "return": 0.25,
        "turns_per_episode": 3.0,
        "tokens_per_second": 12_345.0,
        "entropy": 0.7,
        "horizon": None,
        "seconds_sampling": 1.0,
        "seconds_learning": 3.0,
        **more,
    }


def evaluation(success: float) -> dict[str, Any]:
    return {"eval_success": success, "eval_success_low": success - 0.1, "eval_success_high": success + 0.1}


ROWS = [
    {"step": -1, **evaluation(0.3)},
    *(
        row(step, **(evaluation(0.4 + step / 20) | {"seconds_evaluating": 2.0} if step % 5 == 4 else {}))
        for step in range(10)
    ),
]


def test_the_block_shows_progress_metrics_and_remaining_time() -> None:
    text = "\n".join(console.format_block(ROWS, CONFIG, 110))
    assert "game:GuessTheNumber-v0-easy  rebn  default:0.1M" in text
    assert "step 10/20 ━━━━━━──────" in text
    assert re.search(r"training +50\.0% \(40\.0% to 60\.0%\) +▅{10}", text)
    assert re.search(r"evaluated +85\.0% \(75\.0% to 95\.0%\) +▃▅▇ +30\.0% before, best 85\.0%", text)
    assert "entropy 0.70" in text
    assert "speed     sampled 12.3k tokens/s" in text
    assert "sampling 23%, learning 68%, evaluating 9%" in text  # percentages of 10 * 4 + 2 * 2 seconds
    assert "0:44, about 0:44 left" in text  # ten steps of 4 s, and an evaluation of 2 s after every fifth step
    assert "warning" not in text
    assert "horizon" not in text


def test_the_speed_of_learning_and_the_gpu_memory_are_shown() -> None:
    rows = [row(0, learned_tokens_per_second=262_144.0, gpu_memory_gb=71.25)]
    lines = console.format_block(rows, CONFIG, 110)
    assert "speed     sampled 12.3k tokens/s   learned 262.1k tokens/s   GPU memory 71.2 GB" in lines


def test_the_block_shows_what_describes_the_learning_in_as_many_lines_as_needed() -> None:
    episodes = {"tokens_per_reply": 4.2, "cut_replies": 0.01, "truncated": 0.02, "invalid_actions": 0.03}
    learning = {"step_kl": 0.0123, "clip_fraction": 0.04, "explained_variance": 0.5, "zero_variance": 0.06, "lr": 2e-3}
    rows = [row(0, **episodes, **learning, staleness_mean=1.5, unsolved=0.07)]
    for width in (60, 200):
        lines = console.format_block(rows, CONFIG, width)
        assert all(len(line) <= width for line in lines)
        text = "\n".join(lines)
        for words in ("return 0.250", "tokens per reply 4.2", "cut 1.0%", "truncated 2.0%", "invalid 3.0%"):
            assert words in text
        for words in (
            "KL 0.0123",
            "clipped 4.0%",
            "explained variance 0.50",
            "equal returns 6.0%",
            "staleness 1.5",
            "unsolved states 7.0%",
        ):
            assert words in text


def test_warnings_are_shown() -> None:
    rows = [row(0, signal=0.0, horizon=5, failures=3, failures_env=2, failures_engine=1)]
    text = "\n".join(console.format_block(rows, CONFIG, 110))
    assert "no learning signal in 1 of the last 1 steps" in text
    assert "3 episodes failed in the last 1 steps (engine 1, env 2)" in text
    assert "horizon 5" in text
    plain = console.format_row(rows[0], 20)
    assert "no learning signal" in plain
    assert "3 episodes failed" in plain


@given(st.integers(1, len(ROWS)), st.integers(1, 140))
def test_the_block_fits_the_terminal(count: int, width: int) -> None:
    assert all(len(text) <= width for text in console.format_block(ROWS[:count], CONFIG, width))


def test_log_lines() -> None:
    assert console.format_row(ROWS[0], 20) == "before training: success 30.0% (20.0% to 40.0%) on held-out tasks"
    assert console.format_row(ROWS[5], 20, left=65) == (
        "step 5/20, success 50.0% (40.0% to 60.0%), return 0.250, turns 3.0, entropy 0.70, "
        "evaluated 60.0% (50.0% to 70.0%), 1.0+3.0+2.0 s, sampled 12.3k tokens/s, about 1:05 left"
    )


def test_log_lines_contain_what_the_block_shows() -> None:
    shares = {"cut_replies": 0.01, "truncated": 0.02, "zero_variance": 0.06, "unsolved": 0.07}
    metrics = {"tokens_per_reply": 4.2, "invalid_actions": 0.0, "explained_variance": 0.5, "staleness_mean": 1.5}
    line = console.format_row(row(0, **shares, **metrics, learned_tokens_per_second=262_144.0), 20)
    for words in ("tokens per reply 4.2", "cut 1.0%", "truncated 2.0%", "equal returns 6.0%", "unsolved states 7.0%"):
        assert f", {words}, " in line
    for words in ("invalid 0.0%", "explained variance 0.50", "staleness 1.5", "learned 262.1k tokens/s"):
        assert words in line
    brief = console.format_row(row(0, **dict.fromkeys(shares, 0.0), **metrics), 20)
    assert not any(words in brief for words in ("cut", "truncated", "equal returns", "unsolved states"))


def test_the_remaining_time_is_unknown_at_the_start_and_zero_at_the_end() -> None:
    assert console.seconds_left(ROWS[:1], 20) is None
    assert console.seconds_left(ROWS, 10) == 0
    assert console.seconds_left([*ROWS, row(10, final_success=0.97)], 20) == 0
    assert "done" in console.format_block(ROWS, {**CONFIG, "run": {"steps": 10}}, 110)[-2]


def screen(written: str, width: int = 200) -> list[str]:
    """Return the screen content of a terminal after `written`, which contains only two control sequences."""
    lines, at = [""], 0
    for piece in re.split(r"(\x1b\[\d*[FJ]|\n)", written):
        if piece == "\n":
            at += 1
            if at == len(lines):
                lines.append("")
        elif piece.startswith("\x1b[") and piece.endswith("F"):
            at -= int(piece[2:-1])
            assert at >= 0
        elif piece == "\x1b[J":
            lines = [*lines[:at], ""]
        else:
            lines[at] += piece
    return lines


def test_the_live_view_redraws_in_place_and_keeps_notes_above() -> None:
    out = io.StringIO()
    view = console.Live(out, CONFIG)
    view.note("warm start: done")
    for count in range(1, 5):
        view.rows(ROWS[:count])
    view.note("a word in between")
    view.rows(ROWS)
    view.close()
    view.note("report: here")
    shown = screen(out.getvalue())
    width = shutil.get_terminal_size().columns - 1
    assert shown == [
        "warm start: done",
        "a word in between",
        *console.format_block(ROWS, CONFIG, width),
        "report: here",
        "",
    ]


def test_the_live_view_shows_the_running_phase_below_the_block() -> None:
    out = io.StringIO()
    view = console.Live(out, CONFIG)
    view.rows(ROWS)
    with displayed(view), phase("sampling", 4) as shown:
        assert screen(out.getvalue())[-2] == "now       sampling ──────────── 0/4"
        shown.update(2)
        view.note("a word in between")
        assert screen(out.getvalue())[-2] == "now       sampling ━━━━━━────── 2/4"
    view.close()
    width = shutil.get_terminal_size().columns - 1
    assert screen(out.getvalue()) == ["a word in between", *console.format_block(ROWS, CONFIG, width), ""]


def test_output_for_pipes_and_as_json() -> None:
    out, err = io.StringIO(), io.StringIO()
    lines = console.Lines(out, 20)
    lines.note("hello")
    lines.rows(ROWS)
    assert out.getvalue().startswith("hello\nstep 10/20, ")
    assert "\x1b" not in out.getvalue()
    out = io.StringIO()
    machine = console.JsonLines(out, err)
    machine.note("hello")
    machine.rows(ROWS)
    assert json.loads(out.getvalue()) == ROWS[-1]
    assert err.getvalue() == "hello\n"


@given(st.lists(st.floats(0, 1), max_size=100), st.integers(1, 40))
def test_a_sparkline_has_one_bar_per_value_or_per_mean_of_several_values(values: list[float], width: int) -> None:
    text = sparkline(values, width)
    assert len(text) == min(len(values), width)
    assert set(text) <= set(BARS)
    if len(values) <= width:
        assert [BARS.index(bar) for bar in text] == [min(7, int(value * 8)) for value in values]


def test_a_sparkline_of_many_values_keeps_its_shape() -> None:
    assert sparkline([i / 799 for i in range(800)], 8) == BARS
    assert sparkline([float("nan"), -1.0, 2.0]) == "▁▁█"


def test_cloning_shows_a_loss_and_no_episodes() -> None:
    rows: list[dict[str, Any]] = [{"step": -1}, {"step": 0, "loss": 0.5, "lr": 1e-3, "seconds_learning": 2.0}]
    config: dict[str, Any] = {
        "env": {"name": []},
        "algorithm": {"name": "sft"},
        "model": {"name": "runs/a"},
        "run": {"steps": 0},
    }
    text = console.format_block(rows, config, 100)
    assert text[0].split() == ["stored", "trajectories", "sft", "runs/a", "step", "1"]
    assert text[1:] == ["learning  loss 0.5000   lr 1.0e-03", "time      0:02   learning 100%"]
    assert console.format_row(rows[0], 0) == "before training: not evaluated"
    assert console.format_row(rows[1], 0) == "step 1, loss 0.5000, lr 1.0e-03, 2.0 s"


def test_the_final_evaluation_states_its_tasks() -> None:
    final = {"final_success": 0.5, "final_tasks": 12, "final_seen": 0.25}
    text = console.describe_final([*ROWS, {**ROWS[-1], **final}]) or ""
    assert "on held-out tasks (12 distinct tasks, 25% of the episodes on tasks seen in training)" in text
    few = console.describe_final([{**ROWS[-1], **final, "eval_held_out": 0.0, "eval_seen": 1.0}]) or ""
    assert "on new episodes of the same tasks" in few
    assert console.describe_final(ROWS) is None
