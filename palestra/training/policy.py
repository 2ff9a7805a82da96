"""The model to train: load it and compute log-probs, entropies and critic values for the losses.

By default the engine samples directly from the weights that are trained, including LoRA adapters. If those are sharded
or change while the engine samples (asynchronous training), `sampler` is a separate, full model, and `update_sampler`
copies the trained weights into it. If the engine does not support LoRA, `sampler` has no adapters, and the weights that
are copied into it have the adapters merged. An engine with its own weights, such as vLLM, needs no separate model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from palestra.algorithms.base import PolicyGradient
from palestra.engines.adapter_files import save_adapter
from palestra.engines.default_model import default_model
from palestra.engines.local import loading
from palestra.engines.local.transformers_runner import TransformersRunner
from palestra.engines.model_folders import model_folder
from palestra.engines.registry import get_engine
from palestra.errors import BadValue
from palestra.rollout.samples import TrainingSample
from palestra.training import adapters, distributed, memory, packed_decoder
from palestra.training.batch import Layout, MicroBatch, are_long
from palestra.training.config import TrainConfig
from palestra.training.critic import critic_body, critic_head
from palestra.training.fused_ops import is_large, ops_for
from palestra.training.prefix import PrefixCache, PrefixRecorder, attention_mask
from palestra.training.token_logprobs import Scaling, sample_tokens, token_logprobs

CRITIC_RANK = 16  # rank of a critic's LoRA adapters if the policy has none
ADAPTER = "adapter"  # subfolder of a saved model that contains its LoRA adapter


class Scores(NamedTuple):
    """Scores for a micro-batch. All tensors have the shape [B, T] and are 0 outside their masks."""

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None  # critic value of the state before each token
    other_logprobs: Tensor | None = None  # log-probs of `other_ids`


class Policy(nn.Module):
    """A causal language model with an optional critic on its hidden states."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        critic: bool = False,
        critic_body: Any = None,
        temperature: float = 1.0,
        recompute: str = "auto",
        sampler: Any = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.temperature = temperature if temperature > 0 else 1.0
        self.recompute = recompute
        self._sampler = [sampler]  # stored in a list, so that torch does not register it as a submodule
        width = model.config.get_text_config().hidden_size
        self.critic = critic_head(width).to(model.device) if critic else None
        self.critic_body = critic_body  # computes the critic's features; None: the policy's hidden states
        memory.patch_layers(model)
        if critic_body is not None:
            memory.patch_layers(critic_body)
        # Reason why this model supports neither shared prefixes nor packing; None if it supports them.
        self.separate: str | None = TransformersRunner.unsupported_reason(model)
        # Reason why the forward pass in `packed_decoder` does not support this model; None if it does.
        self.unpackable: str | None = packed_decoder.unsupported_reason(model)
        self.ops = ops_for(model)
        self.offloaded_from: torch.device | None = None  # set if FSDP stores the weights in main memory
        self.reserved_bytes: Callable[[], int] = lambda: 0  # memory that the optimizer will allocate during the update

    @property
    def device(self) -> torch.device:
        """Device that computes with the weights; offloaded weights are stored in main memory."""
        return self.offloaded_from or torch.device(self.model.device)

    @property
    def has_lora(self) -> bool:
        return has_lora(self.model)

    @property
    def sampler(self) -> Any:
        """The full transformers model that the engine samples from."""
        return self.model if self._sampler[0] is None else self._sampler[0]

    def layout(self, packing: bool | None, samples: Sequence[TrainingSample] = ()) -> Layout:
        """Return the layout of micro-batches of samples.

        By default (None), the samples of a supported model are packed if the model is large or the samples are long:
        attention then takes most of the time, and it is faster without a mask.
        """
        if packing is None:
            long = is_large(self.model) or are_long(samples, self.device)
            return "flat" if self.unpackable is None and long else "padded"
        if not packing:
            return "padded"
        return "flat" if self.device.type == "cuda" and self.unpackable is None else "rows"

    def default_token_budget(self, layout: Layout) -> int:
        """Return the maximum number of tokens per micro-batch if the config does not specify one."""
        return memory.micro_batch_tokens(
            self.model, device=self.device, fused=layout == "flat", reserved=self.reserved_bytes()
        )

    def separate_sampler(self) -> None:
        """Create a separate copy of the weights for the engine, which only `update_sampler` changes."""
        if self._sampler[0] is None:
            self._sampler[0] = copy.deepcopy(self.model).requires_grad_(False)

    @torch.no_grad()
    def update_sampler(self) -> None:
        """Copy the trained weights to a separate sampler. Every process must call it while the engine is paused."""
        sampler = self._sampler[0]
        if sampler is None:
            return
        if has_lora(sampler):  # the base weights never change
            adapters.copy_adapter(self.model, sampler)
            return
        parameters = dict(sampler.named_parameters())
        for name, tensor in adapters.merged_weights(self.model):
            parameters[name].copy_(tensor)

    def weights(self) -> dict[str, Tensor]:
        """Return the full weights by name, with adapters merged. Every process must call this method."""
        return dict(adapters.merged_weights(self.model))

    def gather_weights(self) -> None:
        """Take part in another process's call to `weights`, storing at most one gathered weight at a time."""
        for _ in adapters.merged_weights(self.model):
            pass

    def score(
        self,
        batch: MicroBatch,
        *,
        entropy: bool = False,
        entropy_gradient: bool = True,
        values: Tensor | None = None,
        other_ids: Tensor | None = None,
    ) -> Scores:
        """Run one forward pass; return log-probs and entropies for tokens in the mask, and critic values for `values`.

        `other_ids` contains other tokens whose log-probs are returned as well, or -1. With several processes, each must
        call this method the same number of times.
        """
        scores: Scores = self(
            batch, entropy=entropy, entropy_gradient=entropy_gradient, values=values, other_ids=other_ids
        )
        return scores

    @torch.no_grad()
    def sample(self, batch: MicroBatch, generator: torch.Generator) -> Tensor:
        """Sample another token for each token in the mask; return their ids [B, T], and -1 elsewhere."""
        row, column = batch.targets
        hidden = self._hidden(batch, getattr(self.model, self.model.base_model_prefix))
        places = hidden[row, column - 1]
        ids = sample_tokens(self.model.get_output_embeddings(), places, self._scaling, generator)
        return torch.full_like(batch.ids, -1).index_put((row, column), ids)

    @property
    def _scaling(self) -> Scaling:
        config = self.model.config.get_text_config()
        return Scaling(self.temperature, getattr(config, "final_logit_softcapping", None))

    def forward(
        self,
        batch: MicroBatch,
        *,
        entropy: bool = False,
        entropy_gradient: bool = True,
        values: Tensor | None = None,
        other_ids: Tensor | None = None,
    ) -> Scores:
        """Implement `score`, which calls the module rather than this method so that FSDP gathers the weights."""
        with memory.recompute(self._recomputes(batch)):
            hidden = self._hidden(batch, getattr(self.model, self.model.base_model_prefix))
        row, column = batch.targets
        # The hidden state at position t - 1 predicts token t.
        places = row * hidden.shape[1] + column - 1
        head, states = self.model.get_output_embeddings(), hidden.flatten(0, 1).index_select(0, places)
        logprobs, entropies = token_logprobs(
            head, states, batch.ids[row, column], self._scaling, entropy=entropy, entropy_gradient=entropy_gradient
        )
        empty = torch.zeros(batch.ids.shape, device=hidden.device)
        other_logprobs = None
        if other_ids is not None:
            ids = other_ids[row, column].long()
            known = ids >= 0
            chosen, _ = token_logprobs(
                head, states[known], ids[known], self._scaling, entropy=False, entropy_gradient=False
            )
            other_logprobs = empty.index_put((row[known], column[known]), chosen)
        critic_values = None
        if values is not None:
            if self.critic is None:
                raise ValueError("values were requested from a policy without a critic")
            r, c = values.nonzero(as_tuple=True)
            if self.critic_body is None:
                features = hidden.detach()  # the critic's gradients do not flow into the policy
            else:
                with memory.recompute(self._recomputes(batch)):
                    features = self._hidden(batch, self.critic_body)
            critic_values = empty.index_put((r, c), self.critic(features[r, c - 1].float())[:, 0])
        return Scores(
            empty.index_put((row, column), logprobs),
            None if entropies is None else empty.index_put((row, column), entropies),
            critic_values,
            other_logprobs,
        )

    def _hidden(self, batch: MicroBatch, body: Any) -> Tensor:
        """Return the hidden states of the last layer, [B, T, width]."""
        if batch.layout == "flat":
            return packed_decoder.hidden_states(batch, body, self.ops)
        if not (batch.shared or batch.layout == "rows"):
            attention = batch.attention.long()
            plain: Tensor = body(input_ids=batch.ids, attention_mask=attention, use_cache=False).last_hidden_state
            return plain
        if self.separate is not None:
            raise BadValue(f"{type(self.model).__name__} cannot pack samples or share prefixes: {self.separate}")
        cache = None
        if batch.shared:
            recorder = PrefixRecorder()
            # Recomputing would save little, because the prefix's keys and values are stored anyway.
            with memory.recompute(False):
                body(input_ids=batch.prefix, past_key_values=recorder, use_cache=True)
            cache = PrefixCache(recorder, batch.shared)
        windows = loading.layer_windows(self.model) or {}
        masks = {kind: self._mask(attention_mask(batch, window)) for kind, window in windows.items()}
        hidden: Tensor = body(
            input_ids=batch.ids,
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            position_ids=batch.positions,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return hidden

    def _mask(self, mask: Tensor) -> Tensor:
        """Convert a boolean mask to the form that the model's attention requires: booleans or an additive bias."""
        if self.model.config.get_text_config(decoder=True)._attn_implementation == "sdpa":
            return mask
        low = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill_(~mask, low)

    def _recomputes(self, batch: MicroBatch) -> bool:
        if self.recompute == "auto" and torch.is_grad_enabled():
            fused = batch.layout == "flat"
            tokens = batch.ids.numel() + batch.shared
            return memory.should_recompute(
                self.model, tokens, device=self.device, fused=fused, reserved=self.reserved_bytes()
            )
        return self.recompute == "on"

    def frozen(self) -> Policy:
        """Return a frozen copy to use as the reference model."""
        if distributed.has_shards(self.model):
            self.update_sampler()
            model = self.sampler
        else:
            model = self.model
        reference = Policy(copy.deepcopy(model), self.tokenizer, temperature=self.temperature, recompute="off")
        return reference.eval().requires_grad_(False)

    def writer(self) -> Callable[[Path], None]:
        """Return a function that writes the full model with its tokenizer into a folder.

        LoRA adapters are merged into the model and also saved separately. Every process must call this method, since it
        gathers the weights; only one process calls the returned function.
        """
        self.update_sampler()
        lora = adapters.adapter_state(self.model) if self.has_lora else None
        sharded = distributed.has_shards(self.sampler)
        merged = self.weights() if has_lora(self.sampler) or sharded else None

        def write(folder: Path) -> None:
            if lora is not None:
                save_adapter(self.model, lora, folder / ADAPTER)
            with quiet():
                if merged is None:
                    self.sampler.save_pretrained(folder)
                else:
                    adapters.save_merged(self.sampler, merged, folder)
                self.tokenizer.save_pretrained(folder)

        return write


def has_lora(model: Any) -> bool:
    """Return whether a transformers model has LoRA adapters."""
    return bool(getattr(model, "peft_config", None))


@contextmanager
def quiet() -> Iterator[None]:
    """Disable the progress bars in `transformers`."""
    from transformers.utils import logging as verbosity

    logging: Any = verbosity
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def load_policy(
    config: TrainConfig, model: str | None = None, context: distributed.DistributedContext | None = None
) -> Policy:
    """Load the config's model, or the checkpoint `model`, and shard it if there are several processes."""
    adapter = None if model is None else Path(model) / ADAPTER
    if not config.model.lora_rank or adapter is None or not adapter.exists():
        adapter = None
    loaded, tokenizer = load_model(config, model if adapter is None and model is not None else config.model.name)
    several = context is not None and context.size > 1
    kind = config.algorithm.critic if isinstance(config.algorithm, PolicyGradient) else "head"
    if kind == "lora" and several:
        raise BadValue("--critic lora runs in one process, because it shares the policy's weights; use --critic model")
    body = critic_body(loaded, kind, rank=config.model.lora_rank or CRITIC_RANK, seed=config.run.seed)
    sampler = None
    if config.model.lora_rank:
        if not getattr(get_engine(config.sampling.engine), "supports_lora", False):
            sampler = copy.deepcopy(loaded).requires_grad_(False)
        adapters.add_lora(
            loaded,
            rank=config.model.lora_rank,
            alpha=config.model.lora_alpha,
            targets=config.model.lora_targets,
            seed=config.run.seed,
        )
        if adapter is not None:
            adapters.load_lora(loaded, adapter)
    # An engine with its own weights needs no full copy of the sharded model, but LoRA and a reference model do.
    remote = getattr(get_engine(config.sampling.engine), "starts_empty", False)
    copies = not remote or bool(config.model.lora_rank) or config.needs_reference
    if several and sampler is None and copies:
        sampler = copy.deepcopy(loaded).requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)  # the critic's initial weights depend only on the seed
        policy = Policy(
            loaded,
            tokenizer,
            critic=config.algorithm.needs_critic,
            critic_body=body,
            temperature=config.sampling.temperature,
            recompute=config.model.gradient_checkpointing,
            sampler=sampler,
        )
    if config.sampling.asynchronous and not remote:
        policy.separate_sampler()
    if policy.layout(config.optimizer.packing) == "rows" and policy.separate is not None:
        raise BadValue(f"{type(loaded).__name__} does not support --packing: {policy.separate}")
    if context is not None and several:
        layers, device, offload = loading.transformer_layers(policy), policy.device, config.optimizer.offload
        distributed.shard(policy, layers, device, context, offload=offload)
        policy.offloaded_from = device if offload else None
    policy.update_sampler()
    return policy


def load_model(config: TrainConfig, name: str) -> tuple[Any, Any]:
    """Load the model `name` on the run's device with the config's data type; return it and its tokenizer."""
    kind, _, size = name.partition(":")
    device = config.run.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "default":
        source, tokenizer = default_model(size or "0.3M", seed=config.run.seed)
    else:
        source, tokenizer = model_folder(name), None
    dtype = weight_dtype(config, device)
    if device != "cpu":
        torch.set_float32_matmul_precision("high" if config.run.tf32 else "highest")
    with quiet():
        # The optimizer has float32 copies of bfloat16 weights, since small updates would be lost to rounding.
        loaded, tokenizer, _ = loading.load(source, tokenizer=tokenizer, device=device, dtype=dtype, options={})
    return loaded, tokenizer


def weight_dtype(config: TrainConfig, device: str) -> str:
    """Return the weights' data type on a device; "auto" means bfloat16 for pretrained models on a GPU, else float32."""
    if config.model.dtype != "auto":
        return config.model.dtype
    return "bfloat16" if config.model.trained and device != "cpu" else "float32"
