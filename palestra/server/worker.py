"""The life of a worker process: it keeps the environments of many sessions and does what the server tells it.

Commands come in batches, answers go out in batches. One thread runs them while they are quick; a slow one is left to
itself, and others go on (see workers/executor.py). An answer is written as bytes here, so that the server only
sends it.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from palestra.core import Env
from palestra.errors import BadValue, EpisodeOver, InfrastructureError, ResetNeeded, UnknownEnv, UsageError
from palestra.registry import EnvFactory, get_spec, preload
from palestra.seeding import check_seed
from palestra.workers.env_runner import EnvRunner
from palestra.workers.executor import Ended, Executor, ExecutorThread
from palestra.workers.types import RESET, STEP, Reply
from palestra.workers.wire import CHUNK, Frames, Marks, frame
from palestra.workers.worker import calm_collector, limit_memory, settle

LONGEST_TRACE = 4_000  # characters, the end of it
LONGEST_ROWS = 1 << 16  # bytes of rows that are answered together
FOREVER = float("inf")

# What a worker is told: (session number, what, payload). Numbers, since thousands of them cross pipes.
MAKE, RESETS, STEPS, FORKS, RENDERS, SUGGEST_ACTION, DROP, ROW, GIVE_UP, PING, MANY = range(11)
# MANY: steps of one request, payload (request, write, sessions, indexes, actions); each becomes a ROW in here. They are
# answered in parts as they are done: (0, MANY, OK, (request, write, sessions, rows, episodes that are over)).

# What it answers: (session number, what, how, data). `how`: OK, or why not.
OK = 0
REFUSED = 1  # the caller's mistake; data: (code, kind, message). Nothing has changed
BROKE = 2  # data: (boundary, cause, kind, message, trace). The environment is gone
OVER = 3  # OK, and the episode is over

_CODES: list[tuple[type[BaseException], str]] = [
    (EpisodeOver, "episode_over"),
    (ResetNeeded, "reset_needed"),
    (UnknownEnv, "unknown_env"),
    (UsageError, "bad_value"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker is told first."""

    lanes: int
    threads: int
    memory: int | None
    imports: list[str]  # modules that register environments
    preload: list[str]  # ids whose modules are imported before the first session


class Seat:
    """The environment of one session; with `runner`, one of a vector, which begins its next episode by itself."""

    __slots__ = ("begun", "env", "factory", "runner")

    def __init__(self, factory: EnvFactory, runner: EnvRunner | None) -> None:
        self.factory = factory
        self.runner = runner
        self.env: Env | None = None
        self.begun = False  # is there an episode to act in, look at, fork?

    def running(self) -> Env:
        """The environment in an episode."""
        if not self.begun:
            raise ResetNeeded("no episode has begun; reset begins one")
        return self.open()

    def open(self) -> Env:
        if self.runner is not None:
            self.runner.make()
            return self.runner.env  # type: ignore[return-value]  # made just now
        if self.env is None:
            self.env = self.factory()
        return self.env

    def drop(self) -> None:
        self.begun = False
        if self.runner is not None:
            self.runner.discard()
        env, self.env = self.env, None
        if env is not None:
            env.close()


