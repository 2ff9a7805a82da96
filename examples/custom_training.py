"""Train on a custom environment with a custom reward and a custom algorithm."""

import random
import sys

import palestra
from palestra.algorithms import Advantages, PolicyGradient, normalize, register, turn_returns


class Parity(palestra.Env):
    def reset(self, seed=None, options=None):
        self.number = random.Random(seed).randrange(10)
        return f"Is {self.number} even or odd? Reply \\boxed{{even}} or \\boxed{{odd}}.", {}

    def step(self, action):
        success = ("even", "odd")[self.number % 2] in action
        return "", float(success), True, False, {"success": success}

    def sample_random_action(self):  # used by the warm start of an untrained model
        return f"\\boxed{{{random.choice(['even', 'odd'])}}}"


class ShortReply(palestra.Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return step._replace(reward=step.reward - 0.001 * len(action))


@register
class Centered(PolicyGradient):
    name = "centered"

    def advantages(self, episodes):
        returns = turn_returns(episodes, gamma=self.config.gamma)
        returns, metrics = normalize(returns, [None] * len(episodes), scale=False)
        return Advantages(advantages=returns, metrics=metrics)


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    settings = {"steps": steps, "episodes": 128, "warm_start": 256, "max_tokens": 12, "out": "runs/parity"}
    run = palestra.train(env=Parity, wrappers=[ShortReply], algorithm="centered", **settings)
    print(f"success {run.first_success:.0%} -> {run.last_success:.0%}, model in {run.model_dir}")
