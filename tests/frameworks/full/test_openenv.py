"""Test the server with the newest version of OpenEnv."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import palestra
from palestra.registry import get_spec, list_envs
from tests.frameworks.frameworks import INSTALLED, ROOT
from tests.server.protocols.outside import openenv_command
from tests.server.servers import serving

CRAFT = "textcraft:Depth2-v0"


def run_openenv(script: str, *arguments: str, text: str | None = None) -> Any:
    """Run a script with OpenEnv's packages and the newest version of OpenEnv itself; return its output."""
    done = subprocess.run(
        openenv_command(script, *arguments),
        env={**os.environ, "PYTHONPATH": str(INSTALLED / "openenv")},
        input=text,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_environment_without_downloads_is_valid() -> None:
    ids = [env_id for env_id in list_envs() if not get_spec(env_id).needs_data]
    assert len(ids) > 300
    with serving(*ids) as server:
        urls = [f"{server.url}/openenv/{env_id}" for env_id in ids]
        expected = {"command": "Verdict: PASS", "passed": len(ids), "failed": []}
        program = ROOT / "tests" / "frameworks" / "openenv_validate.py"
        assert run_openenv(str(program), text=json.dumps(urls)) == expected


def test_clients_play_an_episode() -> None:
    with palestra.make(CRAFT) as env:
        env.reset(seed=11)
        actions, done = [], False
        while not done:
            actions.append(str(env.expert_action()))
            done = env.step(actions[-1]).done
    with serving(CRAFT) as server:
        output = run_openenv("openenv_player.py", f"{server.url}/openenv/{CRAFT}", "11", json.dumps(actions))
    texts = [text for text, *_ in output["results"]]
    assert output["results"][-1][1:] == [1.0, True]
    assert output["calls"][:4] == output["tools"]
    assert output["calls"][4:-2] == texts[:-1]
    assert (output["state"]["step_count"], output["validation"]) == (len(actions), [])
