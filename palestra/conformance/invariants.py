"""Check an environment's invariants, with one function per invariant.

Each function raises `ConformanceError` through `Subject.fail` if the environment violates its invariant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from palestra.conformance.hostile_actions import HOSTILE_ACTIONS
from palestra.conformance.rates import Player, Rate
from palestra.conformance.recording import (
    ANY_ACTION,
    CLEANUP,
    DETERMINISM,
    FLAGS,
    FORK,
    PROMPT,
    VALIDITY,
    Recording,
    Subject,
    first_difference,
    replay_actions,
    summarize_step,
)
from palestra.conformance.replay import replay_in_process
from palestra.conformance.side_effects import OpenResources, SideEffectMonitor
from palestra.core import Env
from palestra.errors import EnvFailed, ResetNeeded
from palestra.spec import MAX_UNEARNED, RATES_REASONS, UNBOUNDED

_REASON_NEEDED = (
    f"more than {MAX_UNEARNED:g}. Make rewards harder to earn without solving the task, or state a reason in the spec: "
    'rates_reason="few_answers" or "easy_by_design"'
)


def _expect_same(
    subject: Subject, recording: Recording, again: Sequence[str], where: str, invariant: str = DETERMINISM
) -> None:
    difference = first_difference(recording.record, again)
    if difference is not None:
        turn, first, second = difference
        what = "the prompt" if turn == 0 else f"turn {turn}"
        defect = (
            f"the same seed and actions gave a different result {where}, "
            f"from {what}:\n  {_cut(first)}\n  {_cut(second)}"
        )
        subject.fail(invariant, defect, recording.seed, recording.actions[:turn])


def _cut(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}..."


def determinism(subject: Subject, recordings: list[Recording]) -> None:
    """Check that replays are identical in a new env, in a reused env, interleaved with other envs, and in threads."""
    used = subject.make()
    for recording in recordings:
        with subject.make() as fresh:
            _expect_same(subject, recording, subject.replay(fresh, recording).record, "in a fresh env")
        _expect_same(subject, recording, subject.replay(used, recording).record, "in a reused env")
    used.close()
    _interleaved(subject, recordings)
    _threaded(subject, recordings)
    _unseeded(subject)
    if subject.spec is None or subject.spec.seeded:
        _seed_matters(subject, recordings)


def _interleaved(subject: Subject, recordings: list[Recording]) -> None:
    envs = [subject.make() for _ in recordings]
    records = [[subject.reset(env, recording.seed)] for env, recording in zip(envs, recordings, strict=True)]
    over: set[int] = set()
    for turn in range(max(len(recording.actions) for recording in recordings)):
        for i, (env, recording) in enumerate(zip(envs, recordings, strict=True)):
            if turn < len(recording.actions) and i not in over:
                taken = recording.actions[: turn + 1]
                step = subject.step(env, taken[-1], recording.seed, taken)
                records[i].append(summarize_step(step))
                if step.done:
                    over.add(i)
    for env, recording, record in zip(envs, recordings, records, strict=True):
        _expect_same(subject, recording, record, "when interleaved with other envs")
        env.close()


def _threaded(subject: Subject, recordings: list[Recording]) -> None:
    records: dict[int, list[str]] = {}
    errors: list[BaseException] = []

    def play(i: int, recording: Recording) -> None:
        try:
            with subject.make() as env:
                prompt, _ = env.reset(seed=recording.seed)
                first = prompt if isinstance(prompt, str) else repr(prompt)
                records[i] = [first, *replay_actions(env, recording.actions)]
        except Exception as err:  # noqa: BLE001  # reported below, in the checking thread
            errors.append(err)

    some = recordings[:4]
    threads = [threading.Thread(target=play, args=(i, recording), daemon=True) for i, recording in enumerate(some)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for i, recording in enumerate(some):
        _expect_same(subject, recording, records[i], "in one of several threads")


def _unseeded(subject: Subject) -> None:
    """Check that `reset` without a seed reports the episode's seed, and that this seed reproduces the episode."""
    with subject.make() as env:
        env.reset(seed=5)
        prompt, info = env.reset()
        used_seed = info.get("seed")
        if not isinstance(used_seed, int):
            subject.fail(
                DETERMINISM, f'reset() must return its seed as info["seed"], got {used_seed!r}', 5, (), ["env.reset()"]
            )
        actions: list[str] = []
        record = [prompt]
        for _ in range(3):
            actions.append(env.sample_random_action())
            step = env.step(actions[-1])
            record.append(summarize_step(step))
            if step.done:
                break
        again, _ = env.reset(seed=used_seed)
        if record != [again, *replay_actions(env, actions)]:
            defect = f'reset(seed={used_seed}), the info["seed"] of an unseeded episode, does not repeat it'
            subject.fail(DETERMINISM, defect, used_seed)
        env.reset(seed=5)
        if env.reset()[1].get("seed") != used_seed:
            defect = "the episode after reset(seed=5) differs from run to run"
            subject.fail(DETERMINISM, defect, 5, (), ["env.reset()"])


