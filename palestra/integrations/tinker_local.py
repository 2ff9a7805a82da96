"""Run tinker-cookbook's RL training in this process instead of on the Tinker service.

    with local_tinker(model, tokenizer, name="local/my-model") as service:
        asyncio.run(tinker_cookbook.rl.train.main(config))        # with model_name="local/my-model"

`tinker.ServiceClient` creates the local clients inside the `with` block. Rollouts, advantages and training data come
from tinker-cookbook; sampling uses Palestra's engine, and the losses `importance_sampling` and `ppo` are computed as
Tinker documents them. All weights are trained, not only LoRA adapters.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from palestra.engines import LocalEngine, Sampling
from palestra.errors import BadValue
from palestra.optional import require

if TYPE_CHECKING:
    import tinker
    import torch
    from tinker_cookbook import tokenizer_utils
else:
    tinker = require("tinker", extra="tinker")
    torch = require("torch", extra="hf")
    require("tinker_cookbook", extra="tinker")
    from tinker_cookbook import tokenizer_utils

__all__ = ["LocalSamplingClient", "LocalServiceClient", "LocalTrainingClient", "local_tinker"]

T = TypeVar("T")


@dataclass
class Result(Generic[T]):
    """Result of a request that has been completed, in place of Tinker's futures."""

    value: T

    async def result_async(self, timeout: float | None = None) -> T:  # noqa: ARG002
        return self.value

    def result(self, timeout: float | None = None) -> T:  # noqa: ARG002
        return self.value


@dataclass
class LocalSamplingClient:
    """Samples from the current weights."""

    engine: LocalEngine

    async def sample_async(
        self,
        prompt: tinker.ModelInput,
        num_samples: int,
        sampling_params: tinker.SamplingParams,
        **_: Any,
    ) -> tinker.SampleResponse:
        stop = sampling_params.stop or []
        stops = [stop] if isinstance(stop, str | int) else list(stop)
        sampling = Sampling(
            max_tokens=sampling_params.max_tokens or 512,
            temperature=sampling_params.temperature,
            top_p=sampling_params.top_p,
            top_k=max(0, sampling_params.top_k),
            seed=sampling_params.seed,
            stop=tuple(item for item in stops if isinstance(item, str)),
            stop_ids=tuple(item for item in stops if isinstance(item, int)),
        )
        completions = [await self.engine.generate(prompt.to_ints(), sampling) for _ in range(num_samples)]
        return tinker.SampleResponse(
            sequences=[
                tinker.SampledSequence(
                    stop_reason="length" if item.finish == "length" else "stop",
                    sequence_id=uuid.uuid4().hex,
                    _tokens_list=item.ids,
                    _logprobs_list=item.logprobs,
                )
                for item in completions
            ]
        )


class LocalTrainingClient:
    """Trains the weights that the sampling client uses."""

    def __init__(self, model: Any, tokenizer: Any, folder: str | Path | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.folder = None if folder is None else Path(folder)
        self.engine = LocalEngine(model, tokenizer=tokenizer)
        self.optimizer = torch.optim.Adam(model.parameters())

    async def forward_backward_async(
        self,
        data: Sequence[tinker.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float] | None = None,
    ) -> Result[tinker.ForwardBackwardOutput]:
        if loss_fn not in ("importance_sampling", "ppo"):
            raise BadValue(f"loss_fn must be importance_sampling or ppo, got {loss_fn!r}")
        outputs = []
        total = 0.0
        async with self.engine.paused():
            for datum in data:
                inputs = {name: value.to_torch() for name, value in datum.loss_fn_inputs.items()}
                ids = torch.tensor([datum.model_input.to_ints()])
                logits = self.model(ids).logits[0].float()
                logprobs = logits.log_softmax(-1).gather(1, inputs["target_tokens"].long()[:, None])[:, 0]
                loss = _loss(logprobs, inputs["logprobs"], inputs["advantages"], loss_fn, loss_fn_config or {})
                loss.backward()
                total += float(loss.detach())
                outputs.append({"logprobs": tinker.TensorData.from_torch(logprobs.detach())})
        return Result(
            tinker.ForwardBackwardOutput(
                loss_fn_output_type="TorchLossReturn", loss_fn_outputs=outputs, metrics={"loss:sum": total}
            )
        )

    async def optim_step_async(self, adam_params: tinker.AdamParams) -> Result[tinker.OptimStepResponse]:
        for group in self.optimizer.param_groups:
            group.update(
                lr=adam_params.learning_rate, betas=(adam_params.beta1, adam_params.beta2), eps=adam_params.eps
            )
        async with self.engine.paused():
            self.optimizer.step()
            self.optimizer.zero_grad()
            await self.engine.publish(None, self.engine.version + 1)
        return Result(tinker.OptimStepResponse(metrics={}))

    async def save_weights_and_get_sampling_client_async(self, **_: Any) -> LocalSamplingClient:
        return LocalSamplingClient(self.engine)

    def create_sampling_client(self, path: str, **_: Any) -> LocalSamplingClient:
        del path  # the sampling client always uses the current weights
        return LocalSamplingClient(self.engine)

    async def save_state_async(self, name: str, **_: Any) -> Result[tinker.types.SaveWeightsResponse]:
        return Result(tinker.types.SaveWeightsResponse(path=self._save(name)))

    async def save_weights_for_sampler_async(
        self, name: str, **_: Any
    ) -> Result[tinker.types.SaveWeightsForSamplerResponse]:
        return Result(tinker.types.SaveWeightsForSamplerResponse(path=self._save(name)))

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def _save(self, name: str) -> str:
        if self.folder is None:
            return f"local://{name}"
        self.model.save_pretrained(self.folder / name)
        self.tokenizer.save_pretrained(self.folder / name)
        return str(self.folder / name)


class LocalServiceClient:
    """Creates the local clients; takes the place of `tinker.ServiceClient`."""

    def __init__(self, training: LocalTrainingClient) -> None:
        self.training = training

    async def create_lora_training_client_async(self, base_model: str, **_: Any) -> LocalTrainingClient:
        del base_model
        return self.training

    def create_sampling_client(self, **_: Any) -> LocalSamplingClient:
        return LocalSamplingClient(self.training.engine)


@contextmanager
def local_tinker(
    model: Any, tokenizer: Any, *, name: str = "local/model", folder: str | Path | None = None
) -> Iterator[LocalServiceClient]:
    """Make `tinker.ServiceClient` return local clients, and `name` the model's name in tinker-cookbook.

    Checkpoints are saved in `folder`; without it, none are written.
    """
    service = LocalServiceClient(LocalTrainingClient(model, tokenizer, folder))
    tokenizer_utils.register_tokenizer(name, lambda: tokenizer)
    original = tinker.ServiceClient
    tinker.ServiceClient = lambda **_: service
    try:
        yield service
    finally:
        tinker.ServiceClient = original


def _loss(logprobs: Any, sampled: Any, advantages: Any, name: str, config: Mapping[str, float]) -> Any:
    ratio = (logprobs - sampled).exp()
    if name == "importance_sampling":
        return -(ratio * advantages).sum()
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    return -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages).sum()
