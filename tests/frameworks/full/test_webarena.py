"""Test WebArena's tasks with the packages from PyPI: all configurations, and the evaluators of WebArena Verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.frameworks.frameworks import INSTALLED, ROOT

CODE = """
import json
from palestra.browser.sites import Request, Response
from palestra.envs.webarena import verified
from palestra.envs.webarena.sites import NAMES
from palestra.envs.webarena.tasks import read_tasks

urls = {name: f"http://{name.replace('_', '-')}.example" for name in NAMES}
original, revised = (read_tasks(name, None, urls) for name in ("original", "verified"))
judged = sum(task.needs_judge for task in original.values())

def graded(number, data, request):
    kind = "MUTATE" if data is None else "RETRIEVE"
    answer = json.dumps({"task_type": kind, "status": "SUCCESS", "retrieved_data": data, "error_details": None})
    return verified.evaluate(revised[number], answer, [(request, Response(status=200))], urls)

def note(text):
    body = json.dumps({"note": {"noteable_type": "MergeRequest", "note": text}}).encode()
    url = urls["gitlab"] + "/a11yproject/a11yproject.com/notes?target_id=72594&target_type=merge_request"
    headers = {"Content-Type": "application/json", "Referer": urls["gitlab"]}
    return Request(method="POST", url=url, headers=headers, body=body)

page = Request(method="GET", url=urls["shopping_admin"] + "/", headers={})
print(json.dumps([
    len(original), len(revised), judged,
    graded(0, ["Quest Lumaflex\u2122 Band"], page), graded(0, ["Another Band"], page),
    graded(390, None, note("lgtm")), graded(390, None, note("no")),
]))
"""


def test_tasks_and_evaluators() -> None:
    path = os.pathsep.join((str(INSTALLED / "webarena"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [812, 812, 82, True, False, True, False]
