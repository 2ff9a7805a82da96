"""Run verifiers' evaluation command on a Palestra environment with a local model behind an OpenAI-compatible server."""

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


async def main(env: str, tasks: int) -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    async with LocalEngine(model, tokenizer=tokenizer) as engine, ChatServer(engine) as server:
        with tempfile.TemporaryDirectory() as folder:
            command = ["palestra.integrations.verifiers", "-m", server.model, "-b", server.url, "-k", "NO_KEY"]
            command += [
                "-a",
                json.dumps({"env": env}),
                "-n",
                str(tasks),
                "-r",
                "2",
                "-t",
                "8",
                "-s",
                "-d",
                "--disable-env-server",
            ]
            code = "import sys; from verifiers.scripts.eval import main; sys.exit(main())"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, *command, cwd=folder, env={**os.environ, "NO_KEY": "none"}
            )
            if await process.wait():
                raise SystemExit("vf-eval failed")
            [results] = Path(folder).rglob("results.jsonl")
            rows = [json.loads(line) for line in results.read_text().splitlines()]
    rewards = [row["reward"] for row in rows]
    print(f"{len(rows)} rollouts, mean reward {sum(rewards) / len(rewards):.3f}")
    if len(rows) != 2 * tasks or any(row.get("error") for row in rows):
        raise SystemExit("some rollouts failed")
    print("passed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--tasks", type=int, default=3)
    asyncio.run(main(**vars(parser.parse_args())))
