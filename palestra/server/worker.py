"""Worker process for the environment server, which runs environments for many sessions.

Commands and replies are sent in batches. Fast commands share one thread, and slow commands run in additional threads.
Workers encode the results, so that the server only has to forward bytes.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from palestra.core import Env
from palestra.errors import BadValue, EpisodeOver, InfrastructureError, ResetNeeded, UnknownEnv, UsageError
from palestra.registry import EnvFactory, get_spec, preload
from palestra.seeding import check_seed
from palestra.types import finite_reward
from palestra.workers.command_loop import CommandLoop
from palestra.workers.env_runner import EnvRunner
from palestra.workers.executor import Abandoned, Executor, ExecutorThread
from palestra.workers.types import RESET, STEP, EnvFailure
from palestra.workers.wire import ActivityTable, encode_frame
from palestra.workers.worker_setup import connect_to_parent, limit_memory, tune_gc

MAX_TRACE = 4_000  # maximum number of characters in a traceback; the start is cut off
MAX_ROWS = 1 << 16  # maximum size of the rows in a reply, in bytes
INFINITY = float("inf")
HIDDEN = "the server's log contains the message and the traceback"  # sent instead of an exception's text

# A command is a tuple (session key, kind, payload). Tuples are fast to pickle, and thousands of them are sent.
MAKE, RESETS, STEPS, FORKS, RENDERS, SUGGEST_ACTION, DROP, ROW, ABANDON, PING, MANY, FAILURE = range(12)
# MANY contains the steps in a vector request. Its payload is
# (request number, media type, session keys, indexes, actions).
# The worker runs each step as a ROW command and sends the finished rows as
# (0, MANY, OK, (request number, media type, session keys, rows, number of ended episodes)).

# FAILURE is only a reply. It reports a failure in a session with autoreset for the server's log, as (kind, message,
# trace); the client receives it in `info`.

# A reply is a tuple (session key, kind, status, data). These are the statuses:
OK = 0
REFUSED = 1  # the request was invalid and had no effect; data is (code, kind, message)
BROKE = 2  # the environment failed and was discarded; data is (boundary, cause, kind, message, trace)
OVER = 3  # the step succeeded, and the episode has ended

_CODES: list[tuple[type[BaseException], str]] = [
    (EpisodeOver, "episode_over"),
    (ResetNeeded, "reset_needed"),
    (UnknownEnv, "unknown_env"),
    (UsageError, "bad_value"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWorkerConfig:
    """Configuration for a worker, sent to it as the first message."""

    lanes: int
    threads: int
    memory: int | None
    imports: list[str]  # modules to import at startup, which may register environments
    preload: list[str]  # ids of environments whose modules are imported at startup
    expose_errors: bool  # whether clients receive exception texts and tracebacks


class HostedEnv:
    """Environment for one session. If the session has autoreset, `runner` runs the environment."""

    __slots__ = ("env", "factory", "runner", "started")

    def __init__(self, factory: EnvFactory, runner: EnvRunner | None) -> None:
        self.factory = factory
        self.runner = runner
        self.env: Env | None = None
        self.started = False  # whether an episode has been started

    def running(self) -> Env:
        """Return the environment. Raise ResetNeeded if no episode has been started."""
        if not self.started:
            raise ResetNeeded("no episode has been started; call reset first")
        return self.open()

    def open(self) -> Env:
        if self.runner is not None:
            self.runner.make()
            return self.runner.env  # type: ignore[return-value]  # set by `make`
        if self.env is None:
            self.env = self.factory()
        return self.env

    def drop(self) -> None:
        self.started = False
        if self.runner is not None:
            self.runner.discard()
        env, self.env = self.env, None
        if env is not None:
            env.close()


class SessionWorker(CommandLoop):
    def __init__(self, sock: socket.socket, config: SessionWorkerConfig, activity: ActivityTable) -> None:
        super().__init__(sock, activity)
        self._envs: dict[int, HostedEnv] = {}
        self._expose_errors = config.expose_errors
        self._executor = Executor(self._run, self._flush, max_threads=config.threads, name="palestra-session")
        self._handlers: dict[int, Callable[[int, Any], tuple[int, Any]]] = {
            MAKE: self._make,
            RESETS: self._reset,
            STEPS: self._step,
            FORKS: self._fork,
            RENDERS: self._render,
            SUGGEST_ACTION: self._suggest_action,
            DROP: self._drop,
            ROW: self._row,
        }

    def handle(self, batch: list[tuple[int, int, Any]]) -> None:
        commands: list[tuple[int, int, Any]] = []
        whole = False
        for command in batch:
            if command[1] < ABANDON:
                commands.append(command)
            elif command[1] == MANY:
                commands += _row_commands(*command[2])
                whole = True
        if commands:
            self._executor.submit(commands, whole)
        for key, kind, _ in batch:
            if kind == ABANDON:
                self._executor.abandon_env(key)
                self._envs.pop(key, None)  # the environment is not closed, because a thread is still using it
            elif kind == PING:
                self._done.append((key, PING, OK, None))
                self._flush()

    def close_envs(self) -> None:
        for env in list(self._envs.values()):
            with suppress(Exception):  # an environment's `close` may raise
                env.drop()

    def _run(self, command: tuple[int, int, Any], thread: ExecutorThread) -> None:
        key, kind, payload = command
        self._activity.start_untimed(thread.lane, key)
        try:
            status, data = self._handlers[kind](key, payload)
        except UsageError as err:
            code = next(code for error, code in _CODES if isinstance(err, error))
            status, data = REFUSED, (code, type(err).__name__, _message_of(err))
        except Abandoned:
            raise
        except BaseException as err:  # noqa: BLE001  # an exception in an env ends only its own session
            status, data = BROKE, broken(err)
            self._discard_env(key)
            if isinstance(err, MemoryError):
                gc.collect()
        if not thread.abandoned:
            self._done.append((key, kind, status, data))
        self._activity.end(thread.lane)

    def encode(self, replies: list[tuple[int, int, int, Any]]) -> bytes:
        encoded: list[tuple[int, int, int, Any]] = []
        rows: dict[tuple[int, str], list[tuple[int, int, Any]]] = {}
        for reply in replies:
            key, kind, status, data = reply
            if kind == ROW and status != BROKE and status != REFUSED:
                row, request = data
                rows.setdefault(request, []).append((key, status, row))
            else:
                encoded.append(reply)
        for (request, media_type), ready in rows.items():
            self._encode_rows(request, media_type, ready, encoded)
        return encode_frame(encoded) if encoded else b""

    def _encode_rows(
        self,
        request: int,
        media_type: str,
        ready: list[tuple[int, int, Any]],
        replies: list[tuple[int, int, int, Any]],
    ) -> None:
        """Encode rows and append them to `replies`. Large replies are split, because sessions store whole replies."""
        keys, statuses, rows = zip(*ready, strict=True)
        try:
            data = encode_result(rows, media_type)
        except Exception as err:  # noqa: BLE001  # if a row cannot be encoded, only its own step fails
            if len(ready) == 1:
                self._discard_env(keys[0])
                replies.append((keys[0], ROW, BROKE, broken(err)))
                return
            data = None
        if len(ready) > 1 and (data is None or (isinstance(data, bytes) and len(data) > MAX_ROWS)):
            half = len(ready) // 2
            self._encode_rows(request, media_type, ready[:half], replies)
            self._encode_rows(request, media_type, ready[half:], replies)
        else:
            replies.append((0, MANY, OK, (request, media_type, keys, data, statuses.count(OVER))))

    def _discard_env(self, key: int) -> None:
        env = self._envs.get(key)
        if env is not None:
            with suppress(BaseException):  # a failed environment's `close` may raise
                env.drop()

    # Handlers, one per kind of command. Each returns the reply's status and data.

    def _make(self, key: int, payload: Any) -> tuple[int, Any]:
        env_id, kwargs, vector = payload
        spec = get_spec(env_id)  # the dispatcher has checked that the server provides this environment
        factory = EnvFactory(env_id, kwargs=kwargs)
        runner = None
        if vector is not None:
            autoreset, root, episode = vector
            runner = EnvRunner(0, factory, check_seed(root), autoreset)
            runner.episode = episode
        hosted = HostedEnv(factory, runner)
        env = hosted.open()
        self._envs[key] = hosted
        low, high = env.reward_range
        description = {
            "env": env_id,
            "max_turns": env.max_turns,
            "num_tasks": env.num_tasks,
            "reward_range": [low if low > -INFINITY else None, high if high < INFINITY else None],
            "expert_peeks": env.expert_peeks,
            "spec": spec.to_json(),
        }
        return OK, _builtin(description)

    def _reset(self, key: int, payload: Any) -> tuple[int, Any]:
        seed, options, actions, media_type = payload
        hosted = self._envs[key]
        if hosted.runner is not None:
            if actions:
                raise BadValue("a session with autoreset does not support a reset with actions")
            hosted.started = True
            return self._run_autoreset(key, hosted.runner, RESET, (seed, options), media_type)
        env = hosted.open()
        observation, info = env.reset(seed=seed, options=options)
        hosted.started = True
        if not actions:
            return OK, encode_result({"observation": observation, "info": info}, media_type)
        for action in actions:
            step = env.step(action)
        return self._step_result(step, media_type)

    def _step(self, key: int, payload: Any) -> tuple[int, Any]:
        action, media_type = payload
        hosted = self._envs[key]
        if hosted.runner is not None:
            return self._run_autoreset(key, hosted.runner, STEP, action, media_type)
        return self._step_result(hosted.running().step(action), media_type)

    def _row(self, key: int, payload: Any) -> tuple[int, Any]:
        action, index, request = payload
        hosted = self._envs[key]
        if hosted.runner is not None:
            _, observation, reward, terminated, truncated, info, episode = hosted.runner.run(STEP, action)
            valid = reward if reward == reward else None  # JSON has no NaN
            if "failure" in info:
                info = self._report_failure(key, info)
            return OK, ((index, observation, valid, terminated, truncated, info, episode), request)
        observation, reward, terminated, truncated, info = hosted.running().step(action)
        status = OVER if terminated or truncated else OK
        return status, ((index, observation, finite_reward(reward), terminated, truncated, info, None), request)

    def _step_result(self, step: Any, media_type: str) -> tuple[int, Any]:
        observation, reward, terminated, truncated, info = step
        data = {
            "observation": observation,
            "reward": finite_reward(reward),
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }
        return OVER if terminated or truncated else OK, encode_result(data, media_type)

    def _run_autoreset(self, key: int, runner: EnvRunner, kind: int, payload: Any, media_type: str) -> tuple[int, Any]:
        _, observation, reward, terminated, truncated, info, episode = runner.run(kind, payload)
        if "failure" in info:
            info = self._report_failure(key, info)
        data = {
            "observation": observation,
            "reward": reward if reward == reward else None,  # JSON has no NaN
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
            "episode": episode,
        }
        return OK, encode_result(data, media_type)

    def _report_failure(self, key: int, info: dict[str, Any]) -> dict[str, Any]:
        """Report a failure to the server's log, and return `info` for the client."""
        failure = info["failure"]
        if not isinstance(failure, EnvFailure):  # the env itself uses the "failure" key
            return info
        self._done.append((key, FAILURE, OK, (failure.kind, _utf8(failure.message), _utf8(failure.trace))))
        return info if self._expose_errors else {**info, "failure": replace(failure, message=HIDDEN, trace="")}

    def _fork(self, key: int, payload: Any) -> tuple[int, Any]:
        hosted = self._envs[key]
        if hosted.runner is not None:
            raise BadValue("a session with autoreset cannot be forked")
        fork = HostedEnv(hosted.factory, None)
        fork.env = hosted.running().fork()
        fork.started = True
        self._envs[payload] = fork
        return OK, None

    def _render(self, key: int, payload: Any) -> tuple[int, Any]:
        mode, media_type = payload
        view = self._envs[key].running().render(mode)
        return OK, encode_result({"mode": mode, "render": view}, media_type)

    def _suggest_action(self, key: int, payload: Any) -> tuple[int, Any]:
        player, seed, media_type = payload
        env = self._envs[key].running()
        if seed is not None:
            env.player_rng.seed(seed)
            return OK, encode_result({"action": None}, media_type)
        if player == "random":
            action: str | None = env.sample_random_action()
        elif player == "expert":
            action = env.expert_action()
        else:
            action = env.example_action()
        return OK, encode_result({"action": action}, media_type)

    def _drop(self, key: int, payload: Any) -> tuple[int, Any]:  # noqa: ARG002
        env = self._envs.pop(key, None)
        self._executor.forget(key)
        if env is not None:
            env.drop()
        return OK, None


