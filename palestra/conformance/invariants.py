"""The six laws, a function each: given a subject and tapes of it, return or raise ConformanceError."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from palestra.conformance.rates import Player, Rate
from palestra.conformance.recording import (
    DETERMINISM,
    FLAGS,
    FORK,
    PROMPT,
    TIDINESS,
    TOTAL,
    VALIDITY,
    Subject,
    Tape,
    first_difference,
    retrace,
    shown_by,
)
from palestra.conformance.replay import replay_elsewhere
from palestra.conformance.side_effects import Holdings, Watch
from palestra.conformance.strings import STRANGE
from palestra.core import Env
from palestra.errors import EnvFailed, ResetNeeded
from palestra.spec import UNBOUNDED


def _same(subject: Subject, tape: Tape, again: Sequence[str], where: str, law: str = DETERMINISM) -> None:
    parted = first_difference(tape.record, again)
    if parted is not None:
        turn, first, second = parted
        what = "the prompt" if turn == 0 else f"turn {turn}"
        defect = (
            f"the same seed and actions gave something else {where}, from {what}:\n  {_cut(first)}\n  {_cut(second)}"
        )
        subject.broken(law, defect, tape.seed, tape.actions[:turn])


def _cut(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}..."


def determinism(subject: Subject, tapes: list[Tape]) -> None:
    """Law 1 within this process: fresh, used, interleaved and in threads."""
    used = subject.make()
    for tape in tapes:
        with subject.make() as fresh:
            _same(subject, tape, subject.replay(fresh, tape).record, "in a fresh env")
        _same(subject, tape, subject.replay(used, tape).record, "in an env that had played before")
    used.close()
    _interleaved(subject, tapes)
    _threaded(subject, tapes)
    _unseeded(subject)
    if subject.spec is None or subject.spec.seeded:
        _seed_matters(subject, tapes)


def _interleaved(subject: Subject, tapes: list[Tape]) -> None:
    envs = [subject.make() for _ in tapes]
    records = [[subject.reset(env, tape.seed)] for env, tape in zip(envs, tapes, strict=True)]
    over: set[int] = set()
    for turn in range(max(len(tape.actions) for tape in tapes)):
        for i, (env, tape) in enumerate(zip(envs, tapes, strict=True)):
            if turn < len(tape.actions) and i not in over:
                taken = tape.actions[: turn + 1]
                step = subject.step(env, taken[-1], tape.seed, taken)
                records[i].append(shown_by(step))
                if step.done:
                    over.add(i)
    for env, tape, record in zip(envs, tapes, records, strict=True):
        _same(subject, tape, record, "when other envs ran in between")
        env.close()


def _threaded(subject: Subject, tapes: list[Tape]) -> None:
    records: dict[int, list[str]] = {}
    errors: list[BaseException] = []

    def play(i: int, tape: Tape) -> None:
        try:
            with subject.make() as env:
                prompt, _ = env.reset(seed=tape.seed)
                first = prompt if isinstance(prompt, str) else repr(prompt)
                records[i] = [first, *retrace(env, tape.actions)]
        except Exception as err:  # noqa: BLE001  # reported below, in the checking thread
            errors.append(err)

    some = tapes[:4]
    threads = [threading.Thread(target=play, args=(i, tape), daemon=True) for i, tape in enumerate(some)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for i, tape in enumerate(some):
        _same(subject, tape, records[i], "in a thread beside others")


def _unseeded(subject: Subject) -> None:
    """Episodes without a given seed tell one that repeats them."""
    with subject.make() as env:
        env.reset(seed=5)
        prompt, info = env.reset()
        told = info.get("seed")
        if not isinstance(told, int):
            subject.broken(
                DETERMINISM, f'reset() must tell its seed as info["seed"], got {told!r}', 5, (), ["env.reset()"]
            )
        actions: list[str] = []
        record = [prompt]
        for _ in range(3):
            actions.append(env.sample_random_action())
            step = env.step(actions[-1])
            record.append(shown_by(step))
            if step.done:
                break
        again, _ = env.reset(seed=told)
        if record != [again, *retrace(env, actions)]:
            defect = f'reset(seed={told}), the info["seed"] of an unseeded episode, does not repeat it'
            subject.broken(DETERMINISM, defect, told)
        env.reset(seed=5)
        if env.reset()[1].get("seed") != told:
            defect = "the episode after reset(seed=5) differs from run to run"
            subject.broken(DETERMINISM, defect, 5, (), ["env.reset()"])


def _seed_matters(subject: Subject, tapes: list[Tape]) -> None:
    """The same actions under many seeds must not always give the same episode."""
    if len({tape.prompt for tape in tapes}) > 1:
        return
    with subject.make() as env:
        for tape in tapes:
            records = set()
            for seed in range(24):
                record = [subject.reset(env, seed)]
                for i, action in enumerate(tape.actions):
                    step = subject.step(env, action, seed, tape.actions[: i + 1])
                    record.append(shown_by(step))
                    if step.done:
                        break
                records.add(tuple(record))
            if len(records) > 1:
                return
    subject.broken(
        DETERMINISM,
        "the seed is ignored: 24 seeds gave one and the same episode (state seeded=False in the spec if that is meant)",
        tapes[0].seed,
        tapes[0].actions[:3],
    )


def watched(subject: Subject, allow: frozenset[str]) -> None:
    """Law 1 from the other side: nothing but the seed is consulted."""
    players: list[Player] = ["random", "expert"] if has_expert(subject) else ["random"]
    for player in players:
        with Watch() as watch, subject.make() as env:
            subject.record(env, 11, player)
        for what, place in watch.found.items():
            if not any(word in what for word in allow):
                subject.broken(DETERMINISM, f"an episode consults {what}, at {place}; use self.rng", 11)


def has_expert(subject: Subject) -> bool:
    with subject.make() as env:
        subject.reset(env, 0)
        return env.expert_action() is not None


def elsewhere(subject: Subject, recipe: dict[str, Any], tapes: list[Tape]) -> None:
    """Laws 1 and 5 across processes: other hash seeds, and snapshots that move."""
    some = tapes[:6]
    snapshots = []
    for tape in some:
        with subject.make() as env:
            middle = len(tape.actions) // 2
            subject.reset(env, tape.seed)
            for i in range(middle):
                subject.step(env, tape.actions[i], tape.seed, tape.actions[: i + 1])
            try:
                snapshots.append((env.snapshot(), tape.actions[middle:]))
            except Exception as err:  # noqa: BLE001
                subject.broken(FORK, f"snapshot raised {type(err).__name__}: {err}", tape.seed, tape.actions[:middle])
    for hash_seed in (1, 4242):
        try:
            records, continued = replay_elsewhere(recipe, some, snapshots, hash_seed)
        except EnvFailed as err:
            subject.broken(DETERMINISM, f"in a fresh process, {err}", some[0].seed, some[0].actions)
        for tape, record, rest in zip(some, records, continued, strict=True):
            _same(subject, tape, record, f"in a process with PYTHONHASHSEED={hash_seed}")
            moved = [*tape.record[: len(tape.actions) // 2 + 1], *rest]
            _same(subject, tape, moved, "after a snapshot moved to another process", FORK)


def any_action(subject: Subject) -> None:
    """Law 2: every strange string is answered, at the start and in mid-episode."""
    with subject.make() as env:
        for start in (0, 1):
            for _, action in STRANGE:
                subject.reset(env, 3)
                taken: list[str] = []
                for _ in range(start):
                    taken.append(env.sample_random_action())
                    if subject.step(env, taken[-1], 3, taken).done:
                        taken.clear()
                        subject.reset(env, 3)
                step = subject.step(env, action, 3, [*taken, action])
                if len(str(step.observation)) > 100_000:
                    subject.broken(TOTAL, "the observation echoes a huge action back", 3, [*taken, action])


def flags(subject: Subject, tapes: list[Tape]) -> None:
    """Law 3, beyond what every step is checked for."""
    with subject.make() as env:
        try:
            env.step("x")
        except ResetNeeded:
            pass
        except Exception as err:  # noqa: BLE001
            subject.broken(FLAGS, f"step before reset must raise ResetNeeded, not {type(err).__name__}", None, ["x"])
        else:
            subject.broken(FLAGS, "step before reset must raise ResetNeeded; it went on", None, ["x"])
        for tape in tapes[:4]:
            if tape.success is not None:
                subject.replay(env, tape)
                subject.must_refuse(env, tape.seed, tape.actions)
    if subject.spec is not None and subject.spec.reward_range not in (env.reward_range, UNBOUNDED):
        defect = f"the spec states rewards {subject.spec.reward_range}, the env {env.reward_range}"
        subject.broken(FLAGS, defect)


def normalised(subject: Subject, tapes: list[Tape]) -> None:
    """Law 3: where the best reward is 1, a solved episode earns 1 in all."""
    for tape in tapes:
        high = max(1.0, *tape.rewards)
        if tape.success and high == 1.0 and min(tape.rewards) >= 0 and abs(sum(tape.rewards) - 1) > 1e-6:
            defect = f"a solved episode earned {sum(tape.rewards):g} in all; success is worth 1"
            subject.broken(FLAGS, defect, tape.seed, tape.actions)


def expert_peeks(subject: Subject) -> bool:
    """Whether the env says itself that its expert knows more than a player can."""
    with subject.make() as env:
        return env.expert_peeks


def no_peeking(subject: Subject, tapes: list[Tape]) -> None:
    """Law 4: episodes that looked alike so far get the same action from the expert."""
    chosen: dict[tuple[str, ...], tuple[str, Tape]] = {}
    for tape in tapes:
        for turn, action in enumerate(tape.actions):
            seen = tuple(tape.record[: turn + 1]) + tape.actions[:turn]
            known, other = chosen.setdefault(seen, (action, tape))
            if known != action:
                defect = (
                    f"the expert peeks: after the same {turn + 1} observations it plays {known!r} with seed "
                    f"{other.seed} and {action!r} with seed {tape.seed}"
                )
                subject.broken(VALIDITY, defect, tape.seed, tape.actions[:turn], ["env.expert_action()"])


def rate(subject: Subject, player: Player, measured: Rate) -> None:
    """Law 4: what the spec states is what is measured."""
    spec = subject.spec
    if spec is None:
        return
    stated = spec.expert_success if player == "expert" else spec.random_success
    if stated is not None and not measured.fits(stated):
        subject.broken(VALIDITY, f"the {player} player's success is stated as {stated:g} but measured as {measured}")


def empty_answers(subject: Subject) -> None:
    """Law 4: saying nothing earns the floor and never succeeds."""
    with subject.make() as env:
        subject.reset(env, 7)
        taken: list[str] = []
        done = False
        while not done and len(taken) < 200:
            taken.append("")
            step = subject.step(env, "", 7, taken)
            done = step.done
            if step.info.get("success"):
                subject.broken(VALIDITY, "empty answers succeed", 7, taken)
            if step.reward > max(env.reward_range[0], min(0.0, env.reward_range[1])):
                subject.broken(VALIDITY, f"an empty answer earns {step.reward}", 7, taken)


def forks(subject: Subject, tapes: list[Tape]) -> None:
    """Law 5: a fork goes on as the original would have, and nothing done to it is felt by the original."""
    for tape in tapes[:8]:
        with subject.make() as env:
            record = [subject.reset(env, tape.seed)]
            twins: list[tuple[int, Env]] = []
            for i, action in enumerate(tape.actions):
                if len(twins) < 4:
                    try:
                        twin = env.fork()
                        twins.append((i, env.fork()))
                    except Exception as err:  # noqa: BLE001
                        subject.broken(FORK, f"fork raised {type(err).__name__}: {err}", tape.seed, tape.actions[:i])
                    _disturb(twin)
                record.append(shown_by(subject.step(env, action, tape.seed, tape.actions[: i + 1])))
            _same(subject, tape, record, "after forks of it were played", FORK)
            for at, twin in twins:
                _same(
                    subject,
                    tape,
                    [*record[: at + 1], *retrace(twin, tape.actions[at:])],
                    f"in a fork taken after {at} turns",
                    FORK,
                )
                twin.close()


def _disturb(twin: Env) -> None:
    for _ in range(3):
        if twin.step(twin.sample_random_action()).done:
            break
    twin.reset(seed=99)
    twin.close()


def prompt(subject: Subject, tapes: list[Tape]) -> None:
    """Law 6: rules, an example action that works, the budget."""
    for tape in tapes[:4]:
        with subject.make() as env:
            text = subject.reset(env, tape.seed)
            try:
                example = env.example_action()
            except Exception as err:  # noqa: BLE001
                subject.broken(PROMPT, f"example_action raised {type(err).__name__}: {err}", tape.seed)
            if example not in text:
                subject.broken(PROMPT, f"the prompt does not show the example action {example!r}", tape.seed)
            if env.max_turns is not None and str(env.max_turns) not in text:
                subject.broken(PROMPT, f"the prompt does not tell the budget of {env.max_turns} turns", tape.seed)
            if subject.step(env, example, tape.seed, [example]).info.get("invalid") == "format":
                subject.broken(PROMPT, "the example action of the prompt cannot be read", tape.seed, [example])


def tidiness(subject: Subject) -> None:
    """Nothing is left open by env after env."""

    def live() -> None:
        env = subject.make()
        subject.reset(env, 1)
        subject.step(env, env.sample_random_action(), 1, ["(random)"])
        env.fork().close()
        env.close()
        env.close()

    live()  # what is started once in a process and kept is no leak
    before = Holdings.now()
    for _ in range(3):
        live()
    left = Holdings.now().added_since(before)
    for kind, things in left.items():
        shown = ", ".join(sorted(things)[:3])
        subject.broken(TIDINESS, f"{kind} stay open after close(): {shown}", 1, (), ["env.close()"])
