"""A model to be trained: loading it, and what the losses need of it - log-probabilities, entropy, values.

The weights that are trained and those that are sampled from are the same, in one process. They are two sets where the
former are cut up among processes, have LoRA beside them, or may change while the latter are in use: then `sampler` is a
plain whole model, and `publish` brings it up to date.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from palestra.engines.default_model import default_model
from palestra.engines.local import loading
from palestra.engines.local.transformers_runner import TransformersRunner
from palestra.engines.model_folders import model_folder
from palestra.errors import BadValue
from palestra.training import adapters, distributed, memory
from palestra.training.batch import Micro
from palestra.training.config import TrainConfig
from palestra.training.prefix import Prefix, Recorder, visible

CHUNK = 1 << 25  # numbers of one block of logits; more are computed block by block, and again in the backward pass
ADAPTER = "adapter"  # folder of a saved model with the LoRA it was merged from
CRITICS = ("ppo", "ppo_token")


class Scores(NamedTuple):
    """All [B, T], zero where nothing was asked."""

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None  # what the critic says of everything before a token


class Policy(nn.Module):
    """A causal language model, and where asked a critic on its hidden states."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        critic: bool = False,
        temperature: float = 1.0,
        recompute: str = "auto",
        sampler: Any = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.temperature = temperature if temperature > 0 else 1.0
        self.recompute = recompute
        self._sampler = [sampler]  # in a list, for it is no part of this module
        width = model.config.get_text_config().hidden_size
        self.critic = _critic(width).to(model.device) if critic else None
        if recompute != "off":
            memory.make_recomputable(model)
        # Why rows cannot share keys and values or stand in one line; None: they can.
        self.separate: str | None = TransformersRunner.unsupported_reason(model)

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def has_lora(self) -> bool:
        return bool(getattr(self.model, "peft_config", None))

    @property
    def sampler(self) -> Any:
        """The model to sample from: whole, plain, in transformers' form."""
        return self.model if self._sampler[0] is None else self._sampler[0]

    def split(self) -> None:
        """From now on what is sampled from changes only with `publish`: it may be in use while the learner learns."""
        if self._sampler[0] is None:
            self._sampler[0] = copy.deepcopy(self.model).requires_grad_(False)

    @torch.no_grad()
    def publish(self) -> None:
        """Sample with the weights as they are now; no step of an engine may run, and every process must call."""
        twin = self._sampler[0]
        if twin is None:
            return
        known = dict(twin.named_parameters())
        for name, tensor in adapters.merged(self.model):
            known[name].copy_(tensor)

    def score(
        self, micro: Micro, *, entropy: bool = False, entropy_gradient: bool = True, values: Tensor | None = None
    ) -> Scores:
        """One forward pass; the output layer sees only the places that count. `values` [B, T]: where to ask the critic.

        Every process must call as often, where there are several.
        """
        found: Scores = self(micro, entropy=entropy, entropy_gradient=entropy_gradient, values=values)
        return found

    def forward(
        self, micro: Micro, *, entropy: bool = False, entropy_gradient: bool = True, values: Tensor | None = None
    ) -> Scores:
        """As `score`; through the module's own call, so that its weights are whole meanwhile."""
        with memory.recomputing(self._recomputes(micro)):
            hidden = self._hidden(micro)
        row, column = micro.mask.nonzero(as_tuple=True)
        # A token is predicted from what stands before it.
        chosen, spread = self._predicted(
            hidden[row, column - 1], micro.ids[row, column], entropy=entropy, entropy_gradient=entropy_gradient
        )
        empty = torch.zeros(micro.ids.shape, device=hidden.device)
        judged = None
        if values is not None:
            if self.critic is None:
                raise ValueError("this policy has no critic")
            r, c = values.nonzero(as_tuple=True)
            # The critic reads the policy's features and leaves them alone.
            judged = empty.index_put((r, c), self.critic(hidden[r, c - 1].detach().float())[:, 0])
        return Scores(
            empty.index_put((row, column), chosen),
            None if spread is None else empty.index_put((row, column), spread),
            judged,
        )

    def _predicted(
        self, hidden: Tensor, ids: Tensor, *, entropy: bool, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[N, width] and the tokens that followed, [N] -> their log-probabilities and the entropies, [N]."""
        config = self.model.config.get_text_config()
        cap = getattr(config, "final_logit_softcapping", None)
        head = self.model.get_output_embeddings()

        def block(hidden: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
            logits = head(hidden).float()
            if cap is not None:
                logits = torch.tanh(logits / cap) * cap
            if self.temperature != 1.0:
                logits = logits / self.temperature
            every = logits.log_softmax(-1)
            chosen = every.gather(-1, ids[:, None])[:, 0]
            if not entropy:
                return chosen, None
            every = every if entropy_gradient else every.detach()
            return chosen, -(every.exp() * every).sum(-1)

        size = max(1, CHUNK // config.vocab_size)
        if len(ids) <= size:
            return block(hidden, ids)
        parts = [
            checkpoint(block, *part, use_reentrant=False, preserve_rng_state=False)
            for part in zip(torch.split(hidden, size), torch.split(ids, size), strict=True)
        ]
        chosen = torch.cat([part[0] for part in parts])
        return chosen, torch.cat([part[1] for part in parts]) if entropy else None

    def _hidden(self, micro: Micro) -> Tensor:
        """[B, T, width]"""
        body = getattr(self.model, self.model.base_model_prefix)
        if not (micro.shared or micro.packed):
            attention = micro.attention.long()
            plain: Tensor = body(input_ids=micro.ids, attention_mask=attention, use_cache=False).last_hidden_state
            return plain
        if self.separate is not None:
            raise BadValue(f"the rows of {type(self.model).__name__} must stand apart: {self.separate}")
        cache = None
        if micro.shared:
            recorder = Recorder()
            with memory.recomputing(False):  # it is short, and its keys are kept anyway
                body(input_ids=micro.prefix, past_key_values=recorder, use_cache=True)
            cache = Prefix(recorder, micro.shared)
        windows = loading.layer_windows(self.model) or {}
        masks = {kind: self._mask(visible(micro, window)) for kind, window in windows.items()}
        hidden: Tensor = body(
            input_ids=micro.ids,
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            position_ids=micro.positions,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return hidden

    def _mask(self, shown: Tensor) -> Tensor:
        """As the model's attention takes it: true where seen, or a number to be added to the scores."""
        if self.model.config.get_text_config(decoder=True)._attn_implementation == "sdpa":
            return shown
        low = torch.finfo(self.model.dtype).min
        return torch.zeros(shown.shape, dtype=self.model.dtype, device=shown.device).masked_fill_(~shown, low)

    def _recomputes(self, micro: Micro) -> bool:
        if self.recompute == "auto":
            return memory.is_too_much(self.model, micro.ids.numel())
        return self.recompute == "on"

    def frozen(self) -> Policy:
        """A copy as it is now, for a reference."""
        if distributed.is_cut(next(self.model.parameters())):
            self.publish()
            model = self.sampler
        else:
            model = self.model
        twin = Policy(copy.deepcopy(model), self.tokenizer, temperature=self.temperature, recompute="off")
        return twin.eval().requires_grad_(False)

    def writer(self) -> Callable[[Path], None]:
        """What writes the model into a folder, as every command takes it: whole, with its tokenizer; LoRA is merged,
        and kept apart beside it.

        Every process must call, for the weights are put together now; one of them then writes.
        """
        self.publish()
        lora = adapters.state_of(self.model) if self.has_lora else None

        def write(folder: Path) -> None:
            if lora is not None:
                adapters.save_lora(self.model, lora, folder / ADAPTER)
            with quiet():
                self.sampler.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)

        return write


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers."""
    from transformers.utils import logging as verbosity

    logging: Any = verbosity
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _critic(width: int) -> nn.Module:
    hidden = max(32, width // 2)
    head = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1))
    last = head[2]
    assert isinstance(last, nn.Linear)  # noqa: S101  # for the type checker
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return head


def load_policy(config: TrainConfig, model: str | None = None, world: distributed.World | None = None) -> Policy:
    """The model a config names (or the checkpoint `model`), on its device, in its type, cut up where asked."""
    adapter = None if model is None else Path(model) / ADAPTER
    if not config.lora_rank or adapter is None or not adapter.exists():
        adapter = None
    loaded, tokenizer = _loaded(config, model if adapter is None and model is not None else config.model)
    several = world is not None and world.size > 1
    twin = None
    if config.lora_rank or several:
        twin = copy.deepcopy(loaded).requires_grad_(False)
    if config.lora_rank:
        adapters.add_lora(
            loaded, rank=config.lora_rank, alpha=config.lora_alpha, targets=config.lora_targets, seed=config.seed
        )
        if adapter is not None:
            adapters.load_lora(loaded, adapter)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # a critic's first weights follow from the seed, whatever was drawn before
        policy = Policy(
            loaded,
            tokenizer,
            critic=config.algo in CRITICS,
            temperature=config.temperature,
            recompute=config.gradient_checkpointing,
            sampler=twin,
        )
    if config.asynchronous:
        policy.split()
    if config.packing and policy.separate is not None:
        raise BadValue(f"packing does not work with {type(loaded).__name__}: {policy.separate}; leave it off")
    if world is not None and several:
        distributed.shard(policy, memory.layers_of(loaded), policy.device, world)
    policy.publish()
    return policy


def _loaded(config: TrainConfig, name: str) -> tuple[Any, Any]:
    kind, _, size = name.partition(":")
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "default":
        source, tokenizer = default_model(size or "0.3M", seed=config.seed)
    else:
        source, tokenizer = model_folder(name), None
    with quiet():
        # Where the weights are bfloat16 the optimiser keeps them in float32 beside: its small steps would be lost.
        loaded, tokenizer, _ = loading.load(source, tokenizer=tokenizer, device=device, dtype=config.dtype, options={})
    return loaded, tokenizer
