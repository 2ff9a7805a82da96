"""Run OpenEnv's server with an echo environment, in an interpreter with OpenEnv installed."""

import sys
import time
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app  # type: ignore[import-not-found, unused-ignore]
from openenv.core.env_server.interfaces import Environment  # type: ignore[import-not-found, unused-ignore]
from openenv.core.env_server.types import (  # type: ignore[import-not-found, unused-ignore]
    Action,
    Observation,
    State,
)


class EchoAction(Action):  # type: ignore[misc, unused-ignore]
    message: str


class EchoObservation(Observation):  # type: ignore[misc, unused-ignore]
    message: str


class Echo(Environment):  # type: ignore[misc, unused-ignore]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="e", step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> EchoObservation:
        self._state = State(episode_id=episode_id, step_count=0)
        return EchoObservation(message=f"seed {seed}", done=False, reward=None)

    def step(self, action: EchoAction, timeout_s: float | None = None, **_: Any) -> EchoObservation:
        self._state.step_count += 1
        if action.message == "raise":
            raise RuntimeError("the step failed")
        if action.message == "sleep":
            time.sleep(6.0)
        over = action.message == "end"
        return EchoObservation(
            message=f"{self._state.step_count}: {action.message}", done=over, reward=1.0 if over else 0.0
        )

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    app = create_app(Echo, EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=8)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
