"""Play failing and interrupted episodes with RL2's sample groups."""

from __future__ import annotations

import asyncio
import runpy
from typing import Any

from RL2.datasets import Sample, SampleGroup
from RL2.utils.communication import with_session

from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.errors import EnvFailed
from palestra.integrations.rl2 import PalestraGenerate, dataset_rows
from tests.frameworks.failing import AlwaysFails, FailsOnce
from tests.frameworks.frameworks import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "frameworks" / "rl2_training.py"))


def interrupt(server: Any) -> list[dict[str, Any]]:
    """Interrupt the second reply after three tokens, as SGLang does before an update; return the list of requests."""
    requests: list[dict[str, Any]] = []
    reply = server.reply

    async def interrupted(body: dict[str, Any]) -> dict[str, Any]:
        requests.append(body)
        if len(requests) != 2:
            return dict(await reply(body))
        body["sampling_params"]["max_new_tokens"] = 3
        data = dict(await reply(body))
        data["meta_info"]["finish_reason"]["type"] = "abort"
        return data

    server.reply = interrupted
    return requests


@with_session
async def main() -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    rollout = EXAMPLE["load_config"](1).rollout
    async with LocalEngine(model, tokenizer=tokenizer) as engine:

        def group_of(env: str) -> Any:
            return SampleGroup(rollout, tokenizer, dataset_rows(env, 1)[0])

        async with EXAMPLE["GenerateServer"](engine) as server:
            group = group_of("tests.frameworks.failing:FailsOnce")
            await group.generate(server.url, PalestraGenerate())
            assert FailsOnce.failures == 1
            check(group, tokenizer)
            failing = group_of("tests.frameworks.failing:AlwaysFails")
            try:
                await failing.generate(server.url, PalestraGenerate(retries=2))
            except EnvFailed as err:
                assert "the environment is broken" in str(err)
            else:
                raise AssertionError("a failed episode has a reward")
            assert AlwaysFails.failures == 3  # the first attempt and two retries
            assert "rewards" not in failing.samples[0].metrics

        async with EXAMPLE["GenerateServer"](engine) as server:
            requests = interrupt(server)
            generate = PalestraGenerate()
            group = group_of("tests.frameworks.letters:Letters")
            await group.generate(server.url, generate)
            assert group.samples[0].status == Sample.Status.ABORTED
            await group.generate(server.url, generate)
            check(group, tokenizer)
            assert len(requests) == 4  # three replies, of which one has two parts
    print("passed")


def check(group: Any, tokenizer: Any) -> None:
    """Check the tokens, masks and reward of an episode with three turns."""
    [sample] = group.samples
    assert sample.status == Sample.Status.DONE
    assert sample.turn == 3
    [state] = sample.state_dicts
    assert state["rewards"][-1] == sample.metrics["rewards"][0]
    assert 0.0 < state["rewards"][-1] <= 1.0
    assert not any(state["rewards"][:-1])
    assert all((value < 0.0) == bool(bit) for value, bit in zip(state["logps"], state["action_mask"], strict=True))
    masked = [token for token, bit in zip(state["states"], state["action_mask"], strict=True) if not bit]
    assert tokenizer.decode(masked).count("Again.") == 2
    assert max(sample.metrics["response_length"]) <= 8
    assert sum(sample.metrics["response_length"]) == sum(state["action_mask"])


if __name__ == "__main__":
    asyncio.run(main())