class Host:
    def __init__(self, sock: socket.socket, orders: Orders, marks: Marks) -> None:
        self._sock = sock
        self._marks = marks
        self._seats: dict[int, Seat] = {}
        self._done: deque[tuple[int, int, int, Any]] = deque()
        self._sending = threading.Lock()
        self._executor = Executor(self._run, self._flush, most=orders.threads, name="palestra-host")
        self._doing: dict[int, Callable[[int, Any], tuple[int, Any]]] = {
            MAKE: self._make,
            RESETS: self._reset,
            STEPS: self._step,
            FORKS: self._fork,
            RENDERS: self._render,
            SUGGEST_ACTION: self._suggest_action,
            DROP: self._drop,
            ROW: self._row,
        }

    def serve(self, batches: list[Any], frames: Frames) -> None:
        """Until the server hangs up."""
        while True:
            for commands in batches:
                plain: list[tuple[int, int, Any]] = []
                vector = False
                for command in commands:
                    if command[1] < GIVE_UP:
                        plain.append(command)
                    elif command[1] == MANY:
                        plain += _each(*command[2])
                        vector = True
                if plain:
                    self._executor.submit(plain, vector)
                for key, what, _ in commands:
                    if what == GIVE_UP:
                        self._executor.abandon_who_is_at(key)
                        self._seats.pop(key, None)  # not closed: a thread is in it
                    elif what == PING:
                        self._done.append((key, PING, OK, None))
                        self._flush()
            try:
                data = self._sock.recv(CHUNK)
            except ConnectionError:
                break
            if not data:
                break
            frames.feed(data)
            batches = frames.take()
        for seat in list(self._seats.values()):
            with suppress(Exception):  # it may be too broken to close
                seat.drop()

    def _run(self, command: tuple[int, int, Any], thread: ExecutorThread) -> None:
        key, what, payload = command
        self._marks.at(thread.lane, key)
        try:
            how, data = self._doing[what](key, payload)
        except UsageError as err:
            code = next(code for kind, code in _CODES if isinstance(err, kind))
            how, data = REFUSED, (code, type(err).__name__, _words(err))
        except Ended:
            raise
        except BaseException as err:  # noqa: BLE001  # whatever it raises, it costs this session alone
            how, data = BROKE, broken(err)
            self._forget_env(key)
            if isinstance(err, MemoryError):
                gc.collect()
        if not thread.abandoned:
            self._done.append((key, what, how, data))
        self._marks.end(thread.lane)

    def _flush(self) -> None:
        with self._sending:
            done: list[tuple[int, int, int, Any]] = []
            rows: dict[tuple[int, str], list[tuple[int, int, Any]]] = {}
            while self._done:  # not swapped for a new list, as another thread may be about to append
                reply = self._done.popleft()
                key, what, how, data = reply
                if what == ROW and how != BROKE and how != REFUSED:
                    row, request = data
                    rows.setdefault(request, []).append((key, how, row))
                else:
                    done.append(reply)
            for (request, write), ready in rows.items():
                self._write_rows(request, write, ready, done)
            if done:
                try:
                    self._sock.sendall(frame(done))
                except OSError:
                    os._exit(0)  # nobody is there to read it

    def _write_rows(
        self, request: int, write: str, ready: list[tuple[int, int, Any]], done: list[tuple[int, int, int, Any]]
    ) -> None:
        """Rows of one request as few answers, none of them long: a session keeps the whole of its last one."""
        keys, hows, rows = zip(*ready, strict=True)
        try:
            data = written(rows, write)
        except Exception as err:  # noqa: BLE001  # one of them holds what cannot be written: it costs that session alone
            if len(ready) == 1:
                self._forget_env(keys[0])
                done.append((keys[0], ROW, BROKE, broken(err)))
                return
            data = None
        if len(ready) > 1 and (data is None or (isinstance(data, bytes) and len(data) > LONGEST_ROWS)):
            half = len(ready) // 2
            self._write_rows(request, write, ready[:half], done)
            self._write_rows(request, write, ready[half:], done)
        else:
            done.append((0, MANY, OK, (request, write, keys, data, hows.count(OVER))))

    def _forget_env(self, key: int) -> None:
        seat = self._seats.get(key)
        if seat is not None:
            with suppress(BaseException):  # it is broken
                seat.drop()

    # Each gives how it went and what is answered.

    def _make(self, key: int, payload: Any) -> tuple[int, Any]:
        env_id, kwargs, vector = payload
        factory = EnvFactory.of(env_id, kwargs=kwargs)
        runner = None
        if vector is not None:
            autoreset, root, episode = vector
            runner = EnvRunner(0, factory, check_seed(root), autoreset)
            runner.episode = episode
        seat = Seat(factory, runner)
        env = seat.open()
        self._seats[key] = seat
        low, high = env.reward_range
        spec = get_spec(env_id)
        told = {
            "env": env_id,
            "max_turns": env.max_turns,
            "reward_range": [low if low > -FOREVER else None, high if high < FOREVER else None],
            "expert_peeks": env.expert_peeks,
            "spec": spec.to_json(),
        }
        return OK, _builtin(told)

    def _reset(self, key: int, payload: Any) -> tuple[int, Any]:
        seed, options, actions, write = payload
        seat = self._seats[key]
        if seat.runner is not None:
            if actions:
                raise BadValue("a session with autoreset plays no actions at its reset")
            seat.begun = True
            return self._slotted(seat.runner, RESET, (seed, options), write)
        env = seat.open()
        observation, info = env.reset(seed=seed, options=options)
        seat.begun = True
        if not actions:
            return OK, written({"observation": observation, "info": info}, write)
        for action in actions:
            five = env.step(action)
        return self._five(five, write)

    def _step(self, key: int, payload: Any) -> tuple[int, Any]:
        action, write = payload
        seat = self._seats[key]
        if seat.runner is not None:
            return self._slotted(seat.runner, STEP, action, write)
        return self._five(seat.running().step(action), write)

    def _row(self, key: int, payload: Any) -> tuple[int, Any]:
        action, index, request = payload
        seat = self._seats[key]
        if seat.runner is not None:
            reply: Reply = seat.runner.run(STEP, action)  # type: ignore[assignment]  # this kind is answered
            _, observation, reward, terminated, truncated, info, episode = reply
            real = reward if reward == reward else None  # NaN, which JSON has no word for
            return OK, ((index, observation, real, terminated, truncated, info, episode), request)
        observation, reward, terminated, truncated, info = seat.running().step(action)
        how = OVER if terminated or truncated else OK
        return how, ((index, observation, reward, terminated, truncated, info, None), request)

    def _five(self, five: Any, write: str) -> tuple[int, Any]:
        observation, reward, terminated, truncated, info = five
        data = {
            "observation": observation,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }
        return OVER if terminated or truncated else OK, written(data, write)

    def _slotted(self, runner: EnvRunner, kind: int, payload: Any, write: str) -> tuple[int, Any]:
        reply: Reply = runner.run(kind, payload)  # type: ignore[assignment]  # these kinds are answered
        _, observation, reward, terminated, truncated, info, episode = reply
        data = {
            "observation": observation,
            "reward": reward if reward == reward else None,  # NaN, which JSON has no word for
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
            "episode": episode,
        }
        return OK, written(data, write)

    def _fork(self, key: int, payload: Any) -> tuple[int, Any]:
        seat = self._seats[key]
        if seat.runner is not None:
            raise BadValue("a session with autoreset is not forked")
        twin = Seat(seat.factory, None)
        twin.env = seat.running().fork()
        twin.begun = True
        self._seats[payload] = twin
        return OK, None

    def _render(self, key: int, payload: Any) -> tuple[int, Any]:
        mode, write = payload
        seen = self._seats[key].running().render(mode)
        return OK, written({"mode": mode, "render": seen}, write)

    def _suggest_action(self, key: int, payload: Any) -> tuple[int, Any]:
        player, seed, write = payload
        env = self._seats[key].running()
        if seed is not None:
            env.player_rng.seed(seed)
            return OK, written({"action": None}, write)
        if player == "random":
            action: str | None = env.sample_random_action()
        elif player == "expert":
            action = env.expert_action()
        else:
            action = env.example_action()
        return OK, written({"action": action}, write)

    def _drop(self, key: int, payload: Any) -> tuple[int, Any]:  # noqa: ARG002
        seat = self._seats.pop(key, None)
        self._executor.forget(key)
        if seat is not None:
            seat.drop()
        return OK, None


