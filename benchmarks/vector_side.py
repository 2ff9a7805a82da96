"""Child process that runs one side of vector.py. It reads JSON commands, one per line, and returns measurements.

The interpreter must have either Palestra (`vector_side.py ours`) or GEM (`vector_side.py gem`) installed.
"""

from __future__ import annotations

import hashlib
import logging
import random
import sys
import time
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from sides import serve_commands

GUESS = "game:GuessTheNumber-v0-hard"
LONG = {"max_number": 10**9, "max_turns": 1_000}  # episodes hardly ever end, so that only steps are measured
ROUNDS = 64  # number of different action lists, which are used in rotation


def guesses(envs: int, highest: int = 50) -> list[list[str]]:
    rng = random.Random(0)
    return [[f"\\boxed{{{rng.randint(1, highest)}}}" for _ in range(envs)] for _ in range(ROUNDS)]


class Gem:
    """GEM's synchronous and asynchronous vector environments."""

    def __init__(self) -> None:
        import gem
        import gem.envs
        from gem.envs.game_env.guess_the_number import GuessTheNumberEnv

        logging.disable(logging.CRITICAL)

        class Sleepy(GuessTheNumberEnv):  # type: ignore[misc]
            def step(self, action: str) -> Any:
                time.sleep(0.05)
                return super().step(action)

        self.make_vec = gem.make_vec
        gem.register("bench:Sleepy", Sleepy, min_number=1, max_number=50, max_turns=7)
        self.vectors: dict[str, Any] = {}

    def cheap(self, backend: str, envs: int, long: bool, seconds: float) -> float:
        key = f"{backend} {envs} {long}"
        if key not in self.vectors:
            more = LONG if long else {}
            self.vectors[key] = self.make_vec([GUESS] * envs, async_mode=backend == "async", seed=0, **more)
            self.vectors[key].reset(seed=0)
        return lock_step(self.vectors[key].step, guesses(envs, 10**9 if long else 50), seconds, process_time)

    def slow(self, backend: str, seconds: float) -> float:
        key = f"slow {backend}"
        if key not in self.vectors:
            self.vectors[key] = self.make_vec([GUESS] * 63 + ["bench:Sleepy"], async_mode=True, seed=0)
            self.vectors[key].reset(seed=0)
        return lock_step(self.vectors[key].step, guesses(64), seconds, perf_counter)

    def transcripts(self, backend: str, runs: int) -> int:
        transcripts = set()
        for _ in range(runs):
            vec = self.make_vec([GUESS] * 64, async_mode=backend == "async", seed=0)
            transcripts.add(transcript(vec, 64))
        return len(transcripts)


