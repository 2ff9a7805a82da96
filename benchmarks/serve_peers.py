"""Servers that serve.py starts and compares with Palestra's.

python serve_peers.py bare PORT           bare ASGI application with a constant response
python serve_peers.py starlette PORT      our dispatcher behind Starlette's routing and authentication
python serve_peers.py openenv PORT        OpenEnv with an echo environment (needs an interpreter with openenv-core)
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Any

import uvicorn

STEP = (
    b'{"seq":1,"observation":"Turn 1 of 9: the number is higher than 5.","reward":0.0,"terminated":false,'
    b'"truncated":false,"info":{"turn":1,"suffix":""}}'
)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Read a body and send a constant step result."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(STEP))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": STEP})


def serve_with_starlette(port: int) -> None:
    """Serve textcraft: like `palestra serve`, but with the step route under Starlette."""
    from starlette.applications import Starlette
    from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
    from starlette.middleware import Middleware
    from starlette.middleware.authentication import AuthenticationMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from palestra.remote.protocol import JSON, Fault, Step, decoder, encode_json, status_of
    from palestra.server import create_app
    from palestra.server.run import run_app
    from palestra.sockets import listen

    app = create_app(["textcraft:"], workers=os.cpu_count() or 1)
    decode = decoder(JSON, Step)

    class Backend(AuthenticationBackend):
        async def authenticate(self, conn: HTTPConnection) -> Any:
            conn.headers.get("authorization")
            return AuthCredentials(["client"]), SimpleUser("local")

    def set_result(future: asyncio.Future[Any], result: Any) -> None:
        if not future.done():
            future.set_result(result)

    async def step(request: Request) -> Response:
        body = decode(await request.body())
        body.session = request.path_params["session"]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        app.dispatcher.submit(body, request.user.display_name, JSON, partial(set_result, future))
        result = await future
        if isinstance(result, Fault):
            return Response(encode_json({"error": result}), status_of(result), media_type=JSON)
        return Response(result, media_type=JSON)

    routed = Starlette(
        routes=[Route("/v1/sessions/{session}/step", step, methods=["POST"])],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1"]),
            Middleware(AuthenticationMiddleware, backend=Backend()),
        ],
    )

    class Both:
        """Sends steps through Starlette and everything else through our application."""

        settings, dispatcher = app.settings, app.dispatcher

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            is_step = scope["type"] == "http" and scope["path"].endswith("/step")
            await (routed if is_step else app)(scope, receive, send)

    run_app(Both(), listen("127.0.0.1", port, backlog=2_048))  # type: ignore[arg-type]


def openenv() -> Any:
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class EchoAction(Action):  # type: ignore[misc, unused-ignore]
        message: str

    class EchoObservation(Observation):  # type: ignore[misc, unused-ignore]
        message: str

    class Echo(Environment):  # type: ignore[misc, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._state = State(episode_id="e", step_count=0)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> EchoObservation:  # noqa: ARG002
            return EchoObservation(message="go", done=False, reward=0.0)

        def step(self, action: EchoAction, timeout_s: float | None = None, **_: Any) -> EchoObservation:  # noqa: ARG002
            return EchoObservation(message=action.message, done=False, reward=0.0)

        @property
        def state(self) -> State:
            return self._state

    # OpenEnv resolves type annotations in the module's namespace.
    globals().update(EchoAction=EchoAction, EchoObservation=EchoObservation)
    return create_app(Echo, EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=256)


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "starlette":
        serve_with_starlette(port)
    else:
        uvicorn.run(bare if kind == "bare" else openenv(), port=port, log_level="error", access_log=False)
