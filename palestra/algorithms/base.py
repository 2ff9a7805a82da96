"""Base classes for algorithms. A subclass declares its requirements, its advantage estimator and its loss.

An algorithm is one file with two classes: a config dataclass for its options and the algorithm itself. `palestra train`
generates its flags from the config, and the attributes of the class determine whether a critic and a reference model
are needed and which trainer is used. See docs/algorithms.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

from palestra.algorithms.episode import Advantages, Episode, early_share
from palestra.algorithms.importance import ImportanceOptions
from palestra.algorithms.importance import Level as ImportanceLevel
from palestra.algorithms.options import Aggregate, KLEstimator, LossOptions, check_options, option
from palestra.errors import BadValue

if TYPE_CHECKING:
    from torch import Tensor

    from palestra.algorithms.losses import Denominators, LossInputs, LossOutput

Level = Literal["turn", "token"]
CriticKind = Literal["head", "model", "lora"]
RatioLevel = Literal["token", "turn", "sample"]
TrainerKind = Literal["online", "cloning", "preference", "evolution"]


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """Options for an algorithm: keys in a recipe's `[algorithm]` table, and flags of `palestra train`."""

    def __post_init__(self) -> None:
        check_options(self)


C = TypeVar("C", bound=AlgorithmConfig)


