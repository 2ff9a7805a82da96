"""Train on a custom environment with a custom reward and a custom algorithm."""

import random
import sys

import palestra
from palestra.algorithms import Advantages, PolicyGradient, normalize, register, turn_returns


class Parity(palestra.Env):
    """Say whether a number is even or odd."""

    def reset(self, seed=None, options=None):
        self.number = random.Random(seed).randrange(100)
        return f"Is {self.number} even or odd? Reply \\boxed{{even}} or \\boxed{{odd}}.", {}

    def step(self, action):
        success = ("even", "odd")[self.number % 2] in action
        return "", float(success), True, False, {"success": success}

    def sample_random_action(self):  # for the warm start of an untrained model
        return f"\\boxed{{{random.choice(['even', 'odd'])}}}"


class ShortReply(palestra.Wrapper):
    """Subtract a cost per character from the reward."""

    def step(self, action):
        step = self.env.step(action)
        return step._replace(reward=step.reward - 0.001 * len(action))


@register
class Centered(PolicyGradient):
    """Subtract the mean return of the batch from every return."""

    name = "centered"

    def advantages(self, episodes):
        returns = turn_returns(episodes, gamma=self.config.gamma)
        rows, metrics = normalize(returns, [None] * len(episodes), scale=False)
        return Advantages(advantages=rows, metrics=metrics)


if __name__ == "__main__":
    run = palestra.train(
        env=Parity,
        wrappers=[ShortReply],
        algorithm="centered",
        steps=int(sys.argv[1]) if len(sys.argv) > 1 else 20,
        episodes=64,
        eval_episodes=32,
        warm_start=256,
        max_tokens=12,
        out="runs/parity",
    )
    print(f"success {run.first_success:.0%} -> {run.last_success:.0%}, model in {run.model_dir}")