def _seed_matters(subject: Subject, recordings: list[Recording]) -> None:
    """Check that the same actions do not produce the same episode for every seed."""
    if len({recording.prompt for recording in recordings}) > 1:
        return
    with subject.make() as env:
        for recording in recordings:
            records = set()
            for seed in range(24):
                record = [subject.reset(env, seed)]
                for i, action in enumerate(recording.actions):
                    step = subject.step(env, action, seed, recording.actions[: i + 1])
                    record.append(summarize_step(step))
                    if step.done:
                        break
                records.add(tuple(record))
            if len(records) > 1:
                return
    subject.fail(
        DETERMINISM,
        "the seed is ignored: 24 seeds gave the same episode (set seeded=False in the spec if this is intended)",
        recordings[0].seed,
        recordings[0].actions[:3],
    )


def no_side_effects(subject: Subject, allow: frozenset[str]) -> None:
    """Check that an episode depends only on its seed, not on the clock, a shared random generator or OS randomness."""
    players: list[Player] = ["random", "expert"] if has_expert(subject) else ["random"]
    for player in players:
        with SideEffectMonitor() as monitor, subject.make() as env:
            subject.record(env, 11, player)
        for what, place in monitor.side_effects.items():
            if not any(word in what for word in allow):
                subject.fail(DETERMINISM, f"an episode reads {what}, at {place}; use self.rng", 11)


def has_expert(subject: Subject) -> bool:
    with subject.make() as env:
        subject.reset(env, 0)
        return env.expert_action() is not None


