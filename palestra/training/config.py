"""One typed schema for command line, TOML recipe and Python. No torch here.

Values come from the defaults below, then the recipe, then the flags. Unknown keys are refused with the nearest name;
the resolved configuration is saved with the run.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from palestra.errors import BadValue
from palestra.training.horizon import HorizonSchedule


def _f(default: Any, text: str, *, group: str) -> Any:
    return field(default=default, metadata={"help": text, "group": group})


def _auto(text: str, *, group: str) -> Any:
    """A setting whose default follows from the model, see `auto`."""
    return field(default=None, metadata={"help": text, "group": group, "auto": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A training run. Every field is a flag of `palestra train` and a key of a recipe."""

    # What is learned, by whom.
    env: tuple[str, ...] = _f((), "environment id, or several as id=weight", group="task")
    env_kwargs: str = _f("", 'keywords for every environment, as JSON: {"max_turns": 12}', group="task")
    curriculum: float = _f(
        0.0, "several --env are levels, easiest first; this success rate opens the next; 0: all are open", group="task"
    )
    model: str = _f("default:0.1M", "folder, hub id, run folder, or default:SIZE for an untrained one", group="task")
    out: str = _f("", "folder of the run; runs/<env>-<algo>-<seed> by default", group="task")
    seed: int = _f(0, "everything random follows from it", group="task")
    steps: int = _f(
        80, "iterations of sample and learn; updates of sft and dpo, 0: what --epochs passes take", group="task"
    )

    # Sampling.
    episodes: int = _auto("episodes a step", group="rollout")
    group_size: int = _auto("episodes that share a seed", group="rollout")
    concurrency: int = _auto("conversations at once", group="rollout")
    horizon: str = _f("none", "turn limit: 20, or stages 5,10,15@100", group="rollout")
    max_tokens: int = _auto("tokens a reply", group="rollout")
    temperature: float = _f(1.0, "of sampling while training", group="rollout")
    top_p: float = _f(1.0, "nucleus", group="rollout")
    system: str = _f("", "system prompt", group="rollout")
    asynchronous: bool = _f(False, "collection goes on while the learner updates", group="rollout")
    staleness: int = _f(4, "with asynchronous: steps a sample may be behind when it is learned from", group="rollout")
    retries: int = _f(2, "tries for an episode whose environment or engine failed", group="rollout")

    # Learning.
    algo: str = _f(
        "rebn",
        "reinforce, rebn, grpo, rloo, reinforce_pp, ppo (a value a turn), ppo_token; agentevol; sft or dpo on --data",
        group="learning",
    )
    gamma: float = _f(1.0, "discount a turn", group="learning")
    lam: float = _f(0.95, "GAE's lambda (ppo)", group="learning")
    lr: float = _auto("learning rate", group="learning")
    lr_warmup: int = _f(8, "steps until the full learning rate", group="learning")
    lr_final: float = _f(0.2, "fraction of the learning rate at the last step", group="learning")
    optimiser: str = _auto("adamw, or muon for the matrices and adamw for the rest", group="learning")
    weight_decay: float = _f(0.0, "of AdamW", group="learning")
    max_grad_norm: float = _auto("gradients are clipped to it", group="learning")
    epochs: int = _f(1, "passes over a step's samples; over --data", group="learning")
    minibatches: int = _auto("updates a pass", group="learning")
    clip_low: float = _f(0.2, "ratio clipping, below", group="learning")
    clip_high: float = _f(0.2, "ratio clipping, above", group="learning")
    aggregate: str = _f("token", "token, sequence or constant (Dr. GRPO)", group="learning")
    normalise: str = _f("std", "grpo: std or none", group="learning")
    normalise_per_env: bool = _f(
        True, "means and deviations within each environment; off: over the whole batch", group="learning"
    )
    normalise_per_turn: bool = _f(
        False,
        "rebn: means and deviations among the turns of one number, first ones, second ones, ...",
        group="learning",
    )
    kl: float = _f(0.0, "weight of the KL to the model at the start of RL", group="learning")
    kl_estimator: str = _f("k3", "k1, k2 or k3", group="learning")
    kl_in: str = _f("loss", "loss or reward", group="learning")
    kl_stop: float = _f(
        0.03,
        "a step ends early where the policy has moved this far (KL) since its begin; 0: off",
        group="learning",
    )
    kl_back: float = _f(
        0.0,
        "an update after which the policy has moved this far (KL) since the step's begin is made smaller; 0: never",
        group="learning",
    )
    kl_limit: float = _f(5.0, "training stops where that KL is above this; 0: never", group="learning")
    entropy: float = _auto("weight of the entropy bonus", group="learning")
    value_lr: float = _f(1e-3, "learning rate of the critic's head", group="learning")
    value_clip: float = _f(0.2, "clipping of the value loss; 0: off", group="learning")
    stale_cap: float = _f(
        1.0, "importance weights of samples older than the weights end here; 0: never", group="learning"
    )
    stale_keep_low: float = _f(0.0, "stale tokens with a weight below teach nothing", group="learning")
    stale_keep_high: float = _f(0.0, "and those above; 0: both are off", group="learning")
    token_budget: int = _f(16384, "tokens a micro-batch, padding included", group="learning")
    packing: bool = _f(False, "several short rows in a line, instead of padding", group="learning")
    gradient_checkpointing: str = _f(
        "auto", "compute layers again in the backward pass, which saves memory: on, off, auto", group="learning"
    )
    lora_rank: int = _f(0, "train low-rank additions of this rank instead of the weights; 0: off", group="learning")
    lora_alpha: float = _f(0.0, "their size; 0: twice the rank", group="learning")
    lora_targets: str = _f("", "layers they are added to (q_proj,v_proj); all linear ones by default", group="learning")

    # Before RL.
    warm_start: int = _f(
        -1, "episodes of the sloppy player to clone first; -1: 3000 for an untrained model", group="start"
    )
    warm_epochs: int = _f(3, "passes over them", group="start")
    warm_batch: int = _f(32, "episodes an update of that", group="start")
    warm_lr: float = _f(1.2e-2, "learning rate of that", group="start")
    warm_observations: bool = _f(
        True, "learn to foresee the environment's words too, not only to write the player's", group="start"
    )
    warm_player: str = _f("random", "random (sloppy: format, not strategy) or expert", group="start")

    # Cloning and preferences.
    data: tuple[str, ...] = _f(
        (), "trajectories for sft and dpo, or agentevol's base set: a file, a folder or a quoted glob", group="data"
    )
    batch: int = _f(32, "trajectories an update of sft and agentevol, pairs of dpo", group="data")
    data_keep: str = _f("success", "success or all: which trajectories sft clones", group="data")
    data_observations: bool = _f(False, "sft: learn to foresee the environment's words too", group="data")
    skip_invalid: bool = _f(False, "do not clone turns whose action the environment could not take", group="data")
    dpo_beta: float = _f(0.1, "how dearly dpo pays for leaving the model it starts from", group="data")
    dpo_margin: float = _f(1e-6, "by how much the returns of a pair differ at least", group="data")
    dpo_pairs: int = _f(1, "pairs of a task, the widest first; 0: all", group="data")
    dpo_smoothing: float = _f(0.0, "share of pairs believed to be the wrong way round", group="data")
    evolve_from: str = _f("start", "start or current: the model each round of agentevol clones into", group="data")
    evolve_weight: str = _f("return", "return, equal or task: what a success of agentevol weighs", group="data")
    evolve_base: float = _f(1.0, "what a trajectory of agentevol's base set weighs; 0: leave them out", group="data")
    evolve_rounds: int = _f(1, "rounds whose successes agentevol clones; 0: all so far", group="data")

    # Keeping and showing.
    target: float = _f(0.0, "stop where success on held-out seeds has reached this; 0: play all steps", group="run")
    eval_every: int = _f(10, "steps between evaluations on held-out seeds; 0: only at the end", group="run")
    eval_episodes: int = _f(256, "episodes of an evaluation", group="run")
    eval_env: tuple[str, ...] = _f(
        (), "environments to be evaluated on, where those of training have no other tasks to give", group="run"
    )
    eval_env_kwargs: str = _f("", "keywords for them, as JSON", group="run")
    eval_seed: int = _f(900_000, "the held-out tasks follow from it", group="run")
    save_every: int = _f(10, "steps between checkpoints", group="run")
    keep: int = _f(2, "checkpoints kept beside the best", group="run")
    store: bool = _f(True, "keep the trajectories of every step (runs/.../trajectories)", group="run")
    device: str = _f("auto", "cpu, cuda or auto", group="run")
    dtype: str = _f("float32", "of the weights: float32 or bfloat16", group="run")
    threads: int = _f(0, "torch threads; 0: one for a small model, else as torch likes", group="run")
    tensorboard: bool = _f(False, "write TensorBoard events too", group="run")
    wandb: bool = _f(False, "write to Weights & Biases too; offline unless logged in", group="run")

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.metadata.get("auto") and getattr(self, item.name) is None:
                object.__setattr__(self, item.name, auto(item.name, self.algo, trained=self.trained))
            _check_type(item, getattr(self, item.name))
        if not self.env and self.algo not in OFFLINE:
            raise BadValue("name at least one environment: --env game:GuessTheNumber-v0-easy")
        for name, options in _CHOICES.items():
            if getattr(self, name) not in options:
                raise BadValue(f"{name} is one of {', '.join(options)}, got {getattr(self, name)!r}")
        for name in (
            *(() if self.algo in OFFLINE else ("steps",)),  # where 0 stands for what `epochs` passes take
            "batch",
            "episodes",
            "group_size",
            "concurrency",
            "max_tokens",
            "epochs",
            "minibatches",
            "token_budget",
        ):
            if getattr(self, name) < 1:
                raise BadValue(f"{name} is at least 1, got {getattr(self, name)}")
        if self.episodes % self.group_size:
            raise BadValue(f"episodes ({self.episodes}) must be a multiple of group_size ({self.group_size})")
        if not 0 <= self.gamma <= 1 or not 0 <= self.lam <= 1:
            raise BadValue(f"gamma and lam lie in [0, 1], got {self.gamma} and {self.lam}")
        if self.algo in _IN_GROUPS and self.group_size < 2:
            raise BadValue(f"{self.algo} compares episodes of a group: group_size is at least 2")
        if self.lora_rank < 0 or self.lora_alpha < 0:
            raise BadValue(f"lora_rank and lora_alpha are 0 or more, got {self.lora_rank} and {self.lora_alpha}")
        if self.stale_cap < 0:
            raise BadValue(f"stale_cap is 0 or more, got {self.stale_cap}")
        if self.stale_keep_high and not 0 <= self.stale_keep_low < self.stale_keep_high:
            raise BadValue(f"0 <= stale_keep_low < stale_keep_high, got {self.stale_keep_low}, {self.stale_keep_high}")
        for name in ("target", "curriculum"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadValue(f"{name} is a success rate in [0, 1], got {getattr(self, name)}")
        if self.staleness < 0:
            raise BadValue(f"staleness is 0 or more, got {self.staleness}")
        HorizonSchedule.parse(self.horizon)
        _ = self.env_keywords, self.eval_env_keywords
        if self.eval_env_kwargs and not self.eval_env:
            raise BadValue("eval_env_kwargs goes with eval_env")
        self._check_data()

    def _check_data(self) -> None:
        """What cloning and preferences need."""
        if self.algo in OFFLINE and not self.data:
            raise BadValue(f"{self.algo} learns from stored trajectories: --data runs/a/trajectories")
        if self.data and self.algo not in (*OFFLINE, "agentevol"):
            raise BadValue(f"{self.algo} plays its own episodes; --data is for {', '.join(OFFLINE)} and agentevol")
        if self.asynchronous and self.algo in (*OFFLINE, "agentevol"):
            raise BadValue(f"{self.algo} does not learn while it plays; asynchronous is for RL")
        if not self.dpo_beta > 0 or not self.dpo_margin > 0:
            raise BadValue(f"dpo_beta and dpo_margin are above 0, got {self.dpo_beta} and {self.dpo_margin}")
        if not 0 <= self.dpo_smoothing < 0.5:
            raise BadValue(f"dpo_smoothing lies in [0, 0.5), got {self.dpo_smoothing}")
        for name in ("steps", "dpo_pairs", "evolve_rounds", "evolve_base"):
            if getattr(self, name) < 0:
                raise BadValue(f"{name} is 0 or more, got {getattr(self, name)}")
        if self.algo == "agentevol" and self.evolve_rounds != 1 and not self.store:
            raise BadValue("evolve_rounds other than 1 reads the stored episodes of earlier rounds: leave store on")

    @property
    def trained(self) -> bool:
        """Does the model know something already?"""
        return not self.model.startswith("default:")

    @property
    def envs(self) -> dict[str, float]:
        """Environment ids with their weights."""
        weights: dict[str, float] = {}
        for text in self.env:
            env_id, equals, weight = text.partition("=")
            try:
                weights[env_id] = float(weight) if equals else 1.0
            except ValueError as err:
                raise BadValue(f"--env takes an id or id=weight, got {text!r}") from err
            if weights[env_id] <= 0:
                raise BadValue(f"a weight is above 0, got {text!r}")
        return weights

    @property
    def env_keywords(self) -> dict[str, Any]:
        """What every environment is made with."""
        return _keywords("env_kwargs", self.env_kwargs)

    @property
    def eval_envs(self) -> list[str]:
        """What is played in an evaluation."""
        return list(self.eval_env) or list(self.envs)

    @property
    def eval_env_keywords(self) -> dict[str, Any]:
        return _keywords("eval_env_kwargs", self.eval_env_kwargs) if self.eval_env else self.env_keywords

    @property
    def folder(self) -> Path:
        if self.out:
            return Path(self.out)
        name = "+".join(env_id.partition(":")[2] or env_id for env_id in self.envs)
        return Path("runs") / "-".join(part for part in (name, self.algo, str(self.seed)) if part)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, **values: Any) -> TrainConfig:
        return replace(self, **values)


