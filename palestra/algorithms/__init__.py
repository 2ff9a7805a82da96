"""Algorithms: advantage estimators and losses, one file per algorithm.

Use `register` to add your own algorithm. The losses require torch; import them from `palestra.algorithms.losses`.
"""

from palestra.algorithms.agentevol import AgentEvol, AgentEvolConfig, Weighted, next_set, successes
from palestra.algorithms.base import Algorithm, AlgorithmConfig, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.cispo import CISPO, CISPOConfig
from palestra.algorithms.dapo import DAPO, DAPOConfig
from palestra.algorithms.distill import Distill, DistillConfig
from palestra.algorithms.dpo import DPO, DPOConfig, Pair, make_pairs
from palestra.algorithms.dr_grpo import DrGRPO, DrGRPOConfig
from palestra.algorithms.episode import Advantages, Episode, returns_to_go, to_tokens, to_turns, turn_returns
from palestra.algorithms.gigpo import GiGPO, GiGPOConfig
from palestra.algorithms.grpo import GRPO, GRPOConfig
from palestra.algorithms.gspo import GSPO, GSPOConfig
from palestra.algorithms.hooks import register_advantage_hook, register_reward_hook
from palestra.algorithms.importance import ImportanceOptions, importance_weights
from palestra.algorithms.normalize import normalize
from palestra.algorithms.options import LossOptions, option
from palestra.algorithms.ppo import PPO, PPOConfig, TokenPPO, TokenPPOConfig, explained_variance, token_gae, turn_gae
from palestra.algorithms.rebn import ReBN, ReBNConfig
from palestra.algorithms.registry import algorithm_names, get_algorithm, make_algorithm, options_of, register
from palestra.algorithms.reinforce import Reinforce, ReinforceConfig
from palestra.algorithms.reinforce_pp import ReinforcePP, ReinforcePPConfig
from palestra.algorithms.reinforce_pp_baseline import ReinforcePPBaseline, ReinforcePPBaselineConfig
from palestra.algorithms.rloo import RLOO, RLOOConfig
from palestra.algorithms.sft import SFT, SFTConfig, sft_weights, turn_weights

__all__ = [  # noqa: RUF022  # tests/test_public.py requires the order of sorted()
    "Advantages",
    "AgentEvol",
    "AgentEvolConfig",
    "Algorithm",
    "AlgorithmConfig",
    "CISPO",
    "CISPOConfig",
    "DAPO",
    "DAPOConfig",
    "DPO",
    "DPOConfig",
    "Distill",
    "DistillConfig",
    "DrGRPO",
    "DrGRPOConfig",
    "Episode",
    "GRPO",
    "GRPOConfig",
    "GSPO",
    "GSPOConfig",
    "GiGPO",
    "GiGPOConfig",
    "ImportanceOptions",
    "LossOptions",
    "PPO",
    "PPOConfig",
    "Pair",
    "PolicyGradient",
    "PolicyGradientConfig",
    "RLOO",
    "RLOOConfig",
    "ReBN",
    "ReBNConfig",
    "Reinforce",
    "ReinforceConfig",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "ReinforcePPBaselineConfig",
    "ReinforcePPConfig",
    "SFT",
    "SFTConfig",
    "TokenPPO",
    "TokenPPOConfig",
    "Weighted",
    "algorithm_names",
    "explained_variance",
    "get_algorithm",
    "importance_weights",
    "make_algorithm",
    "make_pairs",
    "next_set",
    "normalize",
    "option",
    "options_of",
    "register",
    "register_advantage_hook",
    "register_reward_hook",
    "returns_to_go",
    "sft_weights",
    "successes",
    "to_tokens",
    "to_turns",
    "token_gae",
    "turn_gae",
    "turn_returns",
    "turn_weights",
]
