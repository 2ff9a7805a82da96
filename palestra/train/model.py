"""A model to be trained: loading it, and what the losses need of it - log-probabilities, entropy, values."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from palestra.engines import loading
from palestra.engines.default_model import default_model
from palestra.train.batch import Micro
from palestra.train.config import TrainConfig

WORTH_SHARING = 256  # tokens saved, from which a second call of the model pays


class Scores(NamedTuple):
    """All [B, T], zero where the policy did not sample."""

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None  # at the first token of each turn: what the critic says of the observation before it


class Policy(nn.Module):
    """A causal language model, and where asked a critic on its hidden states."""

    def __init__(self, model: Any, tokenizer: Any, *, critic: bool = False, temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.temperature = temperature if temperature > 0 else 1.0
        width = model.config.get_text_config().hidden_size
        self.critic = _critic(width).to(model.device) if critic else None

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    def score(self, micro: Micro, *, entropy: bool = False, values: bool = False) -> Scores:
        """One forward pass; the output layer sees only the places that count."""
        hidden, shared = self._hidden(micro)
        row, column = micro.mask.nonzero(as_tuple=True)
        picked = hidden[row, column - shared - 1]  # token t is predicted from what stands before it
        logits = self.model.get_output_embeddings()(picked).float()
        cap = getattr(self.model.config.get_text_config(), "final_logit_softcapping", None)
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        if self.temperature != 1.0:
            logits = logits / self.temperature
        every = logits.log_softmax(-1)
        chosen = every.gather(-1, micro.ids[row, column][:, None])[:, 0]
        blank = torch.zeros(micro.ids.shape, device=hidden.device)
        spread = None
        if entropy:
            spread = blank.index_put((row, column), -(every.exp() * every).sum(-1))
        judged = None
        if values:
            if self.critic is None:
                raise ValueError("this policy has no critic")
            r, c = micro.turn_starts.nonzero(as_tuple=True)
            # The critic reads the policy's features and leaves them alone.
            judged = blank.index_put((r, c), self.critic(hidden[r, c - shared - 1].detach().float())[:, 0])
        return Scores(blank.index_put((row, column), chosen), spread, judged)

    def _hidden(self, micro: Micro) -> tuple[Tensor, int]:
        """[B, T - shared, width], and how many first tokens were read once for all rows and left out."""
        body = getattr(self.model, self.model.base_model_prefix)
        attention = micro.attention.long()
        shared = micro.shared
        if shared * (len(micro.rows) - 1) >= WORTH_SHARING:
            cache = body(input_ids=micro.ids[:1, :shared], use_cache=True).past_key_values
            if _plain(cache):
                for layer in cache.layers:
                    layer.keys = layer.keys.expand(len(micro.rows), -1, -1, -1)
                    layer.values = layer.values.expand(len(micro.rows), -1, -1, -1)
                rest = body(input_ids=micro.ids[:, shared:], attention_mask=attention, past_key_values=cache)
                return rest.last_hidden_state, shared
        return body(input_ids=micro.ids, attention_mask=attention, use_cache=False).last_hidden_state, 0

    def frozen(self) -> Policy:
        """A copy as it is now, for a reference."""
        twin = Policy(copy.deepcopy(self.model), self.tokenizer, temperature=self.temperature)
        return twin.eval().requires_grad_(False)


def _plain(cache: Any) -> bool:
    """Whether a cache holds every token's keys and values, and so can be handed to several rows."""
    layers = getattr(cache, "layers", None) or []
    return bool(layers) and all(type(layer).__name__ == "DynamicLayer" for layer in layers)


def _critic(width: int) -> nn.Module:
    hidden = max(32, width // 2)
    head = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1))
    last = head[2]
    assert isinstance(last, nn.Linear)  # noqa: S101  # for the type checker
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return head


def load_policy(config: TrainConfig, model: str | None = None) -> Policy:
    """The model a config names (or the folder `model`), on its device, in its type."""
    name = model or config.model
    kind, _, size = name.partition(":")
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "default":
        source, tokenizer = default_model(size or "0.3M", seed=config.seed)
    else:
        source, tokenizer = _resolved(name), None
    # Float32 unless asked: an optimiser's small steps are lost in bfloat16.
    loaded, tokenizer, _ = loading.load(source, tokenizer=tokenizer, device=device, dtype=config.dtype, options={})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # a critic's first weights follow from the seed, whatever was drawn before
        return Policy(loaded, tokenizer, critic=config.algo == "ppo", temperature=config.temperature)


def _resolved(name: str) -> str:
    """A run folder stands for its best checkpoint, else its last."""
    folder = Path(name)
    if (folder / "run.json").exists():
        for choice in (folder / "best", folder / "last"):
            if (choice / "config.json").exists():
                return str(choice)
    return name