class Algorithm(ABC, Generic[C]):
    """Base class of all algorithms; `PolicyGradient` is the base class for reinforcement learning.

    Construct it with a config object, `GRPO(GRPOConfig(gamma=0.9))`, or with options of its config, `GRPO(gamma=0.9)`.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[AlgorithmConfig]]
    trainer: ClassVar[TrainerKind] = "online"  # trainer in `palestra.training` that runs the algorithm
    needs_env: ClassVar[bool] = True  # whether the algorithm plays episodes
    needs_data: ClassVar[bool] = False  # whether the algorithm trains on stored trajectories (option `data`)
    needs_groups: ClassVar[bool] = False  # whether the algorithm compares several episodes on the same task
    needs_critic: ClassVar[bool] = False
    # Defaults that override the general ones, by flag name. A pair has the values for an untrained and a trained model.
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: C | None = None, **options: Any) -> None:
        if config is not None and options:
            raise BadValue(f"pass either a config or options to {type(self).__name__}, not both")
        if config is not None and not isinstance(config, self.config_class):
            raise BadValue(f"{self.name} takes a {self.config_class.__name__}, got {type(config).__name__}")
        self.config: C = self.config_class(**options) if config is None else config  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.config == self.config

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config})"

    @property
    def needs_reference(self) -> bool:
        """True if a frozen copy of the initial model is needed."""
        return False


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig(AlgorithmConfig):
    """Options for every policy-gradient algorithm."""

    gamma: float = option(
        1.0,
        "Discount factor per turn; lower it to favor short episodes and immediate rewards.",
        untrained=0.9,
        at_least=0,
        at_most=1,
    )
    gamma_dense: float = option(
        1.0,
        "Discount factor if all rewards are received before the last turn, as with partial credit; the discount "
        "factor is interpolated between --gamma and this value by the share of positive rewards before the last turn. "
        "It has no effect if it is higher than --gamma, and algorithms with a critic do not use it.",
        untrained=0.3,
        at_least=0,
        at_most=1,
    )
    clip_low: float = option(
        0.2,
        "Lower clipping range: the probability ratio is clipped at 1 minus this value; 1 disables the lower clip.",
        at_least=0,
        at_most=1,
    )
    clip_high: float = option(
        0.2,
        "Upper clipping range: the probability ratio is clipped at 1 plus this value; raise it to let "
        "unlikely tokens gain probability faster.",
        at_least=0,
    )
    clip_dual: float = option(
        0.0,
        "Dual clip: for negative advantages, also clip the probability ratio at this value, for example 3, so that "
        "tokens that became much more likely do not dominate the gradient; 0 disables it.",
        at_least=0,
    )
    aggregate: Aggregate = option(
        "token",
        "Averaging of token losses: 'token' (mean over all tokens), 'sequence' (mean within each episode, then over "
        "episodes) or 'constant' (each episode's sum divided by --constant-length, as in Dr. GRPO).",
        choices=("token", "sequence", "constant"),
    )
    constant_length: int = option(
        0,
        "Number of tokens by which --aggregate constant divides each episode's sum; 0 uses the maximum number of "
        "sampled tokens per episode: the context window, or --max-tokens times the last --horizon if that is less.",
        at_least=0,
    )
    kl: float = option(
        0.0,
        "Coefficient of the KL penalty, which keeps the policy close to the model at the start of RL; 0 disables it. "
        "The penalty and --kl-unsolved need a second copy of the weights.",
        at_least=0,
    )
    kl_estimator: KLEstimator = option(
        "k3",
        "Estimator of the KL penalty in the loss: k2, or k3, which is unbiased and never negative; k1 is accepted only "
        "if the penalty is not in the loss.",
        choices=("k1", "k2", "k3"),
    )
    kl_in: Literal["loss", "reward"] = option(
        "loss",
        "Placement of the KL penalty: 'loss' adds it to the loss, 'reward' subtracts it from the rewards.",
        choices=("loss", "reward"),
    )
    target_kl: float = option(
        0.015,
        "Target KL per token between the policies before and after a training step: the adaptive learning rate aims at "
        "this value, and the step's remaining minibatches are skipped once it is exceeded. The value shrinks in "
        "proportion to the policy's entropy; 0 disables both.",
        untrained=0.03,
        at_least=0,
    )
    kl_backtrack: float = option(
        0.03,
        "Scale back or undo a training step if the KL per token between the policies before and after it exceeds this "
        "value. The value shrinks in proportion to the policy's entropy; 0 disables the check.",
        untrained=0.06,
        at_least=0,
    )
    max_kl: float = option(
        5.0,
        "Stop training with an error if the KL from the policy that sampled the episodes exceeds this "
        "value; 0 disables the check.",
        at_least=0,
    )
    entropy: float = option(
        0.0, "Coefficient of the entropy bonus; raise it if the policy stops exploring too early.", untrained=0.01
    )
    entropy_target: float = option(
        0.0,
        "Entropy per token, in nats, above which there is no entropy bonus; below it, the coefficient grows linearly "
        "up to --entropy at entropy 0. 0 always uses --entropy.",
        at_least=0,
    )
    entropy_floor: float = option(
        0.0,
        "Raise the entropy bonus, up to ten times, while the entropy per token is below this fraction of its initial "
        "value times the fraction of failed episodes; 0 disables this.",
        untrained=0.3,
        at_least=0,
        at_most=1,
    )
    entropy_failed: float = option(
        1.0,
        "Multiply the entropy bonus in failed episodes by the number of episodes per failed one, but at most by this; "
        "1 gives all episodes the same bonus.",
        untrained=10.0,
        at_least=1,
    )
    kl_unsolved: float = option(
        0.0,
        "Coefficient of KL(start || policy), where start is the model at the start of RL, in unsolved states: turns "
        "whose conversation so far occurred several times in a step, but never led to success or a positive return. "
        "Unlike an entropy bonus, it makes actions likely again that the policy no longer samples; 0 disables it. "
        "Groups that --zero-variance excludes are excluded here as well.",
        untrained=0.1,
        at_least=0,
    )
    cut_penalty: float = option(
        0.0,
        "Subtract this from the reward of a turn whose reply was cut at --max-tokens, so that the model learns to end "
        "its replies even if their actions are valid without the end.",
        untrained=0.1,
        at_least=0,
    )
    is_correction: Literal["stale", "always"] = option(
        "stale",
        "When to use importance weights: 'stale' for samples from older weights, 'always' also in synchronous "
        "training, to correct differences between the inference engine's and the trainer's probabilities (default: "
        "always with --engine vllm, stale otherwise).",
        untrained="stale",
        choices=("stale", "always"),
    )
    is_level: ImportanceLevel = option(
        "token",
        "Level of the importance weights: 'token', 'turn' or 'sequence' (product of the ratios in the turn or "
        "episode), or 'geometric' (their geometric mean over the episode).",
        choices=get_args(ImportanceLevel),
    )
    is_clip: float = option(
        5.0,
        "Truncate importance weights at this value; 0 disables truncation. Low values favor actions that the sampling "
        "policy prefers.",
        at_least=0,
    )
    is_mask_low: float = option(
        0.0,
        "Exclude from the loss and its denominators all tokens whose importance ratio is below this value; used "
        "only if --is-mask-high is set.",
        at_least=0,
    )
    is_mask_high: float = option(
        0.0,
        "Exclude tokens whose importance ratio is above this value from the loss and its denominators; 0 disables "
        "masking.",
        at_least=0,
    )
    is_mask_level: ImportanceLevel = option(
        "token",
        "Level of the ratio that is compared with --is-mask-low and --is-mask-high: 'token', 'turn', 'sequence' or "
        "'geometric', as for --is-level.",
        choices=get_args(ImportanceLevel),
    )
    reward_hook: str = option(
        "",
        "Function that replaces the rewards before training, as module:function or the name of a registered hook; it "
        "receives the trajectories and returns one list of rewards per trajectory.",
    )
    advantage_hook: str = option(
        "",
        "Function that changes the advantages, as module:function or the name of a registered hook; it receives the "
        "episodes and their Advantages and returns Advantages.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_mask_high and not self.is_mask_low < self.is_mask_high:
            raise BadValue(
                f"is_mask_low must be less than is_mask_high, got {self.is_mask_low} and {self.is_mask_high}"
            )
        if self.clip_dual and not self.clip_dual > 1:
            raise BadValue(f"clip_dual must be greater than 1, or 0 to disable it; got {self.clip_dual}")
        if self.kl and self.kl_in == "loss" and self.kl_estimator == "k1":
            raise BadValue("kl_estimator='k1' has no effect in the loss; use k2 or k3, or kl_in='reward'")

    @property
    def discount(self) -> float:
        """Discount factor per turn; 1 if it is not set and the model is not known."""
        gamma: float | None = self.gamma
        return 1.0 if gamma is None else gamma

    def discount_of(self, episodes: Sequence[Episode]) -> float:
        """Return the discount factor per turn for a batch, which depends on how early its rewards are received.

        The more rewards follow a turn directly, the more of the variance in its return comes from later turns.
        """
        dense: float | None = self.gamma_dense
        gamma = self.discount
        return gamma if dense is None else gamma - max(0.0, gamma - dense) * early_share(episodes)

    @property
    def kl_in_reward(self) -> float:
        """Coefficient of the KL that is subtracted from the rewards."""
        return self.kl if self.kl_in == "reward" else 0.0

    @property
    def importance(self) -> ImportanceOptions:
        """Options for the importance weights."""
        return ImportanceOptions(
            clip=self.is_clip,
            level=self.is_level,
            mask=(self.is_mask_low, self.is_mask_high) if self.is_mask_high else None,
            mask_level=self.is_mask_level,
        )

    def entropy_coef(self, entropy: float) -> float:
        """Return the coefficient of the entropy bonus for a policy with this mean entropy per token."""
        coefficient = self.entropy or 0.0
        if self.entropy_target:
            coefficient *= min(1.0, max(0.0, 1 - entropy / self.entropy_target))
        return coefficient


G = TypeVar("G", bound=PolicyGradientConfig)


class PolicyGradient(Algorithm[G]):
    """Base class for RL on episodes that the policy samples. A subclass implements `advantages`."""

    config_class: ClassVar[type[AlgorithmConfig]] = PolicyGradientConfig
    level: ClassVar[Level] = "turn"  # whether there is one advantage per turn or per sampled token
    teacher: str = ""  # model that scores the sampled tokens (for `Episode.teacher_kl`)

    @property
    def needs_reference(self) -> bool:
        return self.config.kl > 0 or bool(self.config.kl_unsolved)

    @property
    def ratio_level(self) -> RatioLevel:
        """Level at which tokens share one probability ratio in the loss."""
        return "token"

    @property
    def critic(self) -> CriticKind:
        """Kind of critic, if there is one: a head on the policy's hidden states, or a separate network."""
        return "head"

    @property
    def value_lr(self) -> float:
        """Learning rate of the critic's head, if there is one."""
        return 1e-3

    @property
    def critic_lr(self) -> float:
        """Learning rate of the critic's own network, if there is one."""
        return 0.0

    @abstractmethod
    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        """Return the advantages of a batch. This must be a pure function; it may use statistics over all episodes."""

    def loss_options(self) -> LossOptions:
        """Return the options for the policy loss."""
        config = self.config
        return LossOptions(
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            clip_dual=config.clip_dual or None,
            aggregate=config.aggregate,
            kl_coef=config.kl if config.kl_in == "loss" else 0.0,
            kl_estimator=config.kl_estimator,
            entropy_coef=config.entropy or 0.0,
            other_coef=config.kl_unsolved or 0.0,
        )

    def loss(self, inputs: LossInputs, denominators: Denominators, *, entropy_coef: float | None = None) -> LossOutput:
        """Return the policy loss on a micro-batch; `entropy_coef` replaces the coefficient in the config."""
        from palestra.algorithms.losses import policy_loss

        options = self.loss_options()
        if entropy_coef is not None:
            options = replace(options, entropy_coef=entropy_coef)
        return policy_loss(inputs, denominators, options)

    def critic_loss(
        self, values: Tensor, returns: Tensor, mask: Tensor, *, denominator: float, old_values: Tensor | None
    ) -> LossOutput:
        """Return the critic's loss on a micro-batch; called only if `needs_critic` is True."""
        from palestra.algorithms.losses import value_loss

        return value_loss(values, returns, mask, denominator=denominator, old_values=old_values)