def _keywords(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadValue(f'{name} is a JSON object such as {{"max_turns": 12}}, got {text!r}')
    return found


OFFLINE = ("sft", "dpo")  # learn from stored trajectories; environments serve evaluation only

# What suits a small model that knows nothing, and one that was trained.
_AUTO: Mapping[str, tuple[Any, Any]] = {
    "episodes": (512, 256),
    "group_size": (1, 8),
    "concurrency": (512, 256),
    "max_tokens": (16, 512),
    "optimiser": ("muon", "adamw"),
    "lr": (5e-3, 1e-6),
    "max_grad_norm": (0.3, 1.0),
    "minibatches": (8, 1),
    "entropy": (0.003, 0.0),
}
_IN_GROUPS = ("grpo", "rloo")
_CLONING: Mapping[str, Any] = {"optimiser": "adamw", "minibatches": 1, "entropy": 0.0}  # of sft, dpo and agentevol
_CLONING_LR = (1e-3, 1e-5)


def auto(name: str, algo: str, *, trained: bool) -> Any:
    """The default of a setting that depends on what is trained."""
    if algo in (*OFFLINE, "agentevol"):
        if name == "lr":
            return _CLONING_LR[trained]
        if name in _CLONING:
            return _CLONING[name]
    if name == "group_size" and algo in _IN_GROUPS:
        return 8
    return _AUTO[name][trained]


# Where an algorithm is best served by other defaults than RL.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sft": {"steps": 0, "epochs": 2},
    "dpo": {"steps": 0, "epochs": 1},
    # One try a task: of several alike one is kept, and that favours the lucky over the sure.
    "agentevol": {"steps": 5, "epochs": 2, "episodes": 512, "group_size": 1, "eval_every": 1, "save_every": 1},
}

