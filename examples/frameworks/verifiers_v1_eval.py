"""Run the evaluation command of verifiers 0.4 on a Palestra environment, with a local model behind a chat server.

verifiers runs the agent with uv, which installs the agent's dependencies at the first run.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.integrations.chat_server import ChatServer

CODE = "import sys; from verifiers.v1.cli.eval.main import main; sys.exit(main())"
TASKSET = """
from palestra.integrations.verifiers_v1 import *
from palestra.integrations.verifiers_v1 import __all__
"""


async def main(env: str, tasks: int) -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    async with LocalEngine(model, tokenizer=tokenizer) as engine, ChatServer(engine) as server:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "palestra_env.py").write_text(TASKSET)
            options = {
                "env.taskset.env": env,
                "env.taskset.tasks": tasks,
                "model": server.model,
                "client.base-url": server.url,
                "client.api-key-var": "NO_KEY",
                "sampling.max-tokens": 8,
                "num-rollouts": 2,
                "output-dir": folder,
            }
            flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CODE, "palestra_env", *flags, "--no-push", "--no-rich"),
                cwd=folder,
                env={**os.environ, "NO_KEY": "none", "PYTHONPATH": os.pathsep.join([folder, *sys.path[1:]])},
                stdout=asyncio.subprocess.DEVNULL,
            )
            if await process.wait():
                raise SystemExit("vf-eval failed")
            [results] = Path(folder).rglob("traces.jsonl")
            rows = [json.loads(line) for line in results.read_text().splitlines()]
    traces = [trace for row in rows for trace in row["traces"]]
    rewards = [trace["rewards"]["env_reward"]["score"] for trace in traces]
    turns = [len(trace["calls"]) for trace in traces]
    print(f"{len(traces)} rollouts, mean reward {sum(rewards) / len(rewards):.3f}, turns {turns}")
    if len(traces) != 2 * tasks or not all(row["ok"] for row in rows):
        raise SystemExit("some rollouts failed")
    print("passed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--tasks", type=int, default=2)
    asyncio.run(main(**vars(parser.parse_args())))