def across_processes(subject: Subject, factory: Callable[[], Env], recordings: list[Recording]) -> None:
    """Check that recordings replay, and snapshots continue, identically in fresh processes with other hash seeds."""
    some = recordings[:6]
    snapshots = []
    for recording in some:
        with subject.make() as env:
            middle = len(recording.actions) // 2
            subject.reset(env, recording.seed)
            for i in range(middle):
                subject.step(env, recording.actions[i], recording.seed, recording.actions[: i + 1])
            try:
                snapshots.append((env.snapshot(), recording.actions[middle:]))
            except Exception as err:  # noqa: BLE001
                subject.fail(
                    FORK, f"snapshot raised {type(err).__name__}: {err}", recording.seed, recording.actions[:middle]
                )
    for hash_seed in (1, 4242):
        try:
            records, continued = replay_in_process(factory, some, snapshots, hash_seed)
        except EnvFailed as err:
            subject.fail(DETERMINISM, f"in a fresh process, {err}", some[0].seed, some[0].actions)
        for recording, record, rest in zip(some, records, continued, strict=True):
            _expect_same(subject, recording, record, f"in a process with PYTHONHASHSEED={hash_seed}")
            moved = [*recording.record[: len(recording.actions) // 2 + 1], *rest]
            _expect_same(subject, recording, moved, "after restoring a snapshot in another process", FORK)


def any_action(subject: Subject) -> None:
    """Check that every hostile action leads to an observation, at the start and in the middle of an episode."""
    with subject.make() as env:
        subject.reset(env, 3)
        _hostile_actions(subject, env, [])
        taken = [env.sample_random_action()]
        if subject.step(env, taken[0], 3, taken).done:
            taken.clear()
            subject.reset(env, 3)
        _hostile_actions(subject, env, taken)


def _hostile_actions(subject: Subject, env: Env, taken: list[str]) -> None:
    """Take each hostile action in a fork, which is faster than a reset if tasks are generated."""
    for _, action in HOSTILE_ACTIONS:
        with env.fork() as fork:
            step = subject.step(fork, action, 3, [*taken, action])
        if len(str(step.observation)) > 100_000:
            subject.fail(ANY_ACTION, "the observation must not echo a huge action", 3, [*taken, action])


def flags(subject: Subject, recordings: list[Recording]) -> None:
    """Check that `step` raises before `reset` and after the last step, and that env and spec agree on rewards."""
    with subject.make() as env:
        try:
            env.step("x")
        except ResetNeeded:
            pass
        except Exception as err:  # noqa: BLE001
            subject.fail(FLAGS, f"step before reset must raise ResetNeeded, not {type(err).__name__}", None, ["x"])
        else:
            subject.fail(FLAGS, "step before reset must raise ResetNeeded; it returned normally", None, ["x"])
        for recording in recordings[:4]:
            if recording.success is not None:
                subject.replay(env, recording)
                subject.must_refuse(env, recording.seed, recording.actions)
    if subject.spec is not None and subject.spec.reward_range not in (env.reward_range, UNBOUNDED):
        defect = f"the spec declares reward_range={subject.spec.reward_range}, but the env has {env.reward_range}"
        subject.fail(FLAGS, defect)


def solved_return(subject: Subject, recordings: list[Recording]) -> None:
    """Check that a solved episode has a return of 1 if the maximum reward is 1."""
    for recording in recordings:
        high = max(1.0, *recording.rewards)
        if recording.success and high == 1.0 and min(recording.rewards) >= 0 and abs(sum(recording.rewards) - 1) > 1e-6:
            defect = f"the return of a solved episode must be 1, got {sum(recording.rewards):g}"
            subject.fail(FLAGS, defect, recording.seed, recording.actions)


def has_expert_peeks(subject: Subject) -> bool:
    """Return whether the env declares that its expert reads hidden state."""
    with subject.make() as env:
        return env.expert_peeks


def no_peeking(subject: Subject, recordings: list[Recording]) -> None:
    """Check that the expert chooses the same action in episodes with identical observations so far."""
    chosen: dict[tuple[str, ...], tuple[str, Recording]] = {}
    for recording in recordings:
        for turn, action in enumerate(recording.actions):
            seen = tuple(recording.record[: turn + 1]) + recording.actions[:turn]
            known, other = chosen.setdefault(seen, (action, recording))
            if known != action:
                defect = (
                    f"the expert reads hidden state: after the same {turn + 1} observations it plays {known!r} with "
                    f"seed {other.seed} and {action!r} with seed {recording.seed}"
                )
                subject.fail(VALIDITY, defect, recording.seed, recording.actions[:turn], ["env.expert_action()"])


def rate(subject: Subject, player: Player, measured: Rate) -> None:
    """Check that the measured success rate of `player` agrees with the rate in the spec."""
    spec = subject.spec
    if spec is None:
        return
    stated = spec.expert_success if player == "expert" else spec.random_success
    if stated is not None and not measured.fits(stated):
        subject.fail(
            VALIDITY, f"the spec declares a success rate of {stated:g} for the {player} player, but it is {measured}"
        )


def documented_rates(subject: Subject) -> None:
    """Check that the spec gives a reason if a player without skill succeeds often."""
    spec = subject.spec
    if spec is None:
        return
    if spec.rates_reason not in ("", *RATES_REASONS):
        reasons = " or ".join(map(repr, RATES_REASONS))
        subject.fail(VALIDITY, f"rates_reason must be {reasons}, or empty; got {spec.rates_reason!r}")
    rates = {"random": spec.random_success, "echo": spec.echo_success, "constant": spec.constant_success}
    for player, stated in rates.items():
        if stated is not None and stated > MAX_UNEARNED and not spec.rates_reason:
            subject.fail(VALIDITY, f"the {player} player solves {stated:g} of the episodes, {_REASON_NEEDED}")


def unearned_rate(subject: Subject, player: Player, measured: Rate) -> None:
    """Check that the echo or constant player does not succeed more often than the spec states."""
    spec = subject.spec
    if spec is None:
        return
    stated = spec.echo_success if player == "echo" else spec.constant_success
    if stated is not None and measured.exceeds(stated):
        subject.fail(
            VALIDITY, f"the spec declares a success rate of {stated:g} for the {player} player, but it is {measured}"
        )
    if stated is None and not spec.rates_reason and measured.exceeds(MAX_UNEARNED, alpha=1e-3):
        subject.fail(VALIDITY, f"the {player} player solves {measured} of the episodes, {_REASON_NEEDED}")


def empty_answers(subject: Subject) -> None:
    """Check that empty actions receive the lowest reward and never solve the task."""
    with subject.make() as env:
        subject.reset(env, 7)
        taken: list[str] = []
        done = False
        while not done and len(taken) < 200:
            taken.append("")
            step = subject.step(env, "", 7, taken)
            done = step.done
            if step.info.get("success"):
                subject.fail(VALIDITY, "empty actions must not succeed", 7, taken)
            if step.reward > max(env.reward_range[0], min(0.0, env.reward_range[1])):
                subject.fail(VALIDITY, f"an empty action must not be rewarded, got {step.reward}", 7, taken)


def forks(subject: Subject, recordings: list[Recording]) -> None:
    """Check that a fork behaves like the original, and that steps in the fork do not affect the original."""
    for recording in recordings[:8]:
        with subject.make() as env:
            record = [subject.reset(env, recording.seed)]
            forks_taken: list[tuple[int, Env]] = []
            for i, action in enumerate(recording.actions):
                if len(forks_taken) < 4:
                    try:
                        fork = env.fork()
                        forks_taken.append((i, env.fork()))
                    except Exception as err:  # noqa: BLE001
                        subject.fail(
                            FORK, f"fork raised {type(err).__name__}: {err}", recording.seed, recording.actions[:i]
                        )
                    _disturb(fork)
                record.append(summarize_step(subject.step(env, action, recording.seed, recording.actions[: i + 1])))
            _expect_same(subject, recording, record, "after its forks were stepped", FORK)
            for at, fork in forks_taken:
                _expect_same(
                    subject,
                    recording,
                    [*record[: at + 1], *replay_actions(fork, recording.actions[at:])],
                    f"in a fork taken after {at} turns",
                    FORK,
                )
                fork.close()


def _disturb(fork: Env) -> None:
    for _ in range(3):
        if fork.step(fork.sample_random_action()).done:
            break
    fork.reset(seed=99)
    fork.close()


def prompt(subject: Subject, recordings: list[Recording]) -> None:
    """Check that the prompt contains an example action that can be parsed, and the turn limit."""
    for recording in recordings[:4]:
        with subject.make() as env:
            text = subject.reset(env, recording.seed)
            try:
                example = env.example_action()
            except Exception as err:  # noqa: BLE001
                subject.fail(PROMPT, f"example_action raised {type(err).__name__}: {err}", recording.seed)
            if example not in text:
                subject.fail(PROMPT, f"the prompt does not show the example action {example!r}", recording.seed)
            if env.max_turns is not None and str(env.max_turns) not in text:
                subject.fail(PROMPT, f"the prompt does not state the budget of {env.max_turns} turns", recording.seed)
            if subject.step(env, example, recording.seed, [example]).info.get("invalid") == "format":
                subject.fail(PROMPT, "the example action in the prompt cannot be parsed", recording.seed, [example])


def cleanup(subject: Subject) -> None:
    """Check that an env leaves no threads, open files or processes behind after `close`."""

    def live() -> None:
        env = subject.make()
        subject.reset(env, 1)
        subject.step(env, env.sample_random_action(), 1, ["(random)"])
        env.fork().close()
        env.close()
        env.close()

    live()  # the first run opens resources that stay open for the whole process; they are not leaks
    before = OpenResources.now()
    for _ in range(3):
        live()
    for kind, things in OpenResources.left_since(before).items():
        shown = ", ".join(sorted(things)[:3])
        subject.fail(CLEANUP, f"{kind} stay open after close(): {shown}", 1, (), ["env.close()"])
