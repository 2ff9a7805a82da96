"""Check the invariants of the web environments with generated sites.

All ids share one class. A few templates, with all kinds of moves, are played in the browser, and an episode is forked;
`make conformance` plays all templates and checks all invariants. tests/envs/web/test_suite.py plays the
templates on the sites in this process without a browser.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import palestra
from palestra.cache import CACHE
from palestra.conformance.recording import replay_actions, summarize_step
from palestra.envs.web.suite.env import WebSuite, templates
from palestra.errors import EpisodeOver
from tests.conformance.variants import COMPLETE, PEEKS

SAMPLE = ("create_article", "approve_review", "open_place", "walk_to_founded", "new_ticket")
IDS = [env_id for env_id in palestra.list_envs("web") if not palestra.get_spec(env_id).needs_data]
MISTAKES = templates() if COMPLETE else SAMPLE[:2]
NAMES = [name for name in templates() if COMPLETE or name in SAMPLE]
SKIPPED = () if COMPLETE else ("store",)  # django-oscar takes two seconds to start
CONTENT = """
import sys
from hashlib import blake2b
from palestra.envs.web.suite.env import apps
from palestra.envs.web.suite.tasks import TEMPLATES, Draw
from palestra.seeding import Rng
digest = blake2b()
for app in apps().values():
    if app.name in sys.argv[1:]:
        continue
    with_content = app.original(4)
    digest.update("".join(with_content.iterdump()).encode())
for template in TEMPLATES.values():
    digest.update(repr(template.draw(Draw(Rng(1), 4))).encode())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def env() -> Iterator[WebSuite]:
    with palestra.make("web:Mixed-v0", sites="encyclopedia,map,shop,forge,store") as env:
        assert isinstance(env, WebSuite)
        yield env


@pytest.mark.parametrize("name", NAMES)
def test_every_template(env: WebSuite, name: str) -> None:
    chosen = {"template": name, "data_seed": 3}
    shown = str(env.reset(seed=5, options=chosen)[0])
    assert not env.solved("")
    task = env.task
    for _ in task.expert:
        action = env.expert_action()
        assert action is not None
        step = env.step(action)
        shown += f"\n{step.observation}"
    assert step.info["success"]
    assert step.reward == 1.0
    for text in task.evidence:
        assert text in shown
    if name not in MISTAKES:
        return
    env.reset(seed=5, options=chosen)
    assert env.task == task
    for move in task.wrong:
        action = move.action(env.state.nodes)
        assert action is not None, move
        step = env.step(action)
    assert step.terminated
    assert step.reward == 0.0


def test_forks_and_flags(env: WebSuite) -> None:
    prompt, info = env.reset(seed=1, options={"template": "save_place"})
    assert env.example_action() in prompt
    assert f"You have {info['max_turns']} turns" in prompt
    assert env.step("").info["invalid"] == "format"
    assert env.step(env.sample_random_action()).reward == 0.0
    with env.fork() as fork:
        fork.step(env.expert_action() or "")
        actions = []
        while env.ending is None:
            actions.append(env.expert_action() or "")
            step = env.step(actions[-1])
        assert step.reward == 1.0
        assert replay_actions(fork, actions[1:])[-1] == summarize_step(step)  # on its own copy of the sites
    with pytest.raises(EpisodeOver):
        env.step("stop")


if COMPLETE:

    @pytest.mark.parametrize("env_id", IDS)
    def test_invariants(env_id: str) -> None:
        report = palestra.check_env(env_id, episodes=3, seconds=0.4, processes=False)
        assert len(report.passed) == 7
        assert report.notes[0] == PEEKS


def test_content_and_tasks_are_the_same_in_another_process(tmp_path: Path) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", CONTENT, *SKIPPED],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, CACHE: str(tmp_path / seed)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
