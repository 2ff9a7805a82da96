"""Env that runs on a Palestra server."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Generator, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from palestra.core import Env, Reset
from palestra.errors import BadValue, EnvFailed, PalestraError, SessionLost
from palestra.remote import protocol
from palestra.remote.address import Address, parse, resolve_token
from palestra.remote.errors import NoResponse
from palestra.remote.http_transport import HttpTransport
from palestra.remote.protocol import SingleRequest
from palestra.remote.served_spec import spec_from_json
from palestra.remote.socket_transport import shared_socket
from palestra.seeding import check_seed
from palestra.types import Step, finite_reward
from palestra.workers.env_runner import PlayerRngProxy

# Causes after which a lost session can be recovered, because its own calls did not cause the failure.
RECOVERABLE = frozenset({"worker", "expired", "stopped", "unknown"})
T = TypeVar("T")
# Generator that yields requests, receives their results, and returns a T.
Exchange: TypeAlias = Generator[SingleRequest, dict[str, Any], T]


class Transport(Protocol):
    """Connection to a server, over a WebSocket or HTTP."""

    server: str

    def call(self, request: SingleRequest, timeout: float) -> dict[str, Any]: ...

    async def acall(self, request: SingleRequest, timeout: float) -> dict[str, Any]: ...

    def close_session(self, session: str) -> None: ...


class RemoteEnv(Env):
    """Environment on a Palestra server, with its own session.

    A session can be lost because its worker or server crashes or its lease expires. With `recover="replay"`, a lost
    session is replaced by a new one in which the episode's seed and actions are replayed. If this leads to a
    different observation, SessionLost is raised. `recovered` is the number of replaced sessions.
    """

    shared = Env.shared | {"_transport", "_address", "_finalizer"}

    def __init__(
        self,
        url: str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        token: str | None = None,
        recover: Literal["replay"] | None = None,
        timeout: float = 300.0,
        patience: float = 30.0,
        lease: float | None = None,
        transport: Literal["socket", "http"] = "socket",
    ) -> None:
        """Open a session on the server.

        Args:
            url: URL of the environment, `http://HOST:PORT/FAMILY:NAME`.
            kwargs: Keyword arguments for the environment.
            token: Authentication token for the server (default: the PALESTRA_TOKEN environment variable).
            recover: "replay" to replace lost sessions (see the class docstring), or None to raise SessionLost.
            timeout: Maximum duration of a call in seconds.
            patience: Seconds for which to retry while the server does not respond or is at capacity.
            lease: Seconds of inactivity after which the server closes the session (default: set by the server).
            transport: "socket" to share one WebSocket per server, or "http" for networks that block WebSockets.
        """
        if recover not in (None, "replay"):
            raise BadValue(f"recover must be 'replay' or None, got {recover!r}")
        if transport not in ("socket", "http"):
            raise BadValue(f"transport must be 'socket' or 'http', got {transport!r}")
        self._address: Address = parse(url)
        self._kwargs = dict(kwargs or {})
        self._recover = recover
        self._timeout = timeout
        self._lease = lease
        self._transport = open_transport(self._address, token, patience, transport)
        self._session = ""
        self._seq = 0
        self._start: tuple[int | None, dict[str, Any] | None] | None = None  # seed and options of the running episode
        self._actions: list[str] = []
        self._last: Any = None  # latest observation
        self._closed = False
        self.recovered = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._run(self._open())

    # Exchanges with the server are generators, so that synchronous and asynchronous callers can share the code.

    def _run(self, exchange: Exchange[T]) -> T:
        try:
            request = next(exchange)
            while True:
                try:
                    result = self._transport.call(request, self._timeout)
                except PalestraError as err:
                    request = exchange.throw(err)
                else:
                    request = exchange.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _arun(self, exchange: Exchange[T]) -> T:
        try:
            request = next(exchange)
            while True:
                try:
                    result = await self._transport.acall(request, self._timeout)
                except PalestraError as err:
                    request = exchange.throw(err)
                else:
                    request = exchange.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _open(self) -> Exchange[None]:
        result = yield protocol.Create(env=self._address.env, kwargs=self._kwargs, lease=self._lease)
        self._use_session(result)

    def _use_session(self, result: dict[str, Any]) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._session, self._seq = result["session"], 0
        self._finalizer = weakref.finalize(self, _close_session, self._transport, self._session)
        if "spec" in result:
            self.spec = spec_from_json({**result["spec"], "reward_range": result["reward_range"]})
            self.max_turns = result["max_turns"]
            self.num_tasks = result.get("num_tasks")
            self.reward_range = self.spec.reward_range
            self.expert_peeks = result["expert_peeks"]

    def _numbered(self, request: protocol.Reset | protocol.Step | protocol.Fork) -> Exchange[dict[str, Any]]:
        """Send a request with the next sequence number, and update the number from the response."""
        request.session, request.seq = self._session, self._seq
        try:
            result: dict[str, Any] = yield request
        except NoResponse:
            self._abandon_session()  # it is unknown whether the server executed the request
            raise
        except PalestraError as err:
            seq = getattr(err, "seq", None)
            if seq is not None:
                self._seq = seq + 1
            raise
        if result.get("seq") != request.seq:
            self._abandon_session()
            raise NoResponse(
                f"call {request.seq} received the response to call {result.get('seq')}; a proxy may mix up responses"
            )
        self._seq = result["seq"] + 1
        return result

    def _abandon_session(self) -> None:
        self._session = ""
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def _on_lost(self, lost: SessionLost) -> None:
        """Abandon the session, and raise `lost` unless the session can be recovered."""
        self._abandon_session()
        if self._recover is None or lost.cause not in RECOVERABLE:
            raise lost
        self.recovered += 1

    # Episodes.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self._run(self._reset(seed, options))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return await self._arun(self._reset(seed, options))

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Exchange[Reset]:
        self._check_open()
        if seed is not None:
            seed = check_seed(seed)
        elif self._start is None:
            seed = self._first_seed  # the seed passed to `make(..., seed=...)`
        if not self._session:
            yield from self._open()
        try:
            result = yield from self._numbered(protocol.Reset(seed=seed, options=options))
        except SessionLost as lost:
            self._on_lost(lost)
            yield from self._open()
            result = yield from self._numbered(protocol.Reset(seed=seed, options=options))
        info = result["info"]
        self.seed = info.get("seed", 0)
        self._start = (info.get("seed"), options)
        self._actions = []
        self._last = result["observation"]
        return result["observation"], info

    def step(self, action: str) -> Step:
        return self._run(self._step(action))

    async def astep(self, action: str) -> Step:
        return await self._arun(self._step(action))

    def _step(self, action: str) -> Exchange[Step]:
        self._check_open()
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")
        if not action.isascii():
            action = action.encode("utf-8", "replace").decode()  # replaces unpaired surrogates, which cannot be encoded
        try:
            if not self._session:
                raise SessionLost("the session was lost; call reset() to open a new one")
            result = yield from self._numbered(protocol.Step(action=action))
        except SessionLost as lost:
            self._on_lost(lost)
            yield from self._open()
            yield from self._replay()
            result = yield from self._numbered(protocol.Step(action=action))
        self._actions.append(action)
        self._last = result["observation"]
        reward = finite_reward(result["reward"])  # null, for example, if the server cannot encode a reward
        return Step(result["observation"], reward, result["terminated"], result["truncated"], result["info"])

    def _replay(self) -> Exchange[None]:
        """Replay the running episode up to its last action in the new session."""
        seed, options = self._start or (None, None)
        if seed is None:
            raise SessionLost("the session was lost before an episode was started")
        result = yield from self._numbered(protocol.Reset(seed=seed, options=options, actions=list(self._actions)))
        if result["observation"] != self._last:
            raise SessionLost("the session was lost, and replaying its seed and actions led to a different observation")

    def _check_open(self) -> None:
        if self._closed:
            raise EnvFailed("this environment is closed; create a new one with palestra.make")

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        if same_state:
            return super().spawn(same_state=True, **kwargs)
        options = {name: kwargs.pop(name) for name in CLIENT_OPTIONS & kwargs.keys()}
        return super().spawn(kwargs={**self._kwargs, **kwargs.pop("kwargs", {}), **kwargs}, **options)

    def fork(self) -> Self:
        self._check_open()
        result = self._run(self._numbered(protocol.Fork()))
        fork = super().fork()
        fork._finalizer = None
        fork._use_session(result)
        return fork

    def __getstate__(self) -> dict[str, Any]:
        return {"call": self._call, "start": self._start, "actions": self._actions, "last": self._last}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open a new session and replay the unpickled episode in it."""
        args, kwargs = self._call = state["call"]
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        self._start, self._actions, self._last = state["start"], state["actions"], state["last"]
        if self._start is not None:
            self.seed = self._start[0] or 0
            self._run(self._replay())

    # Players and rendering.

    def sample_random_action(self) -> str:
        return str(self._suggest_action("random"))

    def expert_action(self) -> str | None:
        return self._suggest_action("expert")

    def example_action(self) -> str:
        return str(self._suggest_action("example"))

    def _suggest_action(self, player: str, seed: int | None = None) -> str | None:
        self._check_open()
        request = protocol.SuggestAction(session=self._session, player=player, seed=seed)
        action: str | None = self._transport.call(request, self._timeout)["action"]
        return action

    def render(self, mode: str = "text") -> str | bytes | None:
        self._check_open()
        request = protocol.Render(session=self._session, mode=mode)
        view: str | bytes | None = self._transport.call(request, self._timeout)["render"]
        return view

    @property
    def player_rng(self) -> Random:
        """Proxy whose `seed` method seeds the random player on the server."""
        return PlayerRngProxy(self._seed_player)

    def _seed_player(self, seed: Any) -> None:
        self._suggest_action("random", int(seed) if isinstance(seed, int) else Random(seed).getrandbits(62))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._finalizer is not None:
                self._finalizer()

    async def aclose(self) -> None:
        self.close()  # does not block with the "socket" transport

    def __repr__(self) -> str:
        return f"<RemoteEnv {self._address.env} at {self._address.base}>"


# Arguments that configure the client; `make` passes all others to the environment on the server.
CLIENT_OPTIONS = frozenset(inspect.signature(RemoteEnv.__init__).parameters) - {"self", "url", "kwargs"}


def open_transport(address: Address, token: str | None, patience: float, transport: str) -> Transport:
    """Return a transport of the given kind for the server at `address`."""
    if transport == "http":
        return HttpTransport(address.base, resolve_token(token), patience)
    return shared_socket(address.socket, address.base, resolve_token(token), patience)


def _close_session(transport: Transport, session: str) -> None:
    with suppress(Exception):  # after a failure, the server closes the session when its lease expires
        transport.close_session(session)
