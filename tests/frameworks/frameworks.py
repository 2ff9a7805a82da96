"""The frameworks whose examples `make test-frameworks` runs, and the table of the results in the docs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".cache" / "frameworks-full"
RESULTS = INSTALLED / "results.json"
PAGE = ROOT / "docs" / "integrations.md"
START, END = "<!-- start of the table -->", "<!-- end of the table -->"
LETTERS = ("--env", "tests.frameworks.letters:Letters", "--steps", "2")


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework, its adapter and the example that tests it."""

    name: str  # folder in which it is installed
    package: str  # name on PyPI
    adapter: str  # module in palestra/integrations
    example: str  # file in examples/frameworks
    proof: str  # result of the example, for the docs
    arguments: tuple[str, ...] = LETTERS
    changes_weights: bool = True
    commit: str = ""  # set if the package is installed from its repository


FRAMEWORKS = [
    Framework(
        name="verl",
        package="verl",
        adapter="verl",
        example="verl_grpo.py",
        proof="its AgentLoopWorker plays episodes; its GRPO advantages and policy loss change the weights",
    ),
    Framework(
        name="tinker",
        package="tinker-cookbook",
        adapter="tinker",
        example="tinker_local_training.py",
        proof="its training loop runs with a local sampling and training client and changes the weights",
    ),
    Framework(
        name="art",
        package="openpipe-art",
        adapter="art",
        example="art_training.py",
        proof="`gather_trajectory_groups` plays episodes; its advantages and loss change the weights",
    ),
    Framework(
        name="areal",
        package="areal",
        adapter="areal",
        example="areal_training.py",
        proof="the workflow plays episodes; `PPOActor` computes advantages and loss and changes the weights",
    ),
    Framework(
        name="rl2",
        package="rl-square",
        adapter="rl2",
        example="rl2_training.py",
        proof="its sample groups play episodes; its advantages and PPO loss change the weights",
        commit="9161ede",
    ),
    Framework(
        name="roll",
        package="roll",
        adapter="roll",
        example="roll_training.py",
        proof="its TrajEnvManager and group queue play episodes; its advantages and policy loss change the weights",
        commit="8eb27cc",
    ),
    Framework(
        name="agentlightning",
        package="agentlightning",
        adapter="agentlightning",
        example="agentlightning_training.py",
        proof="its trainer, runner and store play episodes; Palestra's GRPO changes the weights from its traces",
    ),
    Framework(
        name="openrlhf",
        package="openrlhf",
        adapter="openrlhf",
        example="openrlhf_rollouts.py",
        proof="its MultiTurnAgentExecutor plays episodes; log-probabilities and masks are correct",
        arguments=LETTERS[:2],
        changes_weights=False,
        commit="3c3be62",
    ),
    Framework(
        name="inspect-ai",
        package="inspect-ai",
        adapter="inspect_ai",
        example="inspect_eval.py",
        proof="`eval` runs a suite with a mock model and with a local model",
        arguments=(),
        changes_weights=False,
    ),
    Framework(
        name="verifiers-0.1",
        package="verifiers",
        adapter="verifiers",
        example="verifiers_eval.py",
        proof="`vf-eval` plays episodes against an OpenAI-compatible server",
        arguments=(),
        changes_weights=False,
    ),
    Framework(
        name="verifiers-0.4",
        package="verifiers",
        adapter="verifiers_v1",
        example="verifiers_v1_eval.py",
        proof="`vf-eval` (v1) plays episodes with several turns against an OpenAI-compatible server",
        arguments=LETTERS[:2],
        changes_weights=False,
    ),
]


def run_example(framework: Framework) -> str:
    """Run a framework's example and return the output."""
    return run_program(framework.name, ROOT / "examples" / "frameworks" / framework.example, *framework.arguments)


def run_program(folder: str, program: Path, *arguments: str) -> str:
    """Run a program in its own process with the packages in `folder`; raise AssertionError if it fails."""
    path = os.pathsep.join([str(ROOT), str(INSTALLED / folder)])
    programs = os.pathsep.join([str(INSTALLED / folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": programs,
            "PYTHONPATH": path,
            "PYTHONUSERBASE": str(user_base(INSTALLED / folder)),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "AGENTOPS_LOGGING_TO_FILE": "FALSE",
            "ROLL_LOG_DIR": str(INSTALLED / folder / "logs"),
        },
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def user_base(folder: Path) -> Path:
    """Return a user base whose site-packages is `folder`, because AgentOps traces only packages in site-packages."""
    link = folder / "user-base" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    link.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(Path(*[".."] * len(link.parent.relative_to(folder).parts)))  # valid if the folder moves
    return folder / "user-base"


def version(framework: Framework) -> str:
    """Return the version of the installed package."""
    for distribution in distributions(path=[str(INSTALLED / framework.name)]):
        if distribution.name.lower().replace("_", "-") == framework.package:
            return f"{distribution.version} ({framework.commit})" if framework.commit else str(distribution.version)
    return "not installed"


def glue_lines(adapter: str) -> int:
    """Return the number of lines of code in an adapter, without blank lines, comments and docstrings."""
    text = (ROOT / "palestra" / "integrations" / f"{adapter}.py").read_text()
    docs = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and line.strip()[0] != "#" and number not in docs)


def record(framework: Framework, passed: bool) -> None:
    """Store the verdict for the table."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[framework.name] = {"version": version(framework), "passed": passed}
    RESULTS.write_text(json.dumps(results, indent=1))


def table() -> str:
    """Return the table for the docs from the stored verdicts; a framework without one is untested."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = ["| package | version | adapter | lines | verdict | tested |", "|---|---|---|---|---|---|"]
    for item in FRAMEWORKS:
        result = results.get(item.name)
        verdict = "untested" if result is None else "passed" if result["passed"] else "failed"
        shown = "-" if result is None else result["version"]
        rows.append(
            f"| {item.package} | {shown} | `palestra.integrations.{item.adapter}` | {glue_lines(item.adapter)} | "
            f"{verdict} | {item.proof} |"
        )
    return "\n".join(rows)


def write_table() -> None:
    """Replace the table in the docs."""
    text = PAGE.read_text()
    PAGE.write_text(re.sub(f"{START}.*?{END}", f"{START}\n{table()}\n{END}", text, flags=re.DOTALL))


if __name__ == "__main__":
    write_table()
