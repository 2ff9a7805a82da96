"""Servers that serve.py measures against, started by it: a bare ASGI application, and OpenEnv with an echo environment.

python serve_peers.py bare PORT
python serve_peers.py openenv PORT        (under an interpreter that has openenv-core)
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

STEP = (
    b'{"seq":1,"observation":"Turn 1 of 9: the number is higher than 5.","reward":0.0,"terminated":false,'
    b'"truncated":false,"info":{"turn":1,"suffix":""}}'
)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Reads a body and answers with a step that never happened."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(STEP))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": STEP})


def openenv() -> Any:
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Said(Action):  # type: ignore[misc, unused-ignore]
        message: str

    class Heard(Observation):  # type: ignore[misc, unused-ignore]
        message: str

    class Echo(Environment):  # type: ignore[misc, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._state = State(episode_id="e", step_count=0)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:  # noqa: ARG002
            return Heard(message="go", done=False, reward=0.0)

        def step(self, action: Said, timeout_s: float | None = None, **_: Any) -> Heard:  # noqa: ARG002
            return Heard(message=action.message, done=False, reward=0.0)

        @property
        def state(self) -> State:
            return self._state

    globals().update(Said=Said, Heard=Heard)  # where annotations are looked up
    return create_app(Echo, Said, Heard, env_name="echo", max_concurrent_envs=256)


if __name__ == "__main__":
    app = bare if sys.argv[1] == "bare" else openenv()
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
