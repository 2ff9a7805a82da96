"""Vector backend that runs envs as sessions on Palestra servers.

The server resets the envs automatically and derives their seeds in the same way as a local backend. If a session is
lost, its env is reported as failed and continues with the next episode in a new session.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from palestra.errors import BadValue, EnvFailed, PalestraError, SessionLost, UsageError
from palestra.remote import protocol
from palestra.remote.address import Address, parse, resolve_token
from palestra.remote.errors import BUSY, NoResponse, error_from
from palestra.remote.socket_transport import SocketTransport, shared_socket
from palestra.vector.backend import Backend
from palestra.workers.env_runner import episode_seed
from palestra.workers.types import CALL, NO_REWARD, RESET, STEP, Autoreset, Cause, Command, EnvFailure, Reply

CALL_TIMEOUT = 300.0  # maximum seconds per call if `step_timeout` is not set
MARGIN = 5.0  # additional seconds to wait, so that the server can report which steps timed out
MAX_STEPS = 1_024  # maximum number of steps per request
_PLAYERS = {"sample_random_action": "random", "expert_action": "expert", "example_action": "example"}
# Causes of lost sessions for which the env is responsible, and the corresponding causes of an EnvFailure.
_CAUSES: dict[str, Cause] = {"deadline": "deadline", "crashed": "died"}


class SessionState:
    """State of one env and its session on the server."""

    __slots__ = (
        "action",
        "address",
        "episode",
        "failure",
        "index",
        "kwargs",
        "pending_reset",
        "root",
        "seq",
        "session",
        "transport",
    )

    def __init__(
        self, index: int, address: Address, kwargs: dict[str, Any], root: int, transport: SocketTransport
    ) -> None:
        self.index = index
        self.address = address
        self.kwargs = kwargs
        self.root = root
        self.transport = transport
        self.session = ""
        self.seq = 0
        self.episode = -1
        self.pending_reset = False  # whether the next step starts an episode
        self.failure: EnvFailure | None = None  # failure to report with the next reply
        self.action: str | None = None


class RemoteBackend(Backend):
    def __init__(
        self,
        urls: Sequence[str],
        kwargs: Sequence[Mapping[str, Any]],
        roots: Sequence[int],
        autoreset: Autoreset,
        *,
        step_timeout: float | None = None,
        token: str | None = None,
        patience: float = 30.0,
        lease: float | None = None,
    ) -> None:
        self._autoreset: Autoreset = autoreset
        self._timeout = step_timeout or CALL_TIMEOUT
        self._lease = lease
        self._replied = threading.Condition()
        self._done: list[Reply] = []
        self._in_flight = 0
        self._watchers: list[tuple[AbstractEventLoop, Callable[[], None]]] = []
        self._closed = False
        token = resolve_token(token)
        addresses = [parse(url) for url in urls]
        self._envs = [
            SessionState(i, address, dict(own), root, shared_socket(address.socket, address.base, token, patience))
            for i, (address, own, root) in enumerate(zip(addresses, kwargs, roots, strict=True))
        ]
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise

    def _open_all(self) -> None:
        left = len(self._envs)
        error: PalestraError | None = None
        ready = threading.Event()

        def opened(env: SessionState, result: dict[str, Any] | PalestraError) -> None:
            nonlocal left, error
            if isinstance(result, PalestraError):
                error = error or result
            else:
                env.session, env.seq = result["session"], 0
            left -= 1
            if left == 0:
                ready.set()

        for env in self._envs:
            env.transport.send(self._create_request(env), partial(opened, env), CALL_TIMEOUT)
        ready.wait()
        if error is not None:
            raise error

    def _create_request(self, env: SessionState) -> protocol.Create:
        return protocol.Create(
            env=env.address.env,
            kwargs=env.kwargs,
            lease=self._lease,
            autoreset=self._autoreset,
            root=env.root,
            episode=env.episode,
        )

    # Commands.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        self._in_flight += len(commands)
        together: dict[SocketTransport, list[SessionState]] = {}
        for index, kind, payload in commands:
            env = self._envs[index]
            if kind == STEP:
                if whole and env.session and not env.pending_reset:
                    env.action = payload
                    together.setdefault(env.transport, []).append(env)
                else:
                    self._step(env, payload)
            elif kind == RESET:
                root, options = payload
                if root is not None:
                    env.root, env.episode = root, -1
                env.action = None
                self._start_episode(env, root, options)
            elif kind == CALL:
                self._call(env, *payload)

        for transport, envs in together.items():
            for start in range(0, len(envs), MAX_STEPS):
                self._step_together(transport, envs[start : start + MAX_STEPS])

    def _step(self, env: SessionState, action: str) -> None:
        env.action = action
        if env.pending_reset:
            env.pending_reset = False
            self._start_episode(env, None, None)
            return
        request = protocol.Step(session=env.session, action=_encodable(action), seq=env.seq)
        env.transport.send(request, partial(self._on_result, env), self._timeout)

    def _step_together(self, transport: SocketTransport, envs: list[SessionState]) -> None:
        """Send all steps in one request. Used if the caller waits for all of them."""

        def on_rows(result: dict[str, Any] | PalestraError) -> None:
            if isinstance(result, PalestraError):
                for env in envs:
                    self._failed(env, result)
                return
            replies = []
            for index, *row in result["rows"]:
                env = envs[index]
                env.seq += 1
                replies.append(self._reply(env, *row))
            if replies:
                self._add(*replies)
            for missed in result["errors"]:
                env, fault = envs[missed["index"]], msgspec.convert(missed["error"], protocol.Fault)
                if fault.code in BUSY:  # the server did not start the step
                    self._step(env, env.action or "")
                elif fault.code == "not_yet":
                    self._failed(env, NoResponse(f"no response from {transport.server} in time"))
                else:
                    self._failed(env, error_from(fault, transport.server))

        steps = [(env.session, env.seq, _encodable(env.action or "")) for env in envs]
        transport.send(protocol.Steps(steps=steps, timeout=self._timeout), on_rows, self._timeout + MARGIN)

    def _start_episode(self, env: SessionState, root: int | None, options: dict[str, Any] | None) -> None:
        """Start the next episode, or the first one for the root seed `root`. Reopen a lost session."""
        if not env.session:
            self._reopen(env, options)
            return
        request = protocol.Reset(session=env.session, seed=root, options=options, seq=env.seq)
        env.transport.send(request, partial(self._on_result, env), self._timeout)

    def _reopen(self, env: SessionState, options: dict[str, Any] | None) -> None:
        def opened(result: dict[str, Any] | PalestraError) -> None:
            if isinstance(result, PalestraError):
                self._failed(env, result)
                return
            env.session, env.seq = result["session"], 0
            self._start_episode(env, None, options)

        env.transport.send(self._create_request(env), opened, CALL_TIMEOUT)

    def _call(self, env: SessionState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        request: protocol.Request
        if name in _PLAYERS:
            request, field = protocol.SuggestAction(session=env.session, player=_PLAYERS[name]), "action"
        elif name == "player_rng.seed":
            request, field = protocol.SuggestAction(session=env.session, player="random", seed=int(args[0])), "action"
        elif name == "render":
            mode = kwargs.get("mode", args[0] if args else "text")
            request, field = protocol.Render(session=env.session, mode=mode), "render"
        else:
            supported = ", ".join([*_PLAYERS, "render"])
            self._called(env, None, BadValue(f"envs on a server support only the calls {supported}; got {name!r}"))
            return

        def on_value(result: dict[str, Any] | PalestraError) -> None:
            if isinstance(result, PalestraError):
                self._called(env, None, result)
            else:
                self._called(env, result[field], None)

        env.transport.send(request, on_value, self._timeout)

    # Response handlers, which run in the transport's background thread.

    def _called(self, env: SessionState, value: Any, error: PalestraError | None) -> None:
        info = {} if error is None else {"failure": self._failure(env, error)}
        self._add((env.index, value, 0.0, False, False, info, env.episode))

    def _on_result(self, env: SessionState, result: dict[str, Any] | PalestraError) -> None:
        if isinstance(result, PalestraError):
            self._failed(env, result)
            return
        env.seq = result["seq"] + 1
        self._add(self._reply(env, *(result[name] for name in protocol.OUTCOME)))

    def _reply(
        self,
        env: SessionState,
        observation: Any,
        reward: float | None,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
        episode: int,
    ) -> Reply:
        env.episode = episode
        failure = info.get("failure")
        if failure is not None:
            info["failure"] = replace(EnvFailure(**failure), index=env.index)
        if env.failure is not None:  # failure in the previous session
            info["failure"], env.failure = env.failure, None
            reward, truncated = NO_REWARD, True
        return env.index, observation, NO_REWARD if reward is None else reward, terminated, truncated, info, episode

    def _failed(self, env: SessionState, error: PalestraError) -> None:
        """Report a failed call, which ends the episode. In the `same_step` autoreset mode, start the next one."""
        seq = getattr(error, "seq", None)
        if seq is not None:
            env.seq = seq + 1
        if isinstance(error, SessionLost | NoResponse):
            if isinstance(error, NoResponse) and env.session:
                self._close_session(env)
            env.session = ""
        failure = self._failure(env, error)
        first = isinstance(error, SessionLost) and env.failure is None
        if self._autoreset == "same_step" and first:
            env.failure = failure
            self._start_episode(env, None, None)
            return
        failure, env.failure = env.failure or failure, None
        env.pending_reset = self._autoreset != "disabled"
        self._add((env.index, "", NO_REWARD, False, True, {"failure": failure}, env.episode))

    def _failure(self, env: SessionState, error: PalestraError) -> EnvFailure:
        cause: Cause = "raised"
        if isinstance(error, SessionLost):
            cause = _CAUSES.get(error.cause, "lost")
        elif isinstance(error, NoResponse):
            cause = "deadline"
        return EnvFailure(
            index=env.index,
            env=env.address.env,
            boundary=getattr(error, "boundary", "env"),
            cause=cause,
            kind=type(error).__name__,
            message=str(error),
            seed=episode_seed(env.root, env.episode) if env.episode >= 0 else None,
            action=env.action,
        )

    def _add(self, *replies: Reply) -> None:
        with self._replied:
            self._done += replies
            self._replied.notify_all()
            watchers = list(self._watchers)
        for loop, callback in watchers:
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # the loop is closed
                continue

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        with self._replied:
            while not self._done and self._in_flight > 0:
                left = None if end is None else end - monotonic()
                if left is not None and left <= 0:
                    break
                self._replied.wait(left)
            replies, self._done = self._done, []
        self._in_flight -= len(replies)
        return replies

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        watcher = (loop, callback)
        with self._replied:
            self._watchers.append(watcher)
            if self._done:
                loop.call_soon(callback)

        def stop() -> None:
            with self._replied:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return stop

    def _close_session(self, env: SessionState) -> None:
        try:
            env.transport.close_session(env.session)
        except (EnvFailed, UsageError):
            return  # the server will close the session when its lease expires

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for env in self._envs:
            if env.session:
                self._close_session(env)
                env.session = ""


def _encodable(action: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded as UTF-8."""
    return action if action.isascii() else action.encode("utf-8", "replace").decode()
