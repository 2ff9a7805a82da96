"""RemoteEnv: an environment on a server as an Env like any other."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping
from random import Random
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from palestra.core import Env, Reset
from palestra.errors import BadValue, EnvFailed, PalestraError, SessionLost
from palestra.remote import protocol
from palestra.remote.address import Address, parse, token_of
from palestra.remote.errors import NoAnswer
from palestra.remote.http_transport import PlainLine
from palestra.remote.protocol import SingleRequest
from palestra.remote.socket_transport import line_to
from palestra.seeding import check_seed
from palestra.spec import EnvSpec
from palestra.types import Step

NOT_OURS = frozenset({"worker", "expired", "stopped", "unknown"})  # ends that this session's own call did not cause
T = TypeVar("T")
Talk: TypeAlias = Generator[SingleRequest, dict[str, Any], T]


class Asked(Protocol):
    """A way to a server."""

    where: str

    def call(self, ask: SingleRequest, timeout: float) -> dict[str, Any]: ...

    async def acall(self, ask: SingleRequest, timeout: float) -> dict[str, Any]: ...


class RemoteEnv(Env):
    """The environment at an address, in a session of its own.

    `recover="replay"`: where the session is lost through no fault of its own (its worker or its server died, its lease
    ran out), a new one plays the same seed and actions, and goes on if that leads to the same observation; otherwise
    SessionLost is raised. `recovered` counts those.
    """

    shared = Env.shared | {"_line", "_address", "_finalizer"}

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
        """`timeout`: seconds for one call. `patience`: seconds for a server that does not answer, or is full."""
        if recover not in (None, "replay"):
            raise BadValue(f"recover is 'replay' or None, got {recover!r}")
        if transport not in ("socket", "http"):
            raise BadValue(f"transport is 'socket' or 'http', got {transport!r}")
        self._address: Address = parse(url)
        self._kwargs = dict(kwargs or {})
        self._recover = recover
        self._timeout = timeout
        self._lease = lease
        self._line = way_to(self._address, token, patience, transport)
        self._session = ""
        self._seq = 0
        self._begun: tuple[int | None, dict[str, Any] | None] | None = None  # how the running episode began
        self._actions: list[str] = []
        self._last: Any = None  # the observation after them
        self._closed = False
        self.recovered = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._do(self._open())

    # Talks with the server: generators that yield what is asked and get what is answered, for both kinds of caller.

    def _do(self, talk: Talk[T]) -> T:
        try:
            ask = next(talk)
            while True:
                try:
                    told = self._line.call(ask, self._timeout)
                except PalestraError as err:
                    ask = talk.throw(err)
                else:
                    ask = talk.send(told)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _ado(self, talk: Talk[T]) -> T:
        try:
            ask = next(talk)
            while True:
                try:
                    told = await self._line.acall(ask, self._timeout)
                except PalestraError as err:
                    ask = talk.throw(err)
                else:
                    ask = talk.send(told)
        except StopIteration as end:
            result: T = end.value
            return result

    def _open(self) -> Talk[None]:
        made = yield protocol.Create(env=self._address.env, kwargs=self._kwargs, lease=self._lease)
        self._opened(made)

    def _opened(self, made: dict[str, Any]) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._session, self._seq = made["session"], 0
        self._finalizer = weakref.finalize(self, _hang_up, self._line, self._session)
        if "spec" in made:
            low, high = made["reward_range"]
            bounds = (float("-inf") if low is None else low, float("inf") if high is None else high)
            self.max_turns = made["max_turns"]
            self.reward_range = bounds
            self.expert_peeks = made["expert_peeks"]
            self.spec = EnvSpec(**{**made["spec"], "reward_range": bounds})

    def _counted(self, ask: protocol.Reset | protocol.Step | protocol.Fork) -> Talk[dict[str, Any]]:
        """A call with a number: its own, and the next one counts from what the server says."""
        ask.session, ask.seq = self._session, self._seq
        try:
            told: dict[str, Any] = yield ask
        except NoAnswer:
            self._abandon()  # nobody knows whether it was carried out
            raise
        except PalestraError as err:
            counted = getattr(err, "seq", None)
            if counted is not None:
                self._seq = counted + 1
            raise
        if told.get("seq") != ask.seq:
            self._abandon()
            raise NoAnswer(f"call {ask.seq} was answered as call {told.get('seq')}: something between mixes up answers")
        self._seq = told["seq"] + 1
        return told

    def _abandon(self) -> None:
        self._session = ""
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def _lost(self, lost: SessionLost) -> None:
        """Raise it, unless a new session may take its place; the next reset opens one in any case."""
        self._abandon()
        if self._recover is None or lost.cause not in NOT_OURS:
            raise lost
        self.recovered += 1

    # An episode.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self._do(self._reset(seed, options))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return await self._ado(self._reset(seed, options))

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Talk[Reset]:
        self._check_open()
        if seed is not None:
            seed = check_seed(seed)
        elif self._begun is None:
            seed = self._first_seed  # what `make(..., seed=)` was given
        if not self._session:
            yield from self._open()
        try:
            told = yield from self._counted(protocol.Reset(seed=seed, options=options))
        except SessionLost as lost:
            self._lost(lost)
            yield from self._open()
            told = yield from self._counted(protocol.Reset(seed=seed, options=options))
        info = told["info"]
        self.seed = info.get("seed", 0)
        self._begun = (info.get("seed"), options)
        self._actions = []
        self._last = told["observation"]
        return told["observation"], info

    def step(self, action: str) -> Step:
        return self._do(self._step(action))

    async def astep(self, action: str) -> Step:
        return await self._ado(self._step(action))

    def _step(self, action: str) -> Talk[Step]:
        self._check_open()
        if not isinstance(action, str):
            raise BadValue(f"an action is a string, got {type(action).__name__}")
        if not action.isascii():
            action = action.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
        try:
            if not self._session:
                raise SessionLost("the session is lost; reset() begins another")
            told = yield from self._counted(protocol.Step(action=action))
        except SessionLost as lost:
            self._lost(lost)
            yield from self._open()
            yield from self._replay()
            told = yield from self._counted(protocol.Step(action=action))
        self._actions.append(action)
        self._last = told["observation"]
        return Step(told["observation"], told["reward"], told["terminated"], told["truncated"], told["info"])

    def _replay(self) -> Talk[None]:
        """Play the running episode up to where it was."""
        seed, options = self._begun or (None, None)
        if seed is None:
            raise SessionLost("the session was lost before an episode began")
        again = protocol.Reset(seed=seed, options=options, actions=list(self._actions))
        told = yield from self._counted(again)
        if told["observation"] != self._last:
            raise SessionLost("the session was lost, and its seed and actions led elsewhere when played again")

    def _check_open(self) -> None:
        if self._closed:
            raise EnvFailed("this environment is closed; make another")

    def fork(self) -> Self:
        self._check_open()
        made = self._do(self._counted(protocol.Fork()))
        twin = super().fork()
        twin._finalizer = None
        twin._opened(made)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {"call": self._call, "begun": self._begun, "actions": self._actions, "last": self._last}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Another session, played up to where the first one was."""
        args, kwargs = self._call = state["call"]
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        self._begun, self._actions, self._last = state["begun"], state["actions"], state["last"]
        if self._begun is not None:
            self.seed = self._begun[0] or 0
            self._do(self._replay())

    # Its players, and looks at it.

    def sample_random_action(self) -> str:
        return str(self._advice("random"))

    def expert_action(self) -> str | None:
        return self._advice("expert")

    def example_action(self) -> str:
        return str(self._advice("example"))

    def _advice(self, player: str, seed: int | None = None) -> str | None:
        self._check_open()
        ask = protocol.SuggestAction(session=self._session, player=player, seed=seed)
        action: str | None = self._line.call(ask, self._timeout)["action"]
        return action

    def render(self, mode: str = "text") -> str | bytes | None:
        self._check_open()
        ask = protocol.Render(session=self._session, mode=mode)
        seen: str | bytes | None = self._line.call(ask, self._timeout)["render"]
        return seen

    @property
    def player_rng(self) -> Random:
        """Seeding it seeds the player on the server, which is the one that draws."""
        return _FarPlayer(lambda seed: self._advice("random", seed))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._finalizer is not None:
                self._finalizer()

    async def aclose(self) -> None:
        self.close()  # waits for nobody

    def __repr__(self) -> str:
        return f"<RemoteEnv {self._address.env} at {self._address.base}>"


def way_to(address: Address, token: str | None, patience: float, transport: str) -> Asked:
    """The shared socket to a server, or plain HTTP."""
    if transport == "http":
        return PlainLine(address.base, token_of(token), patience)
    return line_to(address.socket, address.base, token_of(token), patience)


def _hang_up(line: Any, session: str) -> None:
    """Close a session; nobody waits for the answer on a socket."""
    ask = protocol.Close(session=session)
    try:
        if hasattr(line, "ask"):
            line.ask(ask, lambda _: None, 10.0)
        else:
            line.call(ask, 2.0)
    except Exception:  # noqa: BLE001  # its lease ends it
        return


class _FarPlayer(Random):
    """Stands for a generator on the server."""

    _tell: Callable[[int], Any] | None = None

    def __init__(self, tell: Callable[[int], Any]) -> None:
        super().__init__()
        self._tell = tell

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(a, version)
        if self._tell is not None:
            self._tell(int(a) if isinstance(a, int) else self.getrandbits(62))