def _row_commands(
    request: int, media_type: str, keys: list[int], indexes: list[int], actions: list[str]
) -> list[tuple[int, int, Any]]:
    """Return one ROW command per step in a request."""
    origin = (request, media_type)
    return [(key, ROW, (action, index, origin)) for key, index, action in zip(keys, indexes, actions, strict=True)]


def encode_result(data: dict[str, Any] | tuple[Any, ...], media_type: str) -> Any:
    """Encode `data` as `media_type`. Without msgspec, convert it to built-in types; the server then encodes it."""
    encode = _ENCODERS.get(media_type)
    return _builtin(data) if encode is None else encode(data)


def _builtin(value: Any) -> Any:
    """Convert a value to built-in types, because the server's interpreter may lack packages that this one has."""
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return value if type(value) in _BUILTIN else next(t for t in _BUILTIN if isinstance(value, t))(value)
    if isinstance(value, Mapping):
        return {_builtin(name): _builtin(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_builtin(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _builtin(getattr(value, item.name)) for item in fields(value)}
    return _builtin(_plain(value))


_BUILTIN: tuple[Any, ...] = (bool, int, float, str, bytes, type(None))


def _plain(value: Any) -> Any:
    """Convert NumPy numbers, NumPy arrays and paths, which msgspec does not support, to built-in types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent to another machine")


def _encoders() -> dict[str, Callable[[Any], bytes]]:
    try:
        import msgspec
    except ImportError:  # msgspec is not installed, so the server encodes the results
        return {}
    return {
        "application/json": msgspec.json.Encoder(enc_hook=_plain).encode,
        "application/msgpack": msgspec.msgpack.Encoder(enc_hook=_plain).encode,
    }


_ENCODERS = _encoders()


def broken(err: BaseException) -> tuple[str, str, str, str, str]:
    """Convert an exception to a tuple of boundary, cause, kind, message and traceback."""
    boundary = err.boundary if isinstance(err, InfrastructureError) else "env"
    cause = "memory" if isinstance(err, MemoryError) else "raised"
    trace = "".join(traceback.format_exception(err))[-MAX_TRACE:]
    return boundary, cause, type(err).__name__, _message_of(err), _utf8(trace)


def _message_of(err: BaseException) -> str:
    """Return an exception's message, with characters that cannot be encoded replaced."""
    try:
        return _utf8(str(err)[:MAX_TRACE])
    except Exception:  # noqa: BLE001  # the exception's `__str__` failed
        return "(no message)"


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def main(sock_fd: int, life_fd: int, activity_fd: int) -> None:
    """Run a worker that communicates over the file descriptors passed by the server."""
    sock, decoder, messages = connect_to_parent(sock_fd, life_fd, activity_fd)
    if not messages:
        return
    config = SessionWorkerConfig(**messages[0])
    if config.memory is not None:
        limit_memory(config.memory)
    for module in config.imports:
        with suppress(ModuleNotFoundError):  # a missing module is reported when a session is opened
            importlib.import_module(module)
    for env_id in config.preload:
        try:
            preload(env_id)
        except Exception:  # noqa: BLE001, S112  # reported when a session is opened
            continue
    tune_gc()
    worker = SessionWorker(sock, config, ActivityTable(config.lanes, activity_fd))
    try:
        sock.sendall(encode_frame("ready"))
    except OSError:  # the server has ended
        return
    worker.serve(messages[1:], decoder)
