"""Declare and check typed options: the fields of config dataclasses, with help texts and accepted values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields
from math import isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from palestra.errors import BadValue

Aggregate = Literal["token", "sequence", "constant"]
KLEstimator = Literal["k1", "k2", "k3"]

NO_AUTO: Any = object()  # sentinel that means the default does not depend on the model


def option(
    default: Any,
    help: str,  # noqa: A002  # same name as in argparse
    *,
    flag: str = "",
    choices: Sequence[str] = (),
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    untrained: Any = NO_AUTO,
) -> Any:
    """Return a dataclass field with a help text and the values it accepts.

    `flag` is the command-line flag's name if it differs from the field's name. If `untrained` is passed, it
    is the default value for an untrained model, and `default` is the default value for a trained model.
    """
    metadata = {
        "help": help,
        "flag": flag,
        "choices": tuple(choices),
        "at_least": at_least,
        "at_most": at_most,
        "above": above,
        "below": below,
        "auto": None if untrained is NO_AUTO else (untrained, default),
    }
    return field(default=default if untrained is NO_AUTO else None, metadata=metadata)


def flat_name(item: Field[Any]) -> str:
    """Return an option's name as a keyword argument or flag, which is unique across all sections of a config."""
    return item.metadata.get("flag") or item.name


def kind_of(owner: type, name: str) -> type:
    """Return the type of an option: int, float, str, bool, tuple or dict."""
    hint = get_type_hints(owner)[name]
    kind = get_origin(hint) or hint
    if kind is Literal:
        return str
    return kind if isinstance(kind, type) else get_args(hint)[0]


def check_options(config: Any) -> None:
    """Check the type and range of every option in a config; raise BadValue for the first invalid one."""
    for item in fields(config):
        value = getattr(config, item.name)
        if value is None and item.metadata.get("auto"):
            continue  # set later, once the model is known
        kind = kind_of(type(config), item.name)
        name = flat_name(item)
        if kind is float and type(value) is int:
            value = float(value)
            object.__setattr__(config, item.name, value)
        if kind is tuple and isinstance(value, (str, list)):
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(config, item.name, value)
        if type(value) is not kind:
            raise BadValue(f"{name} must be of type {_TYPE_NAMES.get(kind, kind.__name__)}, got {value!r}")
        _check_range(name, value, item.metadata)


_TYPE_NAMES = {str: "string", tuple: "list of strings", dict: "table", bool: "true or false"}


def _check_range(name: str, value: Any, limits: Any) -> None:
    choices = limits.get("choices")
    if choices and value not in choices:
        raise BadValue(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    low, high, above, below = (limits.get(key) for key in ("at_least", "at_most", "above", "below"))
    if low is not None and high is not None and not low <= value <= high:
        raise BadValue(f"{name} must be in [{low:g}, {high:g}], got {value}")
    if low is not None and not value >= low:
        raise BadValue(f"{name} must be at least {low:g}, got {value}")
    if high is not None and not value <= high:
        raise BadValue(f"{name} must be at most {high:g}, got {value}")
    if above is not None and not value > above:
        raise BadValue(f"{name} must be greater than {above:g}, got {value}")
    if below is not None and not value < below:
        raise BadValue(f"{name} must be less than {below:g}, got {value}")
    if isinstance(value, float) and limits.get("help") and not isfinite(value):
        raise BadValue(f"{name} must be a finite number, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    """Options for `losses.policy_loss`. The defaults are PPO's: a symmetric clip and a mean over tokens."""

    clip_low: float | None = 0.2  # the ratio is clipped at 1 - clip_low; None disables the lower clip
    clip_high: float | None = 0.2  # the ratio is clipped at 1 + clip_high; None disables the upper clip
    aggregate: Aggregate = "token"
    is_clip: float | None = None  # truncate importance weights of stale samples at this value
    is_mask: tuple[float, float] | None = None  # mask tokens whose importance weight is outside this interval
    kl_coef: float = 0.0  # coefficient of the KL to the reference model in the loss
    kl_estimator: KLEstimator = "k3"
    kl_straight_through: bool = False  # use the estimator's value and the gradient of k2
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        if self.clip_low is not None and not 0 <= self.clip_low <= 1:
            raise BadValue(f"clip_low must be in [0, 1] or None, got {self.clip_low}")
        if self.clip_high is not None and not self.clip_high >= 0:
            raise BadValue(f"clip_high must be at least 0 or None, got {self.clip_high}")
        if self.aggregate not in get_args(Aggregate):
            raise BadValue(f"aggregate must be one of {', '.join(get_args(Aggregate))}; got {self.aggregate!r}")
        if self.is_clip is not None and not self.is_clip > 0:
            raise BadValue(f"is_clip must be greater than 0 or None, got {self.is_clip}")
        if self.is_mask is not None and not 0 <= self.is_mask[0] < self.is_mask[1]:
            raise BadValue(f"is_mask must be (low, high) with 0 <= low < high, got {self.is_mask}")
        if self.kl_estimator not in get_args(KLEstimator):
            raise BadValue(f"kl_estimator must be one of {', '.join(get_args(KLEstimator))}; got {self.kl_estimator!r}")
        if not self.kl_coef >= 0:
            raise BadValue(f"kl_coef must be at least 0, got {self.kl_coef}")
        if self.kl_coef and self.kl_estimator == "k1" and not self.kl_straight_through:
            raise BadValue(
                "the gradient of the k1 estimator is zero on average, so k1 in the loss has no effect. "
                "Use k2 or k3, or kl_straight_through=True, or put the KL into the reward (kl_in='reward')"
            )

    @property
    def clips(self) -> bool:
        return self.clip_low is not None or self.clip_high is not None
