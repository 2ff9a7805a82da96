"""Warn about problems in a training run and their likely causes. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from palestra.training.config import TrainConfig

Row = Mapping[str, Any]

EDGE = 3  # number of steps at the start and at the end of a run whose means are compared
RECENT = 10  # number of recent steps in which an event is counted
MIN_EVENTS = 5  # minimum number of recent steps with an event for a warning
MAX_CUT_REPLIES = 0.2  # fraction of replies that reach the maximum length
MIN_ENTROPY = 0.1  # entropy, as a fraction of the initial one, below which a policy has stopped exploring
PLATEAU = 50  # number of steps in which the success rate does not rise
FLAT = 0.02  # change of the success rate between the first and the second half of these steps
ALMOST_SOLVED = 0.85  # success rate above which this is no problem
LOW_ENTROPY = 0.3  # entropy, as a fraction of the initial one, below which some actions may have no probability left
HIGHER_ENTROPY = 1.5  # factor by which the entropy grows
SOLVED = 0.5  # success rate above which a low or growing entropy is no problem
MAX_INVALID = 0.9  # fraction of invalid actions
MORE_INVALID = 0.2  # increase of the fraction of invalid actions
LONGER = 1.5  # factor by which replies grow
SHORTER = 0.6  # factor by which episodes become shorter
LITTLE_GAIN = 0.1  # increase of the success rate that does not justify longer replies or shorter episodes
MAX_KL = 1.0  # KL per token of a step, in nats
SMALL_KL = 0.02  # KL of a step, as a fraction of its target, that hardly changes the policy
MEMORIZED = 0.1  # distance between the intervals of the success rates in training and in evaluation


class Warnings:
    """Checks the metrics after each step; every warning is returned once."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._given: set[str] = set()

    def check(self, rows: Sequence[Row]) -> list[str]:
        """Return the new warnings; `rows` contains the metrics of all steps so far."""
        checks: Mapping[str, Callable[[Sequence[Row]], str | None]] = {
            "cut": self._cut_replies,
            "entropy": self._entropy_collapse,
            "noise": self._entropy_growth,
            "plateau": self._plateau,
            "unknown format": self._unknown_format,
            "signal": self._no_signal,
            "environment": self._unsolved_environments,
            "format": self._lost_format,
            "rules": self._broken_rules,
            "length": self._longer_replies,
            "early end": self._shorter_episodes,
            "kl": self._kl_spikes,
            "rate": self._small_updates,
            "memory": self._memorization,
        }
        trained = [row for row in rows if row["step"] >= 0]
        messages = {
            name: check(rows if name == "cut" else trained) for name, check in checks.items() if name not in self._given
        }
        new = {name: text for name, text in messages.items() if text}
        self._given |= new.keys()
        return [f"warning: {text}" for text in new.values()]

    def _cut_replies(self, rows: Sequence[Row]) -> str | None:
        row = rows[-1]
        cut = max(row.get("cut_replies", 0.0), row.get("eval_cut_replies", 0.0))
        if not self._config.model.trained or cut <= MAX_CUT_REPLIES:
            return None
        return (
            f"{cut:.0%} of the replies were cut at {self._config.sampling.max_tokens} tokens, so their actions are "
            "often missing. Raise --max-tokens, or make the model reply briefly with --thinking off or --system"
        )

    def _entropy_collapse(self, rows: Sequence[Row]) -> str | None:
        entropy, success = _change(rows, "entropy"), _change(rows, "success")
        if entropy is None or success is None or success[1] > SOLVED or entropy[1] > MIN_ENTROPY * entropy[0]:
            return None
        return (
            f"the entropy per token fell from {entropy[0]:.2g} to {entropy[1]:.2g}, but only {success[1]:.0%} of the "
            "episodes succeed: the policy has stopped exploring. Raise --entropy or --entropy-floor, or lower "
            "--target-kl"
        )

    def _entropy_growth(self, rows: Sequence[Row]) -> str | None:
        entropy, success = _change(rows, "entropy"), _change(rows, "success")
        if entropy is None or success is None or success[1] > min(SOLVED, success[0] + LITTLE_GAIN):
            return None
        if entropy[1] < HIGHER_ENTROPY * entropy[0]:
            return None
        return (
            f"the entropy per token rose from {entropy[0]:.2g} to {entropy[1]:.2g}, but the success rate only changed "
            f"from {success[0]:.0%} to {success[1]:.0%}: the entropy bonus is stronger than the rewards, and replies "
            "become random. Use easier tasks, partial credit or a longer warm start, or lower --entropy"
        )

    def _plateau(self, rows: Sequence[Row]) -> str | None:
        """Check whether success no longer rises while the entropy is low and --kl-unsolved is off."""
        recent = [row["success"] for row in rows[-PLATEAU:] if "success" in row]
        entropy = _change(rows, "entropy")
        unused = getattr(self._config.algorithm.config, "kl_unsolved", None) == 0
        if not unused or len(recent) < PLATEAU or entropy is None or entropy[1] > LOW_ENTROPY * entropy[0]:
            return None
        earlier, success = fmean(recent[: PLATEAU // 2]), fmean(recent[PLATEAU // 2 :])
        if not SOLVED < success < ALMOST_SOLVED or abs(success - earlier) > FLAT:
            return None
        return (
            f"the success rate has stayed at {success:.0%} for {PLATEAU} steps, and the entropy per token fell from "
            f"{entropy[0]:.2g} to {entropy[1]:.2g}: where episodes fail, the policy may no longer sample the actions "
            "that would help. In a new run, try --kl-unsolved 0.1, or check whether all tasks can be solved"
        )

    def _unknown_format(self, rows: Sequence[Row]) -> str | None:
        recent = rows[-2 * EDGE :]
        if len(recent) < 2 * EDGE or any(row.get("success", 1.0) for row in rows):
            return None
        invalid = fmean(row.get("invalid_actions", 0.0) for row in recent)
        if invalid < MAX_INVALID:
            return None
        errors = fmean(row.get("format_errors", invalid) for row in recent)  # older rows do not have it
        unknown = "the action format" if errors > invalid / 2 else "which actions are allowed"
        return (
            f"{invalid:.0%} of the actions in the last {len(recent)} steps were invalid, and no episode has succeeded: "
            f"the model does not know {unknown}. Let it imitate more episodes with --warm-start or --warm-player "
            "expert, or use a pretrained model"
        )

    def _no_signal(self, rows: Sequence[Row]) -> str | None:
        recent = rows[-RECENT:]
        without = [row for row in recent if not row.get("signal", 1.0)]
        success = without[-1].get("success", 0.0) if without else 1.0
        if len(without) < MIN_EVENTS or success == 1.0:
            return None
        return (
            f"no learning signal in {len(without)} of the last {len(recent)} steps: all episodes that are compared "
            f"have the same return ({success:.0%} succeed). Use easier tasks, partial credit, a warm start or more "
            "--episodes"
        )

    def _unsolved_environments(self, rows: Sequence[Row]) -> str | None:
        recent = rows[-RECENT:]
        keys = [f"success/{name}" for name in self._config.env.weights]
        if len(keys) < 2 or len(recent) < RECENT:
            return None
        unsolved = [key for key in keys if not any(row.get(key, 1.0) for row in recent)]
        if not unsolved or len(unsolved) == len(keys):  # if none is solved, other checks apply
            return None
        names = " and ".join(key.removeprefix("success/") for key in unsolved)
        return (
            f"no episode in {names} succeeded in the last {len(recent)} steps, while episodes in other environments "
            "did. Give it more episodes with --env NAME=WEIGHT, partial credit or a longer --warm-start, or train on "
            "it alone first"
        )

    def _lost_format(self, rows: Sequence[Row]) -> str | None:
        errors = _change(rows, "format_errors")
        if errors is None or errors[1] < errors[0] + MORE_INVALID:
            return None
        return (
            f"the fraction of actions that cannot be parsed rose from {errors[0]:.0%} to {errors[1]:.0%}: the model "
            "loses the action format. Lower --lr or --target-kl, or keep it close to the initial model with --kl 0.01"
        )

    def _broken_rules(self, rows: Sequence[Row]) -> str | None:
        invalid, errors, success = (_change(rows, key) for key in ("invalid_actions", "format_errors", "success"))
        if invalid is None or errors is None or success is None:
            return None
        first, last = invalid[0] - errors[0], invalid[1] - errors[1]
        if last < first + MORE_INVALID or success[1] > min(SOLVED, success[0] + LITTLE_GAIN):
            return None
        return (
            f"the fraction of actions that violate the rules rose from {first:.0%} to {last:.0%}, but the success rate "
            f"only changed from {success[0]:.0%} to {success[1]:.0%}: such actions may cost too little. Lower their "
            "reward in the environment, or lower --entropy"
        )

    def _longer_replies(self, rows: Sequence[Row]) -> str | None:
        length, success = _change(rows, "tokens_per_reply"), _change(rows, "success")
        if length is None or success is None or length[1] < LONGER * length[0] or success[1] > success[0] + LITTLE_GAIN:
            return None
        return (
            f"replies grew from {length[0]:.1f} to {length[1]:.1f} tokens, but the success rate only changed from "
            f"{success[0]:.0%} to {success[1]:.0%}: the reward or the entropy bonus may favor longer text. Lower "
            "--max-tokens or --entropy, or use --aggregate constant"
        )

    def _shorter_episodes(self, rows: Sequence[Row]) -> str | None:
        turns, success = _change(rows, "turns_per_episode"), _change(rows, "success")
        if turns is None or success is None or turns[1] > SHORTER * turns[0]:
            return None
        if success[1] > min(SOLVED, success[0] + LITTLE_GAIN):
            return None
        return (
            f"episodes became shorter, from {turns[0]:.1f} to {turns[1]:.1f} turns, but the success rate only changed "
            f"from {success[0]:.0%} to {success[1]:.0%}: the agent gives up or fails early. Check whether the "
            "environment rewards this, for example in tasks that can be answered at once, or whether turns are costly"
        )

    def _kl_spikes(self, rows: Sequence[Row]) -> str | None:
        recent = rows[-RECENT:]
        limited = sum(bool(row.get("backtracked")) for row in recent)
        largest = max((row.get("step_kl", 0.0) for row in recent), default=0.0)
        advice = "Lower --lr or --max-grad-norm, or use more --minibatches"
        if largest > MAX_KL:
            return f"a step changed the policy by a KL of {largest:.2g} per token. {advice}, and set --kl-backtrack"
        success = _change(rows, "success")
        learns = success is not None and success[1] > success[0] + LITTLE_GAIN
        if limited >= MIN_EVENTS and not learns:  # close to a solution, the adaptive limits are small
            return f"the KL limit --kl-backtrack was exceeded in {limited} of the last {len(recent)} steps. {advice}"
        return None

    def _small_updates(self, rows: Sequence[Row]) -> str | None:
        """Check pretrained models, for which the highest learning rate depends on the size or was given."""
        recent = [row for row in rows[-RECENT:] if "step_kl" in row]
        success = _change(rows, "success")
        target = getattr(self._config.algorithm.config, "target_kl", 0.0)
        highest = self._config.optimizer.lr
        if not self._config.model.trained or not target or success is None:
            return None
        if (
            len(rows) < RECENT
            or len(recent) < MIN_EVENTS
            or any(row.get("lr", highest) < 0.99 * highest for row in recent)
        ):
            return None
        if success[1] > min(SOLVED, success[0] + LITTLE_GAIN):
            return None
        kl = fmean(row["step_kl"] for row in recent)
        if kl > SMALL_KL * target:
            return None
        return (
            f"with the highest learning rate, {highest:.2g}, a step changes the policy by a KL of only {kl:.1g} per "
            f"token, and the success rate only changed from {success[0]:.0%} to {success[1]:.0%}: the updates are too "
            f"small for this model. Raise --lr, for example to {10 * highest:.2g}; --target-kl {target:g} limits it"
        )

    def _memorization(self, rows: Sequence[Row]) -> str | None:
        """Compare training and evaluation after the last two evaluations, if both have the same environments."""
        evaluated = [row for row in rows if "success_low" in row and "eval_success_high" in row][-2:]
        different = self._config.eval.env or self._config.eval.kwargs or self._config.env.curriculum
        if different or len(evaluated) < 2 or rows[-1] is not evaluated[-1]:
            return None
        if any(row["success_low"] < row["eval_success_high"] + MEMORIZED for row in evaluated):
            return None
        row = evaluated[-1]
        return (
            f"{row['success']:.0%} of the training episodes succeed, but only {row['eval_success']:.0%} of those in "
            "the evaluation: the model memorizes its training tasks. Train on more tasks or environments, or start "
            "from a pretrained model"
        )


def _change(rows: Sequence[Row], key: str) -> tuple[float, float] | None:
    """Return the means of a metric over the first and the last steps; None before enough steps have it."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if len(values) < 2 * EDGE:
        return None
    return fmean(values[:EDGE]), fmean(values[-EDGE:])