_CHOICES = {
    "algo": ("reinforce", "rebn", "grpo", "rloo", "reinforce_pp", "ppo", "ppo_token", "agentevol", *OFFLINE),
    "data_keep": ("success", "all"),
    "evolve_from": ("start", "current"),
    "evolve_weight": ("return", "equal", "task"),
    "optimiser": ("adamw", "muon"),
    "aggregate": ("token", "sequence", "constant"),
    "normalise": ("std", "none"),
    "kl_estimator": ("k1", "k2", "k3"),
    "kl_in": ("loss", "reward"),
    "warm_player": ("random", "expert"),
    "dtype": ("float32", "bfloat16"),
    "gradient_checkpointing": ("auto", "on", "off"),
}


def from_mapping(values: Mapping[str, Any]) -> TrainConfig:
    """A config from plain data; unknown keys are refused with the nearest name."""
    known = {item.name for item in fields(TrainConfig)}
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadValue(f"no setting {name!r}.{hint} `palestra train --help` lists all.")
    given = {**_DEFAULTS.get(str(values.get("algo")), {}), **values}
    for name in ("env", "data", "eval_env"):
        several = given.get(name, ())
        given[name] = (several,) if isinstance(several, str) else tuple(several)
    for item in fields(TrainConfig):
        if kind_of(item) is float and type(given.get(item.name)) is int:
            given[item.name] = float(given[item.name])
    if type(given.get("horizon")) is int:
        given["horizon"] = str(given["horizon"])
    return TrainConfig(**given)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """The settings of a TOML recipe; tables only group them."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise BadValue(f"there is no recipe {path}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise BadValue(f"{path} is no TOML: {err}") from err
    flat: dict[str, Any] = {}
    for name, value in data.items():
        for key, inner in value.items() if isinstance(value, dict) else [(name, value)]:
            if key in flat:
                raise BadValue(f"{path} sets {key} twice")
            flat[key] = inner
    return flat


def kind_of(item: Field[Any]) -> type:
    """int, float, str, bool, or tuple (of strings)."""
    hint = get_type_hints(TrainConfig)[item.name]
    kind = get_origin(hint) or hint
    return kind if isinstance(kind, type) else get_args(hint)[0]


def _check_type(item: Field[Any], value: Any) -> None:
    kind = kind_of(item)
    if type(value) is not kind:
        raise BadValue(f"{item.name} is a {kind.__name__}, got {value!r}")
