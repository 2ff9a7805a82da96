"""Evaluation suites: environments, seeds, attempts and sampling settings, from a TOML file or from ids.

```toml
summary = "Logic puzzles at two levels."
n = 50                              # tasks per environment; "all" (default for datasets) plays every row once
k = 1                               # attempts per task
seed = 0                            # first task seed; tasks use consecutive seeds
turns = 20                          # maximum number of turns; longer episodes are truncated
category = "game"                   # default: the id's family

[sampling]
temperature = 0.7

[[env]]
id = "game:Sudoku-v0-easy"
kwargs = { max_turns = 9 }          # an entry may override all of the above, and add kwargs, level and seeds
level = "easy"                      # default: the id's variant
seeds = [3, 1, 4]                   # replaces n and seed
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from palestra.engines.base import Sampling
from palestra.errors import BadValue
from palestra.evals.published import Published, parse_published
from palestra.registry import make, resolve_spec, with_split
from palestra.rollout.types import Task

N, K, SEED = 100, 1, 0
ALL: Literal["all"] = "all"
TaskCount = int | Literal["all"]
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop")
_SHARED = ("n", "k", "seed", "turns", "category", "sampling")
_OWN = (*_SHARED, "id", "kwargs", "level", "seeds")
_TOP = (*_SHARED, "summary", "env", "published", "differences")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteEntry:
    """One environment in a suite."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments for `make`, including "tools"
    seeds: tuple[int, ...]  # one task per seed
    every_task: bool = False  # play every task once; `resolve_tasks` replaces `seeds`, which holds the first seed
    k: int = K  # attempts per task
    turns: int | None = None  # maximum number of turns
    category: str = ""
    level: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)  # overrides of the agent's sampling settings

    @property
    def name(self) -> str:
        """Environment id with the overridden keyword arguments; the default split is omitted."""
        shown = {key: value for key, value in self.kwargs.items() if (key, value) != ("split", "test")}
        given = ", ".join(f"{key}={value!r}" for key, value in sorted(shown.items()))
        return f"{self.id}({given})" if given else self.id

    def tasks(self, index: int) -> list[Task]:
        """Return the tasks of this entry; `index` is its position in the suite."""
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
        """Return the entry as JSON-compatible data; consecutive seeds are stored as the first seed and a count."""
        first = self.seeds[0]
        plain = self.seeds == tuple(range(first, first + len(self.seeds)))
        seeds = {"first": first, "count": len(self.seeds)} if plain else list(self.seeds)
        data = {**asdict(self), "kwargs": dict(self.kwargs), "sampling": dict(self.sampling), "seeds": seeds}
        del data["every_task"]  # the seeds of a stored entry are known
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SuiteEntry:
        seeds = data["seeds"]
        if isinstance(seeds, Mapping):
            seeds = range(seeds["first"], seeds["first"] + seeds["count"])
        known = {item.name for item in fields(cls)}
        return cls(**{**{key: value for key, value in data.items() if key in known}, "seeds": tuple(seeds)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named list of environments to evaluate on."""

    name: str
    entries: tuple[SuiteEntry, ...]
    summary: str = ""
    published: Published = field(default_factory=Published)  # results from papers to print next to the measured ones

    @property
    def episodes(self) -> int:
        """Number of episodes, excluding entries whose number of tasks is not known yet."""
        return sum(len(entry.seeds) * entry.k for entry in self.entries if not entry.every_task)

    def tasks(self) -> list[Task]:
        return [task for index, entry in enumerate(self.entries) for task in entry.tasks(index)]


def builtin_suites() -> list[str]:
    """Return the names of the built-in suites."""
    folder = files(__package__).joinpath("suites")
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """Load a built-in suite (`suite:NAME`) or a suite from a TOML file."""
    if name.startswith("suite:"):
        short = name.removeprefix("suite:")
        if short not in builtin_suites():
            near = get_close_matches(short, builtin_suites(), n=1)
            hint = f" Did you mean suite:{near[0]}?" if near else ""
            raise BadValue(
                f"no suite {short!r}.{hint} Built-in suites: {', '.join(builtin_suites())}. "
                "To use a suite file, pass its path."
            )
        text, where = files(__package__).joinpath(f"suites/{short}.toml").read_text(encoding="utf-8"), name
    else:
        path = Path(name)
        short, where = path.stem, str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise BadValue(f"cannot read the suite {path}: {err}") from err
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise BadValue(f"{where} is not TOML: {err}") from err
    return parse(data, name=short, where=where)


def parse(data: Mapping[str, Any], *, name: str, where: str) -> Suite:
    """Build the suite described by `data`; raise BadValue for unknown settings and suggest the most similar name."""
    _refuse_unknown(data, _TOP, where)
    envs = data.get("env")
    if not isinstance(envs, list) or not envs or not all(isinstance(env, Mapping) for env in envs):
        raise BadValue(f'{where}: list the environments, each as an [[env]] table with id = "..."')
    shared = {key: data[key] for key in _SHARED if key in data}
    entries = []
    for env in envs:
        _refuse_unknown(env, _OWN, f"{where}, [[env]]")
        sampling = {**shared.get("sampling", {}), **env.get("sampling", {})}
        kwargs = dict(env.get("kwargs", {}))
        if kwargs.get("split") == ALL:  # TOML has no None
            kwargs["split"] = None
        entries.append(suite_entry(**{**shared, **env, "sampling": sampling, "kwargs": kwargs}, where=where))
    known = [name for entry in entries for name in (entry.id, entry.category)]
    published = parse_published(data.get("published", []), data.get("differences", []), known, where)
    return Suite(name=name, entries=tuple(entries), summary=str(data.get("summary", "")), published=published)


def suite_entry(
    id: str = "",  # noqa: A002  # same name as the key in the TOML file
    *,
    kwargs: Mapping[str, Any] | None = None,
    n: TaskCount | None = None,
    k: int = K,
    seed: int = SEED,
    seeds: Sequence[int] | None = None,
    turns: int | None = None,
    category: str = "",
    level: str = "",
    sampling: Mapping[str, Any] | None = None,
    where: str = "an evaluation",
) -> SuiteEntry:
    """Validate a suite entry's settings and build it; by default, `n` is "all" for datasets and 100 otherwise."""
    spec = resolve_spec(id, kwargs)
    parts = spec.parts
    if n is None:
        n = ALL if spec.needs_data else N
    for word, value, least in (("n", n, 1), ("k", k, 1), ("seed", seed, 0), ("turns", turns, 1)):
        allowed = (word == "turns" and value is None) or (word == "n" and value == ALL)
        if not allowed and (type(value) is not int or value < least):
            also = ' or "all"' if word == "n" else ""
            raise BadValue(f"{where}: {word} must be an integer of at least {least}{also}, got {value!r}")
    if seeds is not None:
        right = isinstance(seeds, (list, tuple, range)) and all(type(one) is int and one >= 0 for one in seeds)
        if not right or not seeds or len(set(seeds)) < len(seeds):
            raise BadValue(f"{where}: seeds must be distinct non-negative integers, got {seeds!r}")
    _refuse_unknown(sampling or {}, SAMPLING, f"{where}, sampling")
    return SuiteEntry(
        id=id,
        kwargs=with_split(id, kwargs or {}, "test"),
        seeds=tuple(seeds) if seeds is not None else (seed,) if n == ALL else tuple(range(seed, seed + int(n))),
        every_task=seeds is None and n == ALL,
        k=k,
        turns=turns,
        category=category or parts.family,
        level=level or parts.variant or "",
        sampling=dict(sampling or {}),
    )


def with_overrides(suite: Suite, *, kwargs: Mapping[str, Any], **settings: Any) -> Suite:
    """Return the suite with keyword arguments added, and with n, k, seed and turns overridden unless they are None."""
    overrides = {key: value for key, value in settings.items() if value is not None}
    for word, least in (("n", 1), ("seed", 0)):
        if overrides.get(word, least) != ALL and overrides.get(word, least) < least:
            raise BadValue(f"{word} must be an integer of at least {least}, got {overrides[word]}")
    entries = []
    for entry in suite.entries:
        seeds = list(entry.seeds)
        first, count = overrides.get("seed", seeds[0]), overrides.get("n", ALL if entry.every_task else len(seeds))
        if count != ALL and ("n" in overrides or "seed" in overrides):
            # An explicit list of seeds is truncated to n; consecutive seeds start at `seed`.
            plain = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
            seeds = list(range(first, first + count)) if plain or "seed" in overrides else seeds[:count]
        entries.append(
            suite_entry(
                entry.id,
                kwargs={**entry.kwargs, **kwargs},
                n=ALL if count == ALL else None,
                seed=first,
                seeds=None if count == ALL else seeds,
                k=overrides.get("k", entry.k),
                turns=overrides.get("turns", entry.turns),
                category=entry.category,
                level=entry.level,
                sampling=entry.sampling,
                where="the command",
            )
        )
    return replace(suite, entries=tuple(entries))


def resolve_tasks(suite: Suite) -> Suite:
    """Determine the seeds for entries with `n = "all"`; raise BadValue if a task from a fixed set would be repeated.

    Environments without a dataset are checked only for more than 100 tasks, because the check builds an environment.
    """
    return replace(suite, entries=tuple(map(_with_known_seeds, suite.entries)))


def _with_known_seeds(entry: SuiteEntry) -> SuiteEntry:
    spec = resolve_spec(entry.id, entry.kwargs)
    if not (entry.every_task or spec.needs_data or len(entry.seeds) > N):
        return entry
    with make(entry.id, **entry.kwargs) as env:
        total = env.num_tasks
    if total is None:
        if not entry.every_task:
            return entry
        if not spec.needs_data:
            raise BadValue(f'{entry.name} has a new task for every seed, so n cannot be "all"; pass a number: -n {N}')
        return replace(entry, seeds=tuple(range(entry.seeds[0], entry.seeds[0] + N)), every_task=False)
    if entry.every_task:  # every block of `total` seeds that starts at a multiple of `total` covers each row once
        first = entry.seeds[0] - entry.seeds[0] % total
        return replace(entry, seeds=tuple(range(first, first + total)), every_task=False)
    if len(entry.seeds) > total:
        raise BadValue(
            f"{entry.name} has {total} tasks, fewer than n = {len(entry.seeds)}. To play each task once, use -n all "
            '(n = "all" in a suite file); for several attempts per task, use -k'
        )
    first, last = min(entry.seeds), max(entry.seeds)
    if entry.kwargs.get("shuffle") is False and last >= total:  # seeds are row numbers
        raise BadValue(f"{entry.name} has rows 0 to {total - 1}, but row {last} is requested; use a larger dataset")
    if first // total != last // total:
        raise BadValue(
            f"{entry.name} has {total} tasks, and seeds {first} to {last} may select a task twice: they must lie "
            f"between two multiples of {total}. Use --seed {first - first % total}, or -n all"
        )
    return entry


def with_sampling(base: Sampling, settings: Mapping[str, Any]) -> Sampling:
    """Return `base`, overridden with a suite entry's sampling settings."""
    overrides = dict(settings)
    if "stop" in overrides:
        overrides["stop"] = (overrides["stop"],) if isinstance(overrides["stop"], str) else tuple(overrides["stop"])
    try:
        return replace(base, **overrides)
    except TypeError as err:
        raise BadValue(f"sampling: {err}") from err


def _refuse_unknown(data: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else f" Known settings: {', '.join(known)}."
            raise BadValue(f"{where}: unknown setting {key!r}.{hint}")
