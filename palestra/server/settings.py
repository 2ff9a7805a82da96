"""Server settings, and functions that parse and validate them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palestra import registry
from palestra.errors import BadValue
from palestra.server.worker_pool import Group

MIN_TOKEN_LENGTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for one server. Times are in seconds, sizes in bytes."""

    envs: tuple[str, ...]  # ids of the served environments
    groups: tuple[Group, ...] = (Group(families=frozenset()),)
    imports: tuple[str, ...] = ()  # modules to import at startup, which may register environments
    tokens: Mapping[str, str] = field(default_factory=dict)  # token -> client name; if empty, no token is required
    any_host: bool = False  # accept any Host header
    any_kwargs: bool = False  # accept keyword arguments that could be file paths
    node: str = ""  # prefix for session names, for load balancers that route by path
    lease: float = 600.0  # default time after which an unused session ends
    max_lease: float = 86_400.0
    step_timeout: float = 120.0  # maximum duration of a call, after which the session ends
    reset_timeout: float | None = None  # maximum duration of a creation or reset; None means step_timeout
    # Maximum time to receive a request, and maximum time until the client reads the response.
    request_timeout: float = 60.0
    ping: float = 20.0  # interval between WebSocket pings, and timeout for their replies
    max_sessions: int = 4_096
    sessions_per_client: int | None = None  # None: half of `max_sessions` if there are several tokens
    rate: float | None = None  # maximum number of requests per second per client
    max_in_flight: int = 4_096  # maximum number of concurrent calls
    max_body: int = 16 << 20
    buffer: int = 512 << 20  # maximum size of all requests and responses in flight
    buffer_per_client: int = 64 << 20
    expose_errors: bool = False  # send exception texts and tracebacks from environments to clients
    threads: int = 64  # maximum number of concurrent slow calls per worker
    memory: int | None = None  # maximum memory per worker

    def __post_init__(self) -> None:
        if not self.envs:
            raise BadValue("no environment to serve; pass ids (game:Wordle-v0-hard) or families (babyai:)")
        for name in (
            "lease",
            "max_lease",
            "step_timeout",
            "request_timeout",
            "ping",
            "max_sessions",
            "max_in_flight",
            "max_body",
            "buffer",
            "buffer_per_client",
            "threads",
        ):
            if not getattr(self, name) > 0:
                raise BadValue(f"{name} must be greater than 0, got {getattr(self, name)!r}")
        for name in ("reset_timeout", "sessions_per_client", "rate", "memory"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise BadValue(f"{name} must be greater than 0, or None for no limit; got {getattr(self, name)!r}")
        if not self.max_body <= self.buffer_per_client <= self.buffer:
            raise BadValue(
                "max_body must not exceed buffer_per_client, which must not exceed buffer; "
                f"got {self.max_body}, {self.buffer_per_client} and {self.buffer} bytes"
            )
        if not all(c.isalnum() or c in "-_" for c in self.node):
            raise BadValue(f"node may contain only letters, digits, - and _; got {self.node!r}")

    @property
    def session_quota(self) -> int | None:
        """Maximum number of open sessions per client. By default, one of several clients cannot use all sessions."""
        if self.sessions_per_client is None and len(set(self.tokens.values())) > 1:
            return max(1, self.max_sessions // 2)
        return self.sessions_per_client


def resolve_env_names(names: Iterable[str]) -> tuple[str, ...]:
    """Replace families (`game:`) with their ids, check that all other names exist, and remove duplicates."""
    ids: dict[str, None] = {}
    for name in names:
        if name.endswith(":"):
            ids.update(dict.fromkeys(registry.list_envs(name[:-1])))
        else:
            ids[registry.get_spec(name).id] = None
    return tuple(ids)


def worker_groups(workers: int, pythons: Iterable[str]) -> tuple[Group, ...]:
    """Return one group of workers per interpreter in `pythons` (FAMILY=PATH) and one group for all other families."""
    by_path: dict[str, set[str]] = {}
    for entry in pythons:
        family, equals, path = entry.partition("=")
        family = family.rstrip(":")
        if not (family and equals and path):
            raise BadValue(f"--python must be FAMILY=INTERPRETER, e.g. sciworld=/opt/sci/bin/python; got {entry!r}")
        if not Path(path).is_file():
            raise BadValue(f"--python {entry}: {path} does not exist")
        by_path.setdefault(path, set()).add(family)
    if workers < 1:
        raise BadValue(f"workers must be at least 1, got {workers}")
    groups = [Group(families=frozenset(families), python=path, workers=workers) for path, families in by_path.items()]
    return (*groups, Group(families=frozenset(), workers=workers))


def read_tokens(path: str | Path) -> dict[str, str]:
    """Read a file with one `token` or `name token` per line, and return a dict from tokens to client names."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise BadValue(f"cannot read the token file {path}: {err}") from err
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise BadValue(f"{path}, line {number}: expected `token` or `name token`, got {len(words)} words")
        token = words[-1]
        if len(token) < MIN_TOKEN_LENGTH:
            raise BadValue(
                f"{path}, line {number}: a token must have at least {MIN_TOKEN_LENGTH} characters; "
                "create one with `openssl rand -hex 16`"
            )
        tokens[token] = words[0] if len(words) == 2 else f"client{number}"
    if not tokens:
        raise BadValue(f"{path} contains no token; create one with `openssl rand -hex 16 > {path}`")
    return tokens


_RESERVED = frozenset({"tools", "wrappers", "max_tool_calls", "seed"})
_FILE_CHARACTERS = "/\\.~:\0"
_MAX_TEXT = 1_000
_MAX_DEPTH = 4


def check_keywords(keywords: Mapping[str, object], *, unrestricted: bool = False) -> None:
    """Raise BadValue if a client's keyword arguments could refer to a file or start a program on the server.

    Clients may send numbers, booleans and short strings. With `unrestricted`, any string is allowed.
    """
    for name, value in keywords.items():
        if name in _RESERVED and not unrestricted:
            raise BadValue(f"clients cannot set {name!r}; only the server can")
        _check_value(name, value, 0, unrestricted)


def _check_value(name: str, value: object, depth: int, unrestricted: bool) -> None:
    if isinstance(value, str):
        if unrestricted:
            return
        if not set(value).isdisjoint(_FILE_CHARACTERS) or len(value) > _MAX_TEXT:
            raise BadValue(
                f"{name}: strings from clients may have at most {_MAX_TEXT} characters and must not contain / \\ . ~ "
                "or :, because they could be file names; start the server with --any-kwargs to allow such strings"
            )
    elif isinstance(value, dict | list) and depth < _MAX_DEPTH:
        for item in value.items() if isinstance(value, dict) else value:
            for part in item if isinstance(item, tuple) else (item,):
                _check_value(name, part, depth + 1, unrestricted)
    elif not (value is None or isinstance(value, bool | int | float)):
        raise BadValue(
            f"{name}: clients may send only null, numbers, booleans, strings, and lists and objects of these, "
            f"nested at most {_MAX_DEPTH} levels deep"
        )
