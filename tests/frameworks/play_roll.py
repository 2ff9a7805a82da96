"""Play failing episodes with ROLL's environment manager."""

from __future__ import annotations

import asyncio
import runpy
from typing import Any

import ray

from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.errors import BadValue, EnvFailed
from palestra.integrations.roll import PalestraEnv
from tests.frameworks.failing import AlwaysFails, FailsOnce
from tests.frameworks.frameworks import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "frameworks" / "roll_training.py"))


async def main() -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    async with LocalEngine(model, tokenizer=tokenizer) as engine:

        async def play(env: str) -> Any:
            config = EXAMPLE["load_config"](env, tasks=1, group_size=1)
            async with EXAMPLE["Rollouts"](config, tokenizer, engine) as rollouts:
                return await rollouts.batch(0)

        batch = await play("tests.frameworks.failing:FailsOnce")
        assert FailsOnce.failures == 1
        check(batch, tokenizer)

        try:
            await play("tests.frameworks.failing:AlwaysFails")
        except EnvFailed as err:
            assert "the environment is broken" in str(err)
        else:
            raise AssertionError("a failed episode has a reward")
        assert AlwaysFails.failures == 3  # the first attempt and two retries

    env = PalestraEnv(env="game:GuessTheNumber-v0-easy")
    env.special_tokens = tuple(tokenizer.all_special_tokens)
    first, _ = env.reset(seed=1)
    assert first.startswith("You are playing")
    _, reward, terminated, _, info = env.step(f"\\boxed{{}}{tokenizer.eos_token}")
    assert (reward, terminated) == (-0.1, True)
    assert info["metrics"] == {"success": False, "action_is_valid": False}
    try:
        PalestraEnv()
    except BadValue as err:
        assert "env_config needs 'env'" in str(err)
    else:
        raise AssertionError("an environment without a name was created")
    print("passed")


def check(batch: Any, tokenizer: Any) -> None:
    """Check the tokens, masks and reward of an episode with three turns."""
    assert len(batch) == 1
    [rewards] = batch.non_tensor_batch["step_scores"]
    assert len(rewards) == 3
    assert all(0.0 < reward < 0.34 for reward in rewards)
    length = int(batch.batch["attention_mask"].sum())
    assert float(batch.batch["scores"][0, length - 1]) == float(batch.batch["scores"].sum())
    assert abs(float(batch.batch["scores"].sum()) - sum(rewards)) < 1e-6
    mask = batch.batch["response_mask"][0]
    ids = batch.batch["input_ids"][0]
    text = tokenizer.decode(ids[:length][~mask[:length]])
    assert text.count("Again.") == 2  # also after the retry, the history has only one episode
    sampled = batch.batch["infer_logprobs"][0][mask[1:]]
    assert bool((sampled < 0.0).all())
    assert not bool(batch.batch["infer_logprobs"][0][~mask[1:]].any())


if __name__ == "__main__":
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    asyncio.run(main())