class Ours:
    """Palestra's vector environments and a bare loop over environments."""

    def __init__(self) -> None:
        import palestra
        from palestra.vector import make_vec

        self.make = palestra.make
        self.make_vec = make_vec
        self.vectors: dict[str, Any] = {}
        self.rounds = 0

    def cheap(self, backend: str, envs: int, long: bool, seconds: float) -> float:
        key = f"{backend} {envs} {long}"
        if key not in self.vectors:
            more: dict[str, Any] = LONG if long else {}
            if backend == "bare":
                self.vectors[key] = Bare([self.make(GUESS, seed=i, **more) for i in range(envs)])
            else:
                self.vectors[key] = self.make_vec(GUESS, num_envs=envs, backend=backend, **more)
                self.vectors[key].reset()
        return lock_step(self.vectors[key].step, guesses(envs, 10**9 if long else 50), seconds, process_time)

    def slow(self, backend: str, seconds: float) -> float:
        key = f"slow {backend}"
        if key not in self.vectors:
            workers = {"workers": 2} if backend == "process" else {}
            ids = [self.sleepy if i == 63 else GUESS for i in range(64)]
            self.vectors[key] = self.make_vec(ids, backend=backend, **workers)
            self.vectors[key].reset()
            self.vectors[key].send(guesses(64)[0])
        vec, rounds, turn, count = self.vectors[key], guesses(64), 0, 0
        start = perf_counter()
        while perf_counter() - start < seconds:
            ready = vec.recv(min_ready=16)
            count += len(ready)
            turn += 1
            actions = rounds[turn % ROUNDS]
            vec.send({item.index: actions[item.index] for item in ready})
        return count / (perf_counter() - start)

    @property
    def sleepy(self) -> Any:
        from vector_envs import make_sleepy

        return make_sleepy

    def busy(self, backend: str, envs: int, seconds: float) -> float:
        from vector_envs import Busy, rounds_in

        self.rounds = self.rounds or rounds_in(0.001)
        key = f"busy {backend} {envs}"
        if key not in self.vectors:
            self.vectors[key] = self.make_vec(Busy, num_envs=envs, backend=backend, workers=2, rounds=self.rounds)
            self.vectors[key].reset()
        vec = self.vectors[key]
        if backend == "sync":
            return lock_step(vec.step, guesses(envs), seconds, process_time)
        # With two free cores, the time would be the busier worker's time plus the parent's.
        actions, steps = guesses(envs)[0], 0
        workers, parent = vec.call("cpu_seconds", indices=[0, 1]), process_time()
        end = perf_counter() + seconds
        while perf_counter() < end:
            vec.step(actions)
            steps += envs
        parent = process_time() - parent
        after = vec.call("cpu_seconds", indices=[0, 1])
        return steps / (max(b - a for a, b in zip(workers, after, strict=True)) + parent)

    def transcripts(self, backend: str, runs: int) -> str:
        """Return the distinct transcripts from all runs, separated by spaces."""
        transcripts = set()
        for run in range(runs):
            with self.make_vec(GUESS, num_envs=64, backend=backend, workers=1 + run % 3, seed=0) as vec:
                transcripts.add(transcript(vec, 64))
        return " ".join(sorted(transcripts))

    def faults(self, steps: int, seed: int) -> dict[str, Any]:
        """Run steps of which 1% raise, 0.1% hang and 0.1% exit their process; compare with a run in this process."""
        from vector_envs import Faulty

        rng = random.Random(seed)
        envs = 64
        script = [[draw_action(rng) for _ in range(steps // envs + 1)] for _ in range(envs)]
        sent = [0] * envs
        results: list[list[Any]] = [[] for _ in range(envs)]
        left, count = steps, {"raised": 0, "deadline": 0, "died": 0}
        start = perf_counter()
        with self.make_vec(Faulty, num_envs=envs, backend="process", workers=2, step_timeout=1.0) as vec:
            vec.reset()
            free = list(range(envs))
            while True:
                batch = [i for i in free if sent[i] < len(script[i])][:left]
                left -= len(batch)
                vec.send({i: script[i][sent[i]] for i in batch})
                for i in batch:
                    sent[i] += 1
                free = []
                for item in vec.recv(min_ready=8):
                    free.append(item.index)
                    results[item.index].append((item.observation, item.failure is None))
                    if item.failure is not None:
                        count[item.failure.cause] += 1
                if not free and not vec.in_flight:
                    break
        seconds = perf_counter() - start
        correct = 0
        with self.make_vec(Faulty, num_envs=envs) as plain:
            plain.reset()
            for i in range(envs):
                for at, action in enumerate(script[i][: sent[i]]):
                    safe = "raise" if action in ("hang", "exit") else action
                    outcome = plain.step({i: safe})
                    expected = (outcome.observations[0], "failure" not in outcome.infos[0])
                    correct += at < len(results[i]) and results[i][at] == expected
        return {"steps": sum(map(len, results)), "correct": correct, "seconds": seconds, **count}


def draw_action(rng: random.Random) -> str:
    at = rng.random()
    return "raise" if at < 0.01 else "hang" if at < 0.011 else "exit" if at < 0.012 else f"act {rng.randrange(9)}"


class Bare:
    """Plain loop over environments."""

    def __init__(self, envs: list[Any]) -> None:
        self.envs = envs
        for env in envs:
            env.reset()

    def step(self, actions: list[str]) -> Any:
        observations, rewards, terminations, truncations, infos = [], [], [], [], []
        for env, action in zip(self.envs, actions):  # noqa: B905
            observation, reward, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                observation, info = env.reset()
            observations.append(observation)
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
            infos.append(info)
        return observations, rewards, terminations, truncations, infos


def lock_step(step: Any, rounds: list[list[str]], seconds: float, clock: Callable[[], float]) -> float:
    """Return environment steps per second as measured by `clock`, over about `seconds` of wall time."""
    turn = 0
    step(rounds[0])
    end, start = perf_counter() + seconds, clock()
    while perf_counter() < end:
        step(rounds[turn % ROUNDS])
        turn += 1
    return turn * len(rounds[0]) / (clock() - start)


def transcript(vec: Any, envs: int) -> str:
    observations, _ = vec.reset(seed=1)
    text = hashlib.sha256(repr(observations).encode())
    for actions in guesses(envs)[:20]:
        observations, rewards, *_ = vec.step(actions)
        text.update(repr((observations, [float(reward) for reward in rewards])).encode())
    return text.hexdigest()


def main() -> None:
    side: Any = serve_commands(lambda: Ours() if sys.argv[1] == "ours" else Gem())
    for vec in getattr(side, "vectors", {}).values():
        if sys.argv[1] == "ours" and hasattr(vec, "close"):
            vec.close()


if __name__ == "__main__":
    main()
