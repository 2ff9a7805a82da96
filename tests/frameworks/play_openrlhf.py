"""Play failing episodes with OpenRLHF's executor, and load an executor as OpenRLHF does."""

from __future__ import annotations

import asyncio
import runpy
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

import palestra.integrations.openrlhf as adapter
from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.errors import EnvFailed
from tests.frameworks.failing import AlwaysFails, FailsOnce
from tests.frameworks.frameworks import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "frameworks" / "openrlhf_rollouts.py"))


async def main() -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    async with LocalEngine(model, tokenizer=tokenizer) as engine:

        async def play(env: str, *, max_length: int = 512, logprobs: int | None = 1) -> dict[str, Any]:
            [row] = adapter.dataset_rows(env, 1)
            executor = adapter.PalestraExecutor(max_tokens=4, retries=2)
            params = EXAMPLE["SamplingParams"](logprobs=logprobs)
            server = EXAMPLE["VLLMEngine"](engine)
            return await executor.execute(row["input"], row["label"], params, max_length, tokenizer, server)

        response = await play("tests.frameworks.failing:FailsOnce")
        assert FailsOnce.failures == 1
        assert len(response["action_ranges"]) == 3
        assert 0.0 < response["reward"] < 1.0
        assert response["extra_logs"]["turns"] == 3
        # Everything outside the ranges comes from the environment and has no log-probability.
        sampled = {index for start, end in response["action_ranges"] for index in range(start, end)}
        others = [value for index, value in enumerate(response["rollout_log_probs"]) if index not in sampled]
        assert all(end - start <= 4 for start, end in response["action_ranges"])
        assert others
        assert not any(others)
        assert all(response["rollout_log_probs"][index] < 0.0 for index in sampled)
        assert "Again." in tokenizer.decode(response["observation_tokens"][: response["action_ranges"][1][0]])

        try:
            await play("tests.frameworks.failing:AlwaysFails")
        except EnvFailed as err:
            assert "the environment is broken" in str(err)
        else:
            raise AssertionError("a failed episode has a reward")
        assert AlwaysFails.failures == 3  # the first attempt and two retries

        short = await play("tests.frameworks.letters:Letters", max_length=40, logprobs=None)
        assert len(short["action_ranges"]) == 2  # the next prompt does not fit the context
        assert len(short["observation_tokens"]) <= 40
        assert short["rollout_log_probs"] is None
    assert isinstance(adapter.AgentExecutor(), AgentExecutorBase)
    print("passed")


if __name__ == "__main__":
    asyncio.run(main())
