"""What a server serves and what it lets clients take; checked once, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palestra import registry
from palestra.errors import BadValue
from palestra.server.worker_pool import Group

FEW = 8  # tokens shorter than that are guessed


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one server. Times are in seconds."""

    envs: tuple[str, ...]  # the ids that are served
    groups: tuple[Group, ...] = (Group(families=frozenset()),)
    imports: tuple[str, ...] = ()  # modules that register environments
    tokens: Mapping[str, str] = field(default_factory=dict)  # token -> whose it is; empty: nobody is asked
    any_host: bool = False  # requests are taken whatever name they were sent to
    any_kwargs: bool = False  # clients may give keywords that name files
    node: str = ""  # begins every session's name, for balancers that route by path
    lease: float = 600.0  # of a session, unless the client asks for another
    longest_lease: float = 86_400.0
    step_timeout: float = 120.0  # of one call in an environment; then the session is lost
    request_timeout: float = 60.0  # for a request to arrive, and for its answer to be taken
    ping: float = 20.0  # between questions to sockets whether they are still there, and to answer one
    max_sessions: int = 4_096
    sessions_per_client: int | None = None
    rate: float | None = None  # requests a second and client
    max_in_flight: int = 4_096
    max_body: int = 16 << 20  # bytes
    threads: int = 64  # slow calls at once, in one worker
    memory: int | None = None  # bytes for one worker

    def __post_init__(self) -> None:
        if not self.envs:
            raise BadValue("name what to serve: ids (game:Wordle-v0-hard) or families (babyai:)")
        for name in (
            "lease",
            "longest_lease",
            "step_timeout",
            "request_timeout",
            "ping",
            "max_sessions",
            "max_in_flight",
            "max_body",
            "threads",
        ):
            if not getattr(self, name) > 0:
                raise BadValue(f"{name} is above 0, got {getattr(self, name)!r}")
        for name in ("sessions_per_client", "rate", "memory"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise BadValue(f"{name} is above 0, or None for no limit, got {getattr(self, name)!r}")
        if not all(c.isalnum() or c in "-_" for c in self.node):
            raise BadValue(f"a node's name is made of letters, digits, - and _, got {self.node!r}")


def served_ids(names: Iterable[str]) -> tuple[str, ...]:
    """Ids, and families written `game:`, as ids; each once."""
    found: dict[str, None] = {}
    for name in names:
        if name.endswith(":"):
            found.update(dict.fromkeys(registry.list_envs(name[:-1])))
        else:
            found[registry.get_spec(name).id] = None
    return tuple(found)


def groups_of(workers: int, pythons: Iterable[str]) -> tuple[Group, ...]:
    """`FAMILY=PATH` of an interpreter each, and this one for everything else."""
    by_path: dict[str, set[str]] = {}
    for given in pythons:
        family, equals, path = given.partition("=")
        family = family.rstrip(":")
        if not (family and equals and path):
            raise BadValue(f"--python reads FAMILY=INTERPRETER, as in sciworld=/opt/sci/bin/python; got {given!r}")
        if not Path(path).is_file():
            raise BadValue(f"--python {given}: there is no {path}")
        by_path.setdefault(path, set()).add(family)
    if workers < 1:
        raise BadValue(f"workers is at least 1, got {workers}")
    own = [Group(families=frozenset(f), python=path, workers=workers) for path, f in by_path.items()]
    return (*own, Group(families=frozenset(), workers=workers))


def read_tokens(path: str | Path) -> dict[str, str]:
    """A file with a token a line, or `name token`; # begins a comment. -> token: name."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise BadValue(f"the token file {path} cannot be read: {err}") from err
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise BadValue(f"{path}, line {number}: a line holds a token, or a name and a token")
        token = words[-1]
        if len(token) < FEW:
            raise BadValue(
                f"{path}, line {number}: a token has at least {FEW} characters; `openssl rand -hex 16` makes one"
            )
        found[token] = words[0] if len(words) == 2 else f"client{number}"
    if not found:
        raise BadValue(f"{path} holds no token; `openssl rand -hex 16 > {path}` makes one")
    return found


_RESERVED = frozenset({"tools", "wrappers", "max_tool_calls", "seed"})


def check_keywords(given: Mapping[str, object], *, any_words: bool = False) -> None:
    """Refuse what could reach a file or start a program: a client's keywords are numbers, switches and plain words.

    With `any_words` they may name files, and are still plain data.
    """
    for name, value in given.items():
        if name in _RESERVED and not any_words:
            raise BadValue(f"a client cannot give {name!r}; the server's own settings say that")
        _check_value(name, value, 0, any_words)


def _check_value(name: str, value: object, depth: int, any_words: bool) -> None:
    if isinstance(value, str):
        if any_words:
            return
        if not set(value).isdisjoint("/\\.~:\0") or len(value) > 1_000:
            raise BadValue(
                f"{name}: a client's words have no / \\ . ~ or :, since they could name a file of the server's"
            )
    elif isinstance(value, dict | list) and depth < 4:
        for item in value.items() if isinstance(value, dict) else value:
            for part in item if isinstance(item, tuple) else (item,):
                _check_value(name, part, depth + 1, any_words)
    elif not (value is None or isinstance(value, bool | int | float)):
        raise BadValue(f"{name}: a client gives numbers, switches and plain words, nested at most four deep")
