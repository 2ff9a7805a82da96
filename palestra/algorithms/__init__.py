"""Credit and losses, an algorithm a file. The losses need torch: `palestra.algorithms.losses` is imported by name."""

from palestra.algorithms.agentevol import Weighted, next_set, successes
from palestra.algorithms.base import Algorithm, Credit, Episode
from palestra.algorithms.dpo import Pair, make_pairs
from palestra.algorithms.grpo import GRPO
from palestra.algorithms.options import LossOptions
from palestra.algorithms.ppo import PPO, TokenPPO, explained_variance, token_gae, turn_gae
from palestra.algorithms.registry import ALGORITHMS, make_algorithm, options_of
from palestra.algorithms.reinforce import ReBN, Reinforce
from palestra.algorithms.reinforce_pp import ReinforcePP
from palestra.algorithms.returns import returns_to_go
from palestra.algorithms.rloo import RLOO
from palestra.algorithms.sft import sft_weights, turn_weights
from palestra.algorithms.turns import to_tokens, to_turns

__all__ = [  # noqa: RUF022  # plainly sorted, as tests/test_public.py wants it
    "ALGORITHMS",
    "Algorithm",
    "Credit",
    "Episode",
    "GRPO",
    "LossOptions",
    "PPO",
    "Pair",
    "RLOO",
    "ReBN",
    "Reinforce",
    "ReinforcePP",
    "TokenPPO",
    "Weighted",
    "explained_variance",
    "make_algorithm",
    "make_pairs",
    "next_set",
    "options_of",
    "returns_to_go",
    "sft_weights",
    "successes",
    "to_tokens",
    "to_turns",
    "token_gae",
    "turn_gae",
    "turn_weights",
]
