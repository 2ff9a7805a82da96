"""Play episodes with OpenRLHF's multi-turn agent executor and the default model, on a CPU.

`VLLMEngine` takes the place of OpenRLHF's vLLM actor, which needs a GPU. With OpenRLHF's trainer, set
`--train.agent_func_path` instead; see docs/integrations.md.
"""

import argparse
import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from palestra.engines import LocalEngine, Sampling
from palestra.engines.default_model import default_model
from palestra.integrations.openrlhf import PalestraExecutor, dataset_rows


@dataclass
class SamplingParams:
    """The fields of vLLM's SamplingParams that the executor and the engine use."""

    temperature: float = 1.0
    max_tokens: int | None = None
    logprobs: int | None = 1
    stop_token_ids: list[int] = field(default_factory=list)


class VLLMEngine:
    """Engine with the interface of OpenRLHF's vLLM actor that samples with a Palestra engine."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    async def generate(self, prompt_ids: list[int], sampling_params: SamplingParams, multi_modal_data: None) -> Any:
        sampling = Sampling(
            max_tokens=sampling_params.max_tokens,
            temperature=sampling_params.temperature,
            stop_ids=tuple(sampling_params.stop_token_ids),
        )
        reply = await self.engine.generate(prompt_ids, sampling)
        logprobs = [
            {token: SimpleNamespace(logprob=value)} for token, value in zip(reply.ids, reply.logprobs, strict=True)
        ]
        sampled = SimpleNamespace(token_ids=reply.ids, text=reply.text, logprobs=logprobs, finish_reason=reply.finish)
        return SimpleNamespace(outputs=[sampled])


def largest_difference(model: Any, response: dict[str, Any]) -> float:
    """Return the largest difference between the recorded log-probabilities and those of the model."""
    ids = torch.tensor([response["observation_tokens"]])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    recorded = torch.tensor(response["rollout_log_probs"][1:])
    sampled = [index - 1 for start, end in response["action_ranges"] for index in range(start, end)]
    return float((logprobs - recorded)[sampled].abs().max())


async def main(env: str, tasks: int, group_size: int) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    executor = PalestraExecutor(max_tokens=8)
    rows = [row for row in dataset_rows(env, tasks) for _ in range(group_size)]
    async with LocalEngine(model, tokenizer=tokenizer) as engine:
        responses = await asyncio.gather(
            *(
                executor.execute(row["input"], row["label"], SamplingParams(), 1024, tokenizer, VLLMEngine(engine))
                for row in rows
            )
        )
    for response in responses[:group_size]:
        turns = [
            tokenizer.decode(response["observation_tokens"][start:end]) for start, end in response["action_ranges"]
        ]
        print(f"reward {response['reward']:.3f}, {len(turns)} turns: {turns}")
    rewards = [response["reward"] for response in responses]
    difference = max(largest_difference(model, response) for response in responses)
    print(f"{len(rewards)} episodes, mean reward {sum(rewards) / len(rewards):.3f}")
    print(f"largest difference of a log-probability: {difference:.6f}")
    if difference > 1e-3:
        raise SystemExit("the recorded tokens are not the ones that the model sampled")
    print("passed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=4)
    asyncio.run(main(**vars(parser.parse_args())))