def _each(
    request: int, write: str, keys: list[int], indexes: list[int], actions: list[str]
) -> list[tuple[int, int, Any]]:
    """The steps of one request, a command each."""
    whose = (request, write)
    return [(key, ROW, (action, index, whose)) for key, index, action in zip(keys, indexes, actions, strict=True)]


def written(data: dict[str, Any] | tuple[Any, ...], write: str) -> Any:
    """`data` as bytes of the kind asked for; as plain data where this interpreter cannot write that."""
    encode = _WRITERS.get(write)
    return _builtin(data) if encode is None else encode(data)


def _builtin(value: Any) -> Any:
    """`value` of types that every interpreter has: the server's may not have the packages of this one."""
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
    """What msgspec does not know: numbers of numpy, paths."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent to another machine")


def _writers() -> dict[str, Callable[[Any], bytes]]:
    try:
        import msgspec
    except ImportError:  # another interpreter, with other packages: the server writes for it
        return {}
    return {
        "application/json": msgspec.json.Encoder(enc_hook=_plain).encode,
        "application/msgpack": msgspec.msgpack.Encoder(enc_hook=_plain).encode,
    }


_WRITERS = _writers()


def broken(err: BaseException) -> tuple[str, str, str, str, str]:
    """`err` as data: boundary, cause, kind, message, trace."""
    boundary = err.boundary if isinstance(err, InfrastructureError) else "env"
    cause = "memory" if isinstance(err, MemoryError) else "raised"
    trace = "".join(traceback.format_exception(err))[-LONGEST_TRACE:]
    return boundary, cause, type(err).__name__, _words(err), _utf8(trace)


def _words(err: BaseException) -> str:
    """What it says, if it can, in characters that can be sent."""
    try:
        return _utf8(str(err)[:LONGEST_TRACE])
    except Exception:  # noqa: BLE001  # it cannot even say what is wrong
        return "it has no words"


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def main(sock_fd: int, life_fd: int, marks_fd: int) -> None:
    """Entry of a worker, by the handles the server left open for it."""
    sock, frames, messages = settle(sock_fd, life_fd, marks_fd)
    if not messages:
        return
    orders = Orders(**messages[0])
    if orders.memory is not None:
        limit_memory(orders.memory)
    for module in orders.imports:
        with suppress(ModuleNotFoundError):  # another interpreter has other modules; said when a session is opened
            importlib.import_module(module)
    for env_id in orders.preload:
        try:
            preload(env_id)
        except Exception:  # noqa: BLE001, S112  # said when a session is opened
            continue
    calm_collector()
    host = Host(sock, orders, Marks(orders.lanes, marks_fd))
    sock.sendall(frame("ready"))
    host.serve(messages[1:], frames)
