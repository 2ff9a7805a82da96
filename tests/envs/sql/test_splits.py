"""Test that the splits in the generated SQL environments share no task."""

from __future__ import annotations

from random import Random

import pytest

import palestra
from palestra.envs.sql.domain import LEVELS
from palestra.envs.sql.domains import DOMAINS
from palestra.envs.sql.env import GeneratedSql
from palestra.envs.sql.random_schema.vocabulary import themes
from palestra.spec import fingerprint


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_questions_of_2000_seeds_are_disjoint(name: str, level: str) -> None:
    seen: dict[str | None, set[str]] = {"train": set(), "test": set()}
    templates: dict[str | None, set[str]] = {"train": set(), "test": set()}
    domain = DOMAINS[name]
    slots = {**domain.slots, **domain.draw_names(1)}
    for seed in range(2_000):
        rng = Random(seed)
        question = rng.choice(domain.of_level(level)).fill(rng, slots)
        seen[question.split].add(fingerprint(question.key))
        templates[question.split].add(question.key[0])
    assert not seen["train"] & seen["test"]
    assert len(templates["test"] - templates["train"]) >= 1  # a whole template is held out
    assert len(templates["train"]) >= 2
    assert len(seen["test"]) >= 5


@pytest.mark.parametrize("env_id", [f"sql:{name}-v0-{level}" for name in ("Shop", "School") for level in LEVELS])
def test_episodes_belong_to_the_split(env_id: str) -> None:
    ids: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env = palestra.make(env_id, split=split)
        assert isinstance(env, GeneratedSql)
        ids[split] = set()
        for seed in range(25):
            _, info = env.reset(seed=seed)
            assert env.question.split == split
            ids[split].add(info["task_id"])
    assert not ids["train"] & ids["test"]
    assert len(ids["train"]) > 5


def test_the_task_depends_on_the_question_and_not_on_the_data() -> None:
    env = palestra.make("sql:School-v0-easy")
    assert isinstance(env, GeneratedSql)
    by_text: dict[str, set[str]] = {}
    for seed in range(80):
        _, info = env.reset(seed=seed)
        by_text.setdefault(env.question.text, set()).add(info["task_id"])
    assert len(by_text) < 80  # some questions occur with different data
    assert all(len(ids) == 1 for ids in by_text.values())
    assert len({next(iter(ids)) for ids in by_text.values()}) == len(by_text)


@pytest.mark.parametrize("level", LEVELS)
def test_tables_of_random_schemas_are_held_out(level: str) -> None:
    """No table in a test episode occurs in training, except the assignment table."""
    tables: dict[str, set[str]] = {}
    ids: dict[str, list[str]] = {}
    for split in ("train", "test"):
        env = palestra.make(f"sql:Random-v0-{level}", split=split)
        assert isinstance(env, GeneratedSql)
        infos = [env.reset(seed=seed)[1] for seed in range(30)]
        tables[split] = {name.lower().removesuffix("s") for info in infos for name in info["tables"]}
        ids[split] = [info["task_id"] for info in infos]
        assert env.question.split == split
    assert tables["train"] & tables["test"] <= {"assignment"}
    assert len({*ids["train"], *ids["test"]}) == 60


def test_every_word_of_the_held_out_themes_is_unknown_in_training() -> None:
    train, test = ({noun for theme in themes(split) for role in theme for noun in role} for split in ("train", "test"))
    assert not train & test
    assert len(themes("test")) >= 5
    assert len(themes(None)) == len(themes("train")) + len(themes("test"))
