"""Check an environment's invariants; return a report, or raise an error with code that reproduces the defect."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from palestra.conformance import invariants
from palestra.conformance.players import constant_strategies, echo_strategies
from palestra.conformance.rates import Player, Rate, best_rate
from palestra.conformance.recording import ANY_ACTION, Recording, Subject
from palestra.conformance.splits import splits
from palestra.core import Env
from palestra.errors import BadValue
from palestra.interrupt import raise_in_thread
from palestra.registry import EnvFactory, get_spec, resolve_spec
from palestra.spec import SPLITS, EnvSpec

SEEDS = (*range(1, 500), 2**40 + 1)  # seeds of the episodes, used in this order
UNEARNED_EPISODES = 8  # number of episodes for the spot checks with the echo and constant players
UNEARNED_SECONDS = 0.15  # seconds per spot check with the echo and constant players


@dataclass(slots=True)
class Report:
    """Result of `check_env`: the invariants that passed and the measured success rates."""

    name: str
    passed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # checks that were skipped, with the reason
    expert: Rate | None = None
    random: Rate | None = None
    echo: Rate | None = None  # rate of the best strategy, measured in a few episodes
    constant: Rate | None = None  # rate of the best strategy, measured in a few episodes
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.name}: passed ({len(self.passed)} checks, {self.seconds:.1f} s)"]
        rates = {"expert": self.expert, "random": self.random, "echo": self.echo, "constant": self.constant}
        lines += [f"  {player} {rate}" for player, rate in rates.items() if rate is not None]
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
    reset_timeout: float | None = None,
) -> Report:
    """Check that `target` satisfies all invariants: a name, an Env, or a callable that builds an Env from `kwargs`.

    Raises `ConformanceError` with the violated invariant, the defect, and code that reproduces it. Each player (random
    and expert) plays up to `episodes` episodes, but stops after about `seconds` seconds if it has played three or more.
    `allow` lists sources other than the seed that the environment may read ("clock"). `processes=False` skips the
    replays in fresh interpreters. A call that takes longer than `step_timeout` seconds is reported as a hang;
    `reset_timeout` is the limit for `reset` (default: `step_timeout`).
    """
    subject = _subject(target, dict(kwargs or {}))
    report = Report(subject.code if subject.spec is None else subject.spec.id)
    started = monotonic()
    _run_with_watchdog(
        subject,
        step_timeout,
        step_timeout if reset_timeout is None else reset_timeout,
        lambda: _run(subject, report, episodes, seconds, frozenset(allow), processes),
    )
    report.seconds = monotonic() - started
    return report


def _run(
    subject: Subject, report: Report, episodes: int, seconds: float, allow: frozenset[str], processes: bool
) -> None:
    def passed(name: str) -> None:
        report.passed.append(name)

    random_recordings = _record(subject, "random", episodes, seconds)
    report.random = _rate(random_recordings)
    expert_recordings: list[Recording] = []
    if invariants.has_expert(subject):
        expert_recordings = _record(subject, "expert", episodes, seconds)
        report.expert = _rate(expert_recordings)
    else:
        report.notes.append("the environment has no expert, so solvability was not checked")
    recordings = [
        recording for pair in zip(expert_recordings, random_recordings, strict=False) for recording in pair
    ] or random_recordings
    recordings = sorted(recordings[:12], key=lambda recording: len(recording.actions))[
        :8
    ]  # short episodes reveal the same defects as long ones
    # Side effects are checked first because they cause differences between replays.
    invariants.no_side_effects(subject, allow)
    invariants.determinism(subject, recordings)
    passed("determinism")
    invariants.flags(subject, recordings)
    invariants.solved_return(subject, expert_recordings)
    passed("flags and rewards")
    invariants.forks(subject, recordings)  # must precede `any_action`, which uses forks
    passed("fork")
    invariants.any_action(subject)
    passed("any action")
    if invariants.has_expert_peeks(subject):
        report.notes.append("the environment sets expert_peeks, so the expert may read hidden state")
    else:
        invariants.no_peeking(subject, expert_recordings)
    if report.expert is not None:
        invariants.rate(subject, "expert", report.expert)
    if report.random is not None:
        invariants.rate(subject, "random", report.random)
    invariants.empty_answers(subject)
    splits(subject)
    invariants.prompt(subject, recordings)
    passed("prompt")
    invariants.documented_rates(subject)
    report.echo, report.constant = _unearned_rates(subject, expert_recordings)
    invariants.unearned_rate(subject, "echo", report.echo)
    if report.constant is not None:
        invariants.unearned_rate(subject, "constant", report.constant)
    passed("validity")
    invariants.cleanup(subject)
    passed("cleanup")
    if not processes:
        report.notes.append("replays in fresh processes were skipped because of processes=False")
    elif subject.factory is None:
        report.notes.append("the environment cannot be imported by name, so it was not replayed in a fresh process")
    else:
        invariants.across_processes(subject, subject.factory, recordings)
        passed("determinism and fork across processes")


def _record(subject: Subject, player: Player, episodes: int, seconds: float) -> list[Recording]:
    recordings: list[Recording] = []
    end = monotonic() + seconds
    with subject.make() as env:
        for seed in SEEDS[:episodes]:
            if len(recordings) >= 3 and monotonic() > end:
                break
            recordings.append(subject.record(env, seed, player))
    return recordings


def _unearned_rates(subject: Subject, expert_recordings: list[Recording]) -> tuple[Rate, Rate | None]:
    """Return the success rates of the echo and constant players on a few episodes."""
    limits: dict[str, Any] = {"seconds": UNEARNED_SECONDS, "min_episodes": 0}
    with subject.make() as env:
        subject.reset(env, SEEDS[0])
        echo = best_rate(env, echo_strategies(env), SEEDS[:UNEARNED_EPISODES], **limits)
        if not expert_recordings:
            return echo, None
        strategies = constant_strategies(recording.actions for recording in expert_recordings)
        return echo, best_rate(env, strategies, SEEDS[:UNEARNED_EPISODES], **limits)


def _rate(recordings: list[Recording]) -> Rate | None:
    finished = [recording.success for recording in recordings if recording.success is not None]
    return Rate(sum(finished), len(finished)) if finished else None


def _subject(target: object, kwargs: dict[str, Any]) -> Subject:
    keywords = "".join(f", {name}={value!r}" for name, value in kwargs.items())
    if isinstance(target, str):
        spec = get_spec(target)
        stated = None if kwargs else spec  # the rates in the spec hold only for the registered keyword arguments
        factory = EnvFactory(target, kwargs=kwargs)
        importable = "://" in target or _importable(*spec.entry_point.split(":"))
        return Subject(
            factory,
            f"palestra.make({target!r}{keywords})",
            stated,
            _picklable(factory) if importable else None,
            _split_maker(
                resolve_spec(target, kwargs), lambda split: EnvFactory(target, kwargs={**kwargs, "split": split})()
            ),
        )
    if isinstance(target, Env):
        if kwargs:
            raise BadValue("`kwargs` needs an environment name or class; an Env instance is already constructed")
        code = repr(target) if target.spec is None else f"palestra.make({target.spec.id!r})"
        args, named = target._call
        make_split = _split_maker(target.spec, lambda split: target.spawn(split=split))
        return Subject(target.spawn, code, target.spec, _rebuilder(type(target), args, named), make_split)
    if callable(target):
        code = f"{getattr(target, '__name__', repr(target))}({keywords.removeprefix(', ')})"
        return Subject(lambda: _construct(target, kwargs), code, None, _rebuilder(target, (), kwargs))
    raise BadValue(f"check_env needs an environment name, an Env, or a callable that returns one; got {target!r}")


def _split_maker(spec: EnvSpec | None, maker: Callable[[str | None], Env]) -> Callable[[str | None], Env] | None:
    return maker if spec is not None and set(spec.splits) == set(SPLITS) else None


def _construct(target: Callable[..., Any], kwargs: dict[str, Any]) -> Env:
    env = target(**kwargs)
    if not isinstance(env, Env):
        raise BadValue(f"{target!r} must return a palestra.Env, got {type(env).__name__}")
    return env


def _rebuilder(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Env] | None:
    """Return a callable that builds the environment in a fresh process, or None if a fresh process cannot import it."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if module is None or name is None or not _importable(module, name):
        return None
    return _picklable(partial(target, *args, **kwargs))


def _picklable(factory: Callable[[], Env]) -> Callable[[], Env] | None:
    try:
        pickle.dumps(factory)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return factory


def _importable(module: str, name: str) -> bool:
    return module != "__main__" and "<" not in name


def _run_with_watchdog(subject: Subject, step_timeout: float, reset_timeout: float, work: Callable[[], None]) -> None:
    """Run `work` in a thread and report the call in which it hangs; a hung Python thread cannot be interrupted."""
    failure: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as err:  # noqa: BLE001  # re-raised in the caller's thread
            failure.append(err)

    worker = threading.Thread(target=body, name="check_env", daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.1)
            since = subject.busy_since
            timeout = reset_timeout if subject.resetting else step_timeout
            if since and monotonic() - since > timeout:
                seed, actions = subject.current_call
                subject.fail(ANY_ACTION, f"a call did not return within {timeout:g} s", seed, actions)
    finally:
        if worker.is_alive() and worker.ident is not None:
            raise_in_thread(worker.ident, SystemExit)
    if failure:
        raise failure[0]
