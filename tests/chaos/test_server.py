"""Chaos in the environment server: workers are killed and connections fail while several clients play."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from random import Random
from typing import Any

import palestra
from palestra.errors import InfrastructureError
from palestra.server.fault_injection import FaultyProxy
from tests.chaos.rounds import rounds
from tests.server.servers import GUESS, Server, serving

CLIENTS, EPISODES = 3, 20


class Player(threading.Thread):
    """Plays episodes through a faulty connection, and compares every result with a local environment."""

    def __init__(self, url: str, rng: Random) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.rng = rng
        self.wrong: list[Any] = []
        self.finished = self.lost = 0
        self.start()

    def run(self) -> None:
        transport = self.rng.choice(["socket", "http"])
        try:
            with palestra.make(GUESS) as here, self._connect(transport) as there:
                while self.finished < EPISODES:
                    try:
                        self._play(here, there)
                        self.finished += 1
                    except InfrastructureError:  # a fault raises this error and never becomes a reward
                        self.lost += 1
                        assert self.lost < 100
        except Exception as err:  # noqa: BLE001  # the test checks it
            self.wrong.append(err)

    def _connect(self, transport: str) -> palestra.Env:
        return palestra.make(f"{self.url}/{GUESS}", recover="replay", transport=transport, timeout=5, patience=20)

    def _play(self, here: palestra.Env, there: palestra.Env) -> None:
        seed = self.rng.getrandbits(40)
        self._compare(here.reset(seed=seed), there.reset(seed=seed))
        done = False
        while not done:
            action = here.sample_random_action()
            step = here.step(action)
            self._compare(step, there.step(action))
            done = step.done

    def _compare(self, here: Any, there: Any) -> None:
        if tuple(here) != tuple(there):
            self.wrong.append((here, there))


def kill_workers(server: Server, rng: Random, stop: threading.Event) -> None:
    while not stop.wait(rng.uniform(0.05, 0.5)):
        workers = server.workers()
        if len(workers) == 2:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers).pid, signal.SIGKILL)


def test_server() -> None:
    """Check that clients get either the same results as local environments or an infrastructure failure."""
    for rng in rounds("server"):
        faults = {name: rng.uniform(0.0, 0.05) for name in ("drop", "duplicate", "reorder", "garbage", "delay")}
        with (
            serving(GUESS, workers=2) as server,
            FaultyProxy(server.url, seed=rng.getrandbits(32), seconds=0.05, **faults) as faulty,
        ):
            stop = threading.Event()
            killer = threading.Thread(target=kill_workers, args=(server, Random(rng.random()), stop))
            killer.start()
            players = [Player(faulty.url, Random(rng.random())) for _ in range(CLIENTS)]
            for player in players:
                player.join(120)
            stop.set()
            killer.join()
            assert [player.wrong for player in players] == [[]] * CLIENTS
            assert [player.finished for player in players] == [EPISODES] * CLIENTS
            assert server.process.poll() is None
