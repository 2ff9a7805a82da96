"""A TOML file, or ids -> the environments to be evaluated on, how often, from which seeds, sampled how.

```toml
summary = "what it asks"
n = 50                              # tasks of each environment
k = 1                               # attempts at each
seed = 0                            # tasks have the seeds from here on
turns = 20                          # at most, then the episode is cut short
category = "game"                   # of all; by default the family of the id

[sampling]
temperature = 0.7

[[env]]
id = "game:Sudoku-v0-easy"
kwargs = { max_turns = 9 }          # anything above may be said again for one environment, level and kwargs only here
level = "easy"                      # by default the variant of the id
seeds = [3, 1, 4]                   # instead of n and seed
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from palestra.engines.base import Sampling
from palestra.errors import BadValue
from palestra.registry import get_spec
from palestra.rollout.types import Task

N, K, SEED = 100, 1, 0
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop")
_SHARED = ("n", "k", "seed", "turns", "category", "sampling")
_OWN = (*_SHARED, "id", "kwargs", "level", "seeds")
_TOP = (*_SHARED, "summary", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One environment of an evaluation."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # for `make`; "tools" among them
    seeds: tuple[int, ...]  # a task each
    k: int = K  # attempts at a task
    turns: int | None = None  # the horizon
    category: str = ""
    level: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)  # what differs from the agent's own

    @property
    def name(self) -> str:
        """Id, and the keywords that were changed."""
        given = ", ".join(f"{key}={value!r}" for key, value in sorted(self.kwargs.items()))
        return f"{self.id}({given})" if given else self.id

    def tasks(self, index: int) -> list[Task]:
        """Its episodes; `index` is its place in the evaluation. The agent's chance follows from seed and attempt."""
        options = {} if self.turns is None else {"horizon": self.turns}
        return [
            Task(
                env_id=self.id,
                kwargs=self.kwargs,
                seed=seed,
                options=options,
                group=group,
                member=member,
                meta={"entry": index},
            )
            for group, seed in enumerate(self.seeds)
            for member in range(self.k)
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data; a run of seeds as its first and its length."""
        first = self.seeds[0]
        plain = self.seeds == tuple(range(first, first + len(self.seeds)))
        seeds = {"first": first, "count": len(self.seeds)} if plain else list(self.seeds)
        return {**asdict(self), "kwargs": dict(self.kwargs), "sampling": dict(self.sampling), "seeds": seeds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        seeds = data["seeds"]
        if isinstance(seeds, Mapping):
            seeds = range(seeds["first"], seeds["first"] + seeds["count"])
        known = {item.name for item in fields(cls)}
        return cls(**{**{key: value for key, value in data.items() if key in known}, "seeds": tuple(seeds)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What is evaluated, by name."""

    name: str
    entries: tuple[Entry, ...]
    summary: str = ""

    @property
    def episodes(self) -> int:
        return sum(len(entry.seeds) * entry.k for entry in self.entries)

    def tasks(self) -> list[Task]:
        return [task for index, entry in enumerate(self.entries) for task in entry.tasks(index)]


def shipped() -> list[str]:
    """The names of the suites that come with the package."""
    folder = files("palestra.evals").joinpath("suites")
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load(name: str) -> Suite:
    """`suite:NAME` of the package's own, or the path of a TOML file."""
    if name.startswith("suite:"):
        short = name.removeprefix("suite:")
        if short not in shipped():
            near = get_close_matches(short, shipped(), n=1)
            hint = f" Did you mean suite:{near[0]}?" if near else ""
            raise BadValue(
                f"no suite {short!r}.{hint} There are {', '.join(shipped())}, and any TOML file by its path."
            )
        text, where = files("palestra.evals").joinpath(f"suites/{short}.toml").read_text(encoding="utf-8"), name
    else:
        path = Path(name)
        short, where = path.stem, str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise BadValue(f"the suite {path} cannot be read: {err}") from err
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise BadValue(f"{where} is not TOML: {err}") from err
    return parse(data, name=short, where=where)


def parse(data: Mapping[str, Any], *, name: str, where: str) -> Suite:
    """The suite that `data` describes; misspelt settings are refused with the nearest name."""
    _refuse_unknown(data, _TOP, where)
    envs = data.get("env")
    if not isinstance(envs, list) or not envs or not all(isinstance(env, Mapping) for env in envs):
        raise BadValue(f'{where}: name its environments, each as [[env]] with id = "..."')
    shared = {key: data[key] for key in _SHARED if key in data}
    entries = []
    for env in envs:
        _refuse_unknown(env, _OWN, f"{where}, [[env]]")
        sampling = {**shared.get("sampling", {}), **env.get("sampling", {})}
        entries.append(entry(**{**shared, **env, "sampling": sampling}, where=where))
    return Suite(name=name, entries=tuple(entries), summary=str(data.get("summary", "")))


def entry(
    id: str = "",  # noqa: A002  # the file's own word
    *,
    kwargs: Mapping[str, Any] | None = None,
    n: int = N,
    k: int = K,
    seed: int = SEED,
    seeds: Sequence[int] | None = None,
    turns: int | None = None,
    category: str = "",
    level: str = "",
    sampling: Mapping[str, Any] | None = None,
    where: str = "an evaluation",
) -> Entry:
    """An environment with its seeds, checked."""
    parts = get_spec(id).parts
    for word, value, least in (("n", n, 1), ("k", k, 1), ("seed", seed, 0), ("turns", turns, 1)):
        if not (word == "turns" and value is None) and (type(value) is not int or value < least):
            raise BadValue(f"{where}: {word} is a whole number from {least} up, got {value!r}")
    if seeds is not None:
        right = isinstance(seeds, (list, tuple, range)) and all(type(one) is int and one >= 0 for one in seeds)
        if not right or not seeds or len(set(seeds)) < len(seeds):
            raise BadValue(f"{where}: seeds are different whole numbers from 0 up, got {seeds!r}")
    _refuse_unknown(sampling or {}, SAMPLING, f"{where}, sampling")
    return Entry(
        id=id,
        kwargs=dict(kwargs or {}),
        seeds=tuple(range(seed, seed + n) if seeds is None else seeds),
        k=k,
        turns=turns,
        category=category or parts.family,
        level=level or parts.variant or "",
        sampling=dict(sampling or {}),
    )


def changed(suite: Suite, *, kwargs: Mapping[str, Any], **given: Any) -> Suite:
    """The suite with what a command says otherwise: n, k, seed, turns for all, keywords added; None: as it is."""
    said = {key: value for key, value in given.items() if value is not None}
    for word, least in (("n", 1), ("seed", 0)):
        if word in said and said[word] < least:
            raise BadValue(f"{word} is a whole number from {least} up, got {said[word]}")
    entries = []
    for one in suite.entries:
        seeds = list(one.seeds)
        if "n" in said or "seed" in said:
            # A list of chosen seeds is cut to n; a run of them begins where the command says.
            first, count = said.get("seed", seeds[0]), said.get("n", len(seeds))
            plain = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
            seeds = list(range(first, first + count)) if plain or "seed" in said else seeds[:count]
        made = entry(
            one.id,
            kwargs={**one.kwargs, **kwargs},
            seeds=seeds,
            k=said.get("k", one.k),
            turns=said.get("turns", one.turns),
            category=one.category,
            level=one.level,
            sampling=one.sampling,
            where="the command",
        )
        entries.append(made)
    return replace(suite, entries=tuple(entries))


def sampled(base: Sampling, given: Mapping[str, Any]) -> Sampling:
    """How to sample, with an environment's own settings."""
    said = dict(given)
    if "stop" in said:
        said["stop"] = (said["stop"],) if isinstance(said["stop"], str) else tuple(said["stop"])
    try:
        return replace(base, **said)
    except TypeError as err:
        raise BadValue(f"sampling: {err}") from err


def _refuse_unknown(data: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(known)}."
            raise BadValue(f"{where}: there is no setting {key!r}.{hint}")
