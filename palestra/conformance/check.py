"""check_env: run every law over one environment and report, or raise with the broken law and how to see it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from palestra.conformance import invariants
from palestra.conformance.rates import Player, Rate
from palestra.conformance.recording import TOTAL, Subject, Tape
from palestra.core import Env
from palestra.errors import BadValue
from palestra.registry import get_spec, make

SEEDS = (*range(1, 500), 2**40 + 1)  # episodes are drawn from these in order


@dataclass(slots=True)
class Report:
    """What was proven and measured."""

    name: str
    passed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be checked, and why
    expert: Rate | None = None
    random: Rate | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.name}: sound ({len(self.passed)} checks, {self.seconds:.1f} s)"]
        if self.expert is not None:
            lines.append(f"  expert {self.expert}")
        if self.random is not None:
            lines.append(f"  random {self.random}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def check_env(
    target: str | Env | Callable[..., Env],
    *,
    kwargs: Mapping[str, Any] | None = None,
    episodes: int = 40,
    seconds: float = 10.0,
    allow: Collection[str] = (),
    processes: bool = True,
    step_timeout: float = 20.0,
) -> Report:
    """Prove the laws of the design on `target`: an id, an Env, or a class or function that makes one from `kwargs`.

    Raises ConformanceError with the broken law, the defect, and code that shows it. `episodes` are played by each
    player, at least three, for at most about `seconds`. `allow` lists what an env may consult all the same ("clock").
    `processes` False leaves out the replays in fresh interpreters. A call that takes longer than
    `step_timeout` counts as a hang.
    """
    subject = _subject(target, dict(kwargs or {}))
    report = Report(subject.code if subject.spec is None else subject.spec.id)
    started = monotonic()
    _guarded(subject, step_timeout, lambda: _run(subject, report, episodes, seconds, frozenset(allow), processes))
    report.seconds = monotonic() - started
    return report


def _run(
    subject: Subject, report: Report, episodes: int, seconds: float, allow: frozenset[str], processes: bool
) -> None:
    def passed(name: str) -> None:
        report.passed.append(name)

    random_tapes = _record(subject, "random", episodes, seconds)
    report.random = _rate(random_tapes)
    expert_tapes: list[Tape] = []
    if invariants.has_expert(subject):
        expert_tapes = _record(subject, "expert", episodes, seconds)
        report.expert = _rate(expert_tapes)
    else:
        report.notes.append("it ships no expert, so whether it can be solved was not checked")
    tapes = [tape for pair in zip(expert_tapes, random_tapes, strict=False) for tape in pair] or random_tapes
    tapes = sorted(tapes[:12], key=lambda tape: len(tape.actions))[:8]  # short ones say as much
    invariants.watched(subject, allow)  # first, as it names the cause where the replays only see the effect
    invariants.determinism(subject, tapes)
    passed("law 1: determinism")
    invariants.flags(subject, tapes)
    invariants.normalised(subject, expert_tapes)
    passed("law 3: flags and rewards")
    invariants.any_action(subject)
    passed("law 2: any action")
    if invariants.expert_peeks(subject):
        report.notes.append("its expert knows what is hidden, as it says itself, so peeking was not checked")
    else:
        invariants.no_peeking(subject, expert_tapes)
    if report.expert is not None:
        invariants.rate(subject, "expert", report.expert)
    if report.random is not None:
        invariants.rate(subject, "random", report.random)
    invariants.empty_answers(subject)
    passed("law 4: validity")
    invariants.forks(subject, tapes)
    passed("law 5: fork")
    invariants.prompt(subject, tapes)
    passed("law 6: prompt")
    invariants.tidiness(subject)
    passed("tidiness")
    if not processes:
        report.notes.append("replays in fresh processes were left out")
    elif subject.recipe is None:
        report.notes.append("it cannot be imported by name, so it was not replayed in a fresh process")
    else:
        invariants.elsewhere(subject, subject.recipe, tapes)
        passed("laws 1 and 5 across processes")


def _record(subject: Subject, player: Player, episodes: int, seconds: float) -> list[Tape]:
    tapes: list[Tape] = []
    end = monotonic() + seconds
    with subject.make() as env:
        for seed in SEEDS[:episodes]:
            if len(tapes) >= 3 and monotonic() > end:
                break
            tapes.append(subject.record(env, seed, player))
    return tapes


def _rate(tapes: list[Tape]) -> Rate | None:
    finished = [tape.success for tape in tapes if tape.success is not None]
    return Rate(sum(finished), len(finished)) if finished else None


def _subject(target: object, kwargs: dict[str, Any]) -> Subject:
    given = "".join(f", {name}={value!r}" for name, value in kwargs.items())
    if isinstance(target, str):
        spec = get_spec(target)
        stated = None if kwargs else spec  # the stated figures are of the registered keywords
        recipe: dict[str, Any] | None = {"id": target, "kwargs": kwargs}
        if not _importable(*spec.entry_point.split(":")):
            recipe = None
        return Subject(lambda: make(target, **kwargs), f"palestra.make({target!r}{given})", stated, recipe)
    if isinstance(target, Env):
        if kwargs:
            raise BadValue("kwargs go with an id or a class; this env is made already")
        code = repr(target) if target.spec is None else f"palestra.make({target.spec.id!r})"
        args, named = target._call
        return Subject(target.spawn, code, target.spec, _recipe(type(target), args, named))
    if callable(target):
        code = f"{getattr(target, '__name__', repr(target))}({given.removeprefix(', ')})"
        return Subject(lambda: _made(target, kwargs), code, None, _recipe(target, (), kwargs))
    raise BadValue(f"check_env takes an id, an Env, or what makes one, got {target!r}")


def _made(target: Callable[..., Any], kwargs: dict[str, Any]) -> Env:
    env = target(**kwargs)
    if not isinstance(env, Env):
        raise BadValue(f"{target!r} made a {type(env).__name__}, not a palestra.Env")
    return env


def _recipe(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """How another process can make it, where it can."""
    import pickle

    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if module is None or name is None or not _importable(module, name):
        return None
    recipe = {"module": module, "name": name, "args": args, "kwargs": kwargs}
    try:
        pickle.dumps(recipe)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return recipe


def _importable(module: str, name: str) -> bool:
    return module != "__main__" and "<" not in name


def _guarded(subject: Subject, step_timeout: float, work: Callable[[], None]) -> None:
    """Run `work` beside a watchdog: Python cannot interrupt a thread that hangs, but it can say where it does."""
    failure: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as err:  # noqa: BLE001  # raised again in the caller's thread
            failure.append(err)

    worker = threading.Thread(target=body, name="check_env", daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.1)
            since = subject.busy_since
            if since and monotonic() - since > step_timeout:
                seed, actions = subject.doing
                subject.broken(TOTAL, f"a call hangs: no answer within {step_timeout:g} s", seed, actions)
    finally:
        if worker.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(SystemExit))
    if failure:
        raise failure[0]
