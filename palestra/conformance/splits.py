"""Check that the tasks in split="train" and split="test" do not overlap."""

from __future__ import annotations

from time import monotonic

from palestra.conformance.recording import VALIDITY, Subject
from palestra.errors import BadValue, DataMissing, UnknownKeyword
from palestra.spec import split_of

MIN_TASKS = 16  # an environment with fewer tasks need not hold tasks out
TRAIN_SEEDS, TEST_SEEDS = 60, 20  # number of seeds to reset per split
ENOUGH_SEEDS = {"train": 20, "test": 4}  # seeds to reset if the fingerprints show that the split is respected
MIN_SEEDS = {"train": 3, "test": 1}  # a test task takes about eight times as long, because other tasks are rejected
SECONDS = 0.3  # maximum time per split, after the first seeds


def splits(subject: Subject) -> None:
    """Check that an environment whose spec declares splits holds tasks out and reports task fingerprints."""
    if subject.make_split is None:
        return
    try:
        subject.make_split("validation").close()
    except (BadValue, UnknownKeyword):
        pass
    else:
        subject.fail(VALIDITY, 'split="validation" must raise BadValue; the splits are "train" and "test"')
    seen = _tasks(subject, "train", TRAIN_SEEDS)
    for task, seed in _tasks(subject, "test", TEST_SEEDS).items():
        if task in seen and not _may_share_tasks(subject):
            defect = f'seed {seed} with split="test" has the same task as seed {seen[task]} with split="train"'
            subject.fail(VALIDITY, f"{defect}: sample tasks with Env.sample_task", seed)


def _may_share_tasks(subject: Subject) -> bool:
    """Return whether there are too few tasks to hold some out, or the keyword arguments fix the list of tasks."""
    assert subject.make_split is not None  # noqa: S101  # checked by the caller
    with subject.make_split(None) as env, subject.make_split("train") as train:
        if env.num_tasks is None:
            return False
        return env.num_tasks < MIN_TASKS or (subject.spec is None and train.num_tasks == env.num_tasks)


def _tasks(subject: Subject, split: str, count: int) -> dict[str, int]:
    """Return the fingerprint of each task in a split, with the first seed that has it.

    `Env.sample_task` derives the split from the fingerprint. An env that ignores `split` samples training tasks for
    seven of eight seeds, so a few fingerprints show that the tasks belong to the split. The tasks of other envs are
    compared.
    """
    tasks: dict[str, int] = {}
    end = monotonic() + SECONDS
    assert subject.make_split is not None  # noqa: S101  # checked by the caller
    try:
        with subject.make_split(split) as env:
            for seed in range(count):
                if seed >= MIN_SEEDS[split] and monotonic() > end:
                    break
                task = env.reset(seed=seed)[1].get("task_id")
                if not isinstance(task, str) or not task:
                    subject.fail(
                        VALIDITY, f'an environment with splits must report info["task_id"], got {task!r}', seed
                    )
                tasks.setdefault(task, seed)
                hashed = env.filters_tasks and all(split_of(known) == split for known in tasks)
                if hashed and seed + 1 == ENOUGH_SEEDS[split]:
                    break
    except (BadValue, DataMissing) as err:
        if subject.spec is not None:
            subject.fail(VALIDITY, f"split={split!r} raised {type(err).__name__}: {err}")
        # The keyword arguments may leave too few tasks for two splits.
    return tasks
