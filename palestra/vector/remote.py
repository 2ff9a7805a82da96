"""RemoteBackend: the envs of a vector as sessions on servers; every env answers for itself, none waits for another.

The server plays autoreset for each session, from the same root seed that a pool in this process would use. A session
that is lost is a failure of its env, and a new one goes on with the next episode.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from palestra.errors import BadValue, EnvFailed, PalestraError, SessionLost, UsageError
from palestra.remote import protocol
from palestra.remote.address import Address, token_of
from palestra.remote.errors import BUSY, NoAnswer, error_of
from palestra.remote.socket_transport import Line, line_to
from palestra.vector.backend import Backend
from palestra.workers.env_runner import episode_seed
from palestra.workers.types import CALL, NO_REWARD, RESET, STEP, Autoreset, Cause, Command, EnvFailure, Reply

CALL_TIMEOUT = 300.0  # seconds, where no `step_timeout` is given
MARGIN = 5.0  # seconds more than the server may take for a whole vector, which tells whose step is not done
MOST_TOGETHER = 1_024  # steps in one request
_PLAYERS = {"sample_random_action": "random", "expert_action": "expert", "example_action": "example"}
_CAUSES: dict[str, Cause] = {"deadline": "deadline", "crashed": "died"}  # any other end was no fault of the env's


class Far:
    """One env of the vector, as this side knows it."""

    __slots__ = (
        "action",
        "address",
        "episode",
        "failure",
        "index",
        "kwargs",
        "line",
        "pending",
        "root",
        "seq",
        "session",
    )

    def __init__(self, index: int, address: Address, kwargs: dict[str, Any], root: int, line: Line) -> None:
        self.index = index
        self.address = address
        self.kwargs = kwargs
        self.root = root
        self.line = line
        self.session = ""
        self.seq = 0
        self.episode = -1
        self.pending = False  # the next step begins an episode
        self.failure: EnvFailure | None = None  # to be told with the next reply
        self.action: str | None = None


class RemoteBackend(Backend):
    def __init__(
        self,
        addresses: Sequence[Address],
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
        self._news = threading.Condition()
        self._done: list[Reply] = []
        self._under_way = 0
        self._watchers: list[tuple[AbstractEventLoop, Callable[[], None]]] = []
        self._closed = False
        token = token_of(token)
        self._envs = [
            Far(i, address, dict(own), root, line_to(address.socket, address.base, token, patience))
            for i, (address, own, root) in enumerate(zip(addresses, kwargs, roots, strict=True))
        ]
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise

    def _open_all(self) -> None:
        left = len(self._envs)
        problem: PalestraError | None = None
        ready = threading.Event()

        def opened(env: Far, told: dict[str, Any] | PalestraError) -> None:
            nonlocal left, problem
            if isinstance(told, PalestraError):
                problem = problem or told
            else:
                env.session, env.seq = told["session"], 0
            left -= 1
            if left == 0:
                ready.set()

        for env in self._envs:
            env.line.ask(self._creation(env), lambda told, env=env: opened(env, told), CALL_TIMEOUT)  # type: ignore[misc]
        ready.wait()
        if problem is not None:
            raise problem

    def _creation(self, env: Far) -> protocol.Create:
        return protocol.Create(
            env=env.address.env,
            kwargs=env.kwargs,
            lease=self._lease,
            autoreset=self._autoreset,
            root=env.root,
            episode=env.episode,
        )

    # Commands out.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        self._under_way += len(commands)
        together: dict[Line, list[Far]] = {}
        for index, kind, payload in commands:
            env = self._envs[index]
            if kind == STEP:
                if whole and env.session and not env.pending:
                    env.action = payload
                    together.setdefault(env.line, []).append(env)
                else:
                    self._step(env, payload)
            elif kind == RESET:
                root, options = payload
                if root is not None:
                    env.root, env.episode = root, -1
                env.action = None
                self._begin(env, root, options)
            elif kind == CALL:
                self._call(env, *payload)

        for line, envs in together.items():
            for start in range(0, len(envs), MOST_TOGETHER):
                self._step_together(line, envs[start : start + MOST_TOGETHER])

    def _step(self, env: Far, action: str) -> None:
        env.action = action
        if env.pending:
            env.pending = False
            self._begin(env, None, None)
            return
        ask = protocol.Step(session=env.session, action=_sendable(action), seq=env.seq)
        env.line.ask(ask, lambda told: self._told(env, told), self._timeout)

    def _step_together(self, line: Line, envs: list[Far]) -> None:
        """As one request with one answer, for who waits for all of them anyway."""

        def told(result: dict[str, Any] | PalestraError) -> None:
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
                if fault.code in BUSY:  # nothing was begun
                    self._step(env, env.action or "")
                elif fault.code == "not_yet":
                    self._failed(env, NoAnswer(f"no answer from {line.where} in time"))
                else:
                    self._failed(env, error_of(fault, line.where))

        steps = [(env.session, env.seq, _sendable(env.action or "")) for env in envs]
        line.ask(protocol.Steps(steps=steps, timeout=self._timeout), told, self._timeout + MARGIN)

    def _begin(self, env: Far, root: int | None, options: dict[str, Any] | None) -> None:
        """An episode: the next one, or the first of `root`; on a new session where the old one is lost."""
        if not env.session:
            self._renew(env, options)
            return
        ask = protocol.Reset(session=env.session, seed=root, options=options, seq=env.seq)
        env.line.ask(ask, lambda told: self._told(env, told), self._timeout)

    def _renew(self, env: Far, options: dict[str, Any] | None) -> None:
        def opened(told: dict[str, Any] | PalestraError) -> None:
            if isinstance(told, PalestraError):
                self._failed(env, told)
                return
            env.session, env.seq = told["session"], 0
            self._begin(env, None, options)

        env.line.ask(self._creation(env), opened, CALL_TIMEOUT)

    def _call(self, env: Far, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ask: protocol.Request
        if name in _PLAYERS:
            ask, field = protocol.SuggestAction(session=env.session, player=_PLAYERS[name]), "action"
        elif name == "player_rng.seed":
            ask, field = protocol.SuggestAction(session=env.session, player="random", seed=int(args[0])), "action"
        elif name == "render":
            mode = kwargs.get("mode", args[0] if args else "text")
            ask, field = protocol.Render(session=env.session, mode=mode), "render"
        else:
            self._called(env, None, BadValue(f"{name!r} cannot be called on a server; its players and render can"))
            return

        def told(result: dict[str, Any] | PalestraError) -> None:
            if isinstance(result, PalestraError):
                self._called(env, None, result)
            else:
                self._called(env, result[field], None)

        env.line.ask(ask, told, self._timeout)

    # Answers in; these run in the line's thread.

    def _called(self, env: Far, value: Any, error: PalestraError | None) -> None:
        info = {} if error is None else {"failure": self._failure(env, error)}
        self._add((env.index, value, 0.0, False, False, info, env.episode))

    def _told(self, env: Far, told: dict[str, Any] | PalestraError) -> None:
        if isinstance(told, PalestraError):
            self._failed(env, told)
            return
        env.seq = told["seq"] + 1
        self._add(self._reply(env, *(told[name] for name in protocol.OUTCOME)))

    def _reply(
        self,
        env: Far,
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
        if env.failure is not None:  # of the session before this one
            info["failure"], env.failure = env.failure, None
            reward, truncated = NO_REWARD, True
        return env.index, observation, NO_REWARD if reward is None else reward, terminated, truncated, info, episode

    def _failed(self, env: Far, error: PalestraError) -> None:
        """A call has no outcome: the episode is lost, and with `same_step` the next one begins at once."""
        counted = getattr(error, "seq", None)
        if counted is not None:
            env.seq = counted + 1
        if isinstance(error, SessionLost | NoAnswer):
            if isinstance(error, NoAnswer) and env.session:
                self._hang_up(env)
            env.session = ""
        failure = self._failure(env, error)
        again = isinstance(error, SessionLost) and env.failure is None
        if self._autoreset == "same_step" and again:
            env.failure = failure
            self._begin(env, None, None)
            return
        failure, env.failure = env.failure or failure, None
        env.pending = self._autoreset != "disabled"
        self._add((env.index, "", NO_REWARD, False, True, {"failure": failure}, env.episode))

    def _failure(self, env: Far, error: PalestraError) -> EnvFailure:
        cause: Cause = "raised"
        if isinstance(error, SessionLost):
            cause = _CAUSES.get(error.cause, "lost")
        elif isinstance(error, NoAnswer):
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
        with self._news:
            self._done += replies
            self._news.notify_all()
            watchers = list(self._watchers)
        for loop, callback in watchers:
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # that loop is closed
                continue

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        with self._news:
            while not self._done and self._under_way > 0:
                left = None if end is None else end - monotonic()
                if left is not None and left <= 0:
                    break
                self._news.wait(left)
            done, self._done = self._done, []
        self._under_way -= len(done)
        return done

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        watcher = (loop, callback)
        with self._news:
            self._watchers.append(watcher)
            if self._done:
                loop.call_soon(callback)

        def stop() -> None:
            with self._news:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return stop

    def _hang_up(self, env: Far) -> None:
        try:
            env.line.ask(protocol.Close(session=env.session), lambda _: None, 10.0)
        except (EnvFailed, UsageError):
            return  # its lease ends it

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for env in self._envs:
            if env.session:
                self._hang_up(env)
                env.session = ""


def _sendable(action: str) -> str:
    return action if action.isascii() else action.encode("utf-8", "replace").decode()
