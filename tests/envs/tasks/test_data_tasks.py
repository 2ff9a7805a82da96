"""Test every environment that uses a dataset, on rows with that dataset's schema."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue, UnknownKeyword
from palestra.grading import Grade
from palestra.parsing import fenced
from palestra.types import text_of
from tests.conformance.variants import PEEKS
from tests.envs.tasks.data_files import geometry, math_rows, write_jsonl, write_parquet

QA_ROWS = [{"problem": f"Who wrote book {i}?", "answer": [f"Author {i}", f"A. {i}"]} for i in range(9)]
SEARCH_ROWS = [{"question": f"Who wrote book {i}?", "answer": [f"Author {i}"]} for i in range(9)]
LOGIC_ROWS = [
    {"question": f"Anne is kind. If Anne is kind then Anne is big. Q{i}: Anne is big?", "answer": i % 2 == 0}
    for i in range(9)
]
DOUBLE = "n = int(input())\nprint(2 * n)"
CODE_ROWS = [
    {
        "problem": f"Read n, print 2n (variant {i}).",
        "tests": json.dumps({"inputs": ["1\n", "21\n"], "outputs": ["2\n", "42\n"]}),
        "solution": DOUBLE,
    }
    for i in range(6)
]
FAMILIES = ("math", "code", "qa", "logic", "eval")  # other families with data files have separate tests
BENCHMARKS = ("eval:GPQA", "eval:IFEval", "eval:LiveCodeBench", "eval:BFCL")  # also tested separately
DATA = [
    env_id
    for one in FAMILIES
    for env_id in palestra.list_envs(one)
    if palestra.get_spec(env_id).needs_data and not env_id.startswith(BENCHMARKS)
]


def rows_for(env_id: str) -> list[dict[str, Any]]:
    spec = palestra.get_spec(env_id)
    kind = spec.entry_point.rpartition(":")[2]
    if kind == "Questions":
        return SEARCH_ROWS if spec.kwargs["question"] == "question" else QA_ROWS
    return {"MathProblems": math_rows(9), "Statements": LOGIC_ROWS, "CodeProblems": CODE_ROWS}[kind]


def mirror(folder: Path, env_id: str) -> None:
    spec = palestra.get_spec(env_id)
    place = folder / str(spec.kwargs["dataset"])
    split = spec.kwargs.get("data_split", "train")
    if env_id == "math:Geometry3K":
        datasets.DatasetDict({"train": geometry()}).save_to_disk(str(place))
    else:
        write_parquet(place / "data" / f"{split}-00000-of-00001.parquet", rows_for(env_id))


@pytest.mark.parametrize("env_id", [env_id for env_id in DATA if "dataset" in palestra.get_spec(env_id).kwargs])
def test_every_id_uses_its_data_set(env_id: str, tmp_path: Path) -> None:
    mirror(tmp_path, env_id)
    is_code = palestra.get_spec(env_id).entry_point.endswith("CodeProblems")
    more: dict[str, Any] = {"solution": "solution"} if is_code else {}
    with palestra.make(env_id, mirror=tmp_path, **more) as env:
        prompt, info = env.reset(seed=1)
        assert info["epoch"] == 0
        assert "You have 1 attempt." in text_of(prompt)
        action = env.expert_action()
        assert action is not None
        step = env.step(action)
        assert step.info["success"] is True, step.info
        assert step.reward == 1.0


def test_the_ids_match_gem() -> None:
    wanted = {
        "math": "ASDiv2K GSM8K Math12K Math8K-3to5 Orz57K DeepScaleR40K Geometry3K File-v0",
        "code": "CodeContest Taco8k PrimeIntellect15k File-v0",
        "qa": "NaturalQuestions HotpotQA File-v0",
        "logic": "RuleTaker-d0 RuleTaker-d1 RuleTaker-d2 RuleTaker-d3 RuleTaker-d5 File-v0",
        "eval": "MATH500 AMC OlympiadBench Minerva AIME24 AIME25 CodeContest QaOpen 2Wiki PopQA TriviaQA HotpotQA "
        "Bamboogle NaturalQuestions Musique",
    }
    assert set(DATA) == {f"{family}:{name}" for family, names in wanted.items() for name in names.split()}
    assert all(palestra.get_spec(env_id).extra == "data" for env_id in DATA)


# Conformance and order of rows


@pytest.mark.parametrize("family", ["math", "qa", "logic"])
def test_conformance(family: str, tmp_path: Path) -> None:
    env_id = f"{family}:File-v0"
    place = write_jsonl(tmp_path / "rows.jsonl", rows_for(env_id))
    report = palestra.check_env(env_id, kwargs={"path": str(place)}, episodes=9, seconds=2.0)
    assert len(report.passed) == 8
    assert report.notes == [PEEKS]
    assert report.expert is not None
    assert report.expert.value == 1.0


def test_conformance_of_code(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "rows.jsonl", CODE_ROWS)
    kwargs = {"path": str(place), "solution": "solution", "seconds": 0.5}
    report = palestra.check_env("code:File-v0", kwargs=kwargs, episodes=3, seconds=1.0, processes=False)
    assert len(report.passed) == 7
    assert report.expert is not None
    assert report.expert.value == 1.0


# Order


def indices(env: palestra.Env, seeds: range) -> list[int]:
    return [env.reset(seed=seed)[1]["index"] for seed in seeds]


@given(st.integers(1, 40), st.integers(0, 3))
def test_seeds_and_resets_visit_every_row_once_per_epoch(count: int, shuffle_seed: int) -> None:
    env = in_memory(math_rows(count), shuffle_seed=shuffle_seed)
    first, second = indices(env, range(count)), indices(env, range(count, 2 * count))
    assert sorted(first) == sorted(second) == list(range(count))
    start = env.reset(seed=0)[1]
    walked = [start["index"], *(env.reset()[1]["index"] for _ in range(2 * count - 1))]
    assert walked == first + second
    assert env.reset()[1]["epoch"] == 2


@given(st.integers(1, 40), st.integers(0, 2**50), st.data())
def test_an_index_selects_a_row_and_returns_a_seed_that_repeats_it(count: int, seed: int, data: st.DataObject) -> None:
    env = in_memory(math_rows(count))
    index = data.draw(st.integers(0, count - 1))
    env.reset(seed=seed)
    prompt, info = env.reset(options={"index": index})
    assert info["index"] == index
    assert f"What is {index} + {index}?" in prompt
    again, same = env.reset(seed=info["seed"])
    assert (again, same["index"], same["epoch"]) == (prompt, index, info["epoch"])
    both, info = env.reset(seed=seed, options={"index": index})
    assert (both, info["seed"], info["index"]) == (prompt, seed, index)


def in_memory(rows: list[dict[str, Any]], **kwargs: Any) -> palestra.Env:
    """Return an env whose rows are in memory."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return palestra.make("math:File-v0", path=write_jsonl(Path(folder) / "rows.jsonl", rows), **kwargs)


def test_without_shuffle_the_order_is_that_of_the_file(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "r.jsonl", math_rows(30))
    plain = palestra.make("math:File-v0", path=place, shuffle=False)
    assert indices(plain, range(60)) == [*range(30), *range(30)]
    mixed = palestra.make("math:File-v0", path=place)
    assert indices(mixed, range(30)) != list(range(30))
    assert indices(mixed, range(30)) != indices(mixed, range(30, 60))
    other = palestra.make("math:File-v0", path=place, shuffle_seed=1)
    assert indices(mixed, range(30)) != indices(other, range(30))


def test_without_a_seed_the_first_episode_starts_an_epoch(tmp_path: Path) -> None:
    env = palestra.make("math:File-v0", path=write_jsonl(tmp_path / "r.jsonl", math_rows(11)))
    assert sorted(env.reset()[1]["index"] for _ in range(11)) == list(range(11))
    seeded = palestra.make("math:File-v0", seed=4, path=tmp_path / "r.jsonl")
    assert [seeded.reset()[1]["seed"] for _ in range(3)] == [4, 5, 6]


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_copies_of_a_question_are_in_the_same_split(write: Any, tmp_path: Path) -> None:
    rows = [*math_rows(60), *({**row, "problem": f" {row['problem'].upper()}"} for row in math_rows(60))]
    place = write(tmp_path / f"rows.{'jsonl' if write is write_jsonl else 'parquet'}", rows)
    used: dict[str, set[int]] = {}
    tasks: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env = palestra.make("math:File-v0", path=place, split=split)
        infos = [env.reset(seed=seed)[1] for seed in range(env.num_tasks or 0)]
        used[split], tasks[split] = ({info[key] for info in infos} for key in ("index", "task_id"))
        assert len(used[split]) == env.num_tasks
        assert len(tasks[split]) == len(used[split]) // 2
        assert env.reset(options={"index": min(used[split])})[1]["index"] == min(used[split])
    assert used["train"] | used["test"] == set(range(120))
    assert not used["train"] & used["test"]
    assert not tasks["train"] & tasks["test"]
    assert len(tasks["test"]) == 7
    with pytest.raises(BadValue, match="does not belong to split 'test'"):
        env.reset(options={"index": min(used["train"])})


def test_the_same_text_with_another_figure_or_theory_is_another_question(tmp_path: Path) -> None:
    figures = [{"problem": "<image>Find x.", "answer": "3", "figure": f"{i}.png"} for i in range(40)]
    for column, count in ((None, 40), ("figure", 35)):
        env = palestra.make(
            "math:File-v0", path=write_jsonl(tmp_path / "f.jsonl", figures), images=column, split="train"
        )
        assert env.num_tasks == count
    theories = [{"theory": f"Bob is {i} feet tall.", "question": "Bob is tall.", "answer": "True"} for i in range(40)]
    place = write_jsonl(tmp_path / "t.jsonl", theories)
    assert palestra.make("logic:File-v0", path=place, context="theory", split="test").num_tasks == 5


@pytest.mark.parametrize("wrong", [-1, 12, "3", 1.0, True])
def test_a_wrong_index_is_rejected(wrong: Any, tmp_path: Path) -> None:
    env = palestra.make("math:File-v0", path=write_jsonl(tmp_path / "r.jsonl", math_rows(12)))
    with pytest.raises(BadValue, match="index"):
        env.reset(options={"index": wrong})
    with pytest.raises(BadValue, match="unknown reset options for MathProblems: row"):
        env.reset(options={"row": 1})


# Contents of rows


def graded(family: str, row: dict[str, Any], reply: str, folder: Path, **kwargs: Any) -> bool:
    env = palestra.make(f"{family}:File-v0", path=write_jsonl(folder / "one.jsonl", [row]), **kwargs)
    env.reset()
    return bool(env.step(reply).info["success"])


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("He has 3 + 4 = 7.\n#### 7", r"\boxed{7}", True),
        ("1,000 in all\n#### 1,000", r"\boxed{1000}", True),
        (r"So it is $\boxed{\frac{1}{2}}$.", r"\boxed{0.5}", True),
        (42, r"\boxed{42}", True),
        (1.5, r"\boxed{3/2}", True),
        (["2", "3"], r"\boxed{3}", True),
        (["2", "3"], r"\boxed{4}", False),
        ("7", r"\boxed{8}", False),
        ("7", "seven", False),
    ],
)
def test_math_answers(answer: Any, reply: str, right: bool, tmp_path: Path) -> None:
    assert graded("math", {"problem": "?", "answer": answer}, reply, tmp_path) is right


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        (["14 December 1972 UTC", "December 1972"], r"\boxed{december 1972}", True),
        ("The Eiffel Tower", "<think>hm</think><answer>eiffel tower</answer>", True),
        ({"value": "Sinclair Lewis", "aliases": ["Harry Sinclair Lewis"]}, r"\boxed{Harry Sinclair Lewis}", True),
        (["Paris"], r"\boxed{London}", False),
        (1969, r"\boxed{1969}", True),
    ],
)
def test_qa_answers(answer: Any, reply: str, right: bool, tmp_path: Path) -> None:
    assert graded("qa", {"problem": "?", "answer": answer}, reply, tmp_path) is right


def grade_contains(answer: str, gold: list[str]) -> Grade:
    correct = any(text in answer for text in gold)
    return Grade(correct=correct, score=float(correct), why="")


@pytest.mark.parametrize("family", ["math", "qa"])
@pytest.mark.parametrize("grader", [grade_contains, f"{__name__}:grade_contains"])
def test_a_function_of_the_user_grades(family: str, grader: Any, tmp_path: Path) -> None:
    row = {"problem": "?", "answer": "Paris"}
    assert graded(family, row, r"\boxed{the great city of Paris}", tmp_path, grader=grader)
    assert not graded(family, row, r"\boxed{London}", tmp_path, grader=grader)
    with pytest.raises(BadValue, match="no grader named 'mathh'. Did you mean math"):
        palestra.make(f"{family}:File-v0", path=tmp_path / "one.jsonl", grader="mathh")


def test_f1_threshold(tmp_path: Path) -> None:
    row = {"problem": "?", "answer": "the great city of Paris"}
    assert not graded("qa", row, r"\boxed{the city of Paris}", tmp_path)
    assert graded("qa", row, r"\boxed{the city of Paris}", tmp_path, threshold=0.8)
    with pytest.raises(BadValue, match="threshold"):
        palestra.make("qa:File-v0", path=tmp_path / "one.jsonl", threshold=2)


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        (True, r"\boxed{True}", True),
        ("not entailment", r"\boxed{false}", True),
        ("entailment", r"\boxed{\text{yes}}", True),
        ("Unknown", r"\boxed{unknown.}", True),
        ("False", r"\boxed{Unknown}", False),
        (1, r"\boxed{False}", False),
        ("True", r"\boxed{banana}", False),
    ],
)
def test_truth_values(answer: Any, reply: str, right: bool, tmp_path: Path) -> None:
    assert graded("logic", {"question": "?", "answer": answer}, reply, tmp_path) is right


def test_columns_may_be_nested_and_conversations(tmp_path: Path) -> None:
    """Read nested columns and chat messages, as in verl's datasets."""
    row = {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 * 7?"}],
        "reward_model": {"ground_truth": "42", "style": "rule"},
        "choices": ["41", "42"],
    }
    for write, name in ((write_jsonl, "r.jsonl"), (write_parquet, "r.parquet")):
        place = write(tmp_path / name, [row])
        for answer in ("reward_model.ground_truth", "choices.1"):
            env = palestra.make("math:File-v0", path=place, question="prompt", answer=answer)
            prompt, _ = env.reset()
            assert str(prompt).startswith("Be brief.\n\n6 * 7?")
            assert env.step(r"\boxed{42}").info["success"]
    with pytest.raises(BadValue, match=r"no column 'reward_model\.truth'; its columns are prompt"):
        palestra.make("math:File-v0", path=place, question="prompt", answer="reward_model.truth").reset()


def test_rows_without_an_answer_are_named(tmp_path: Path) -> None:
    for family, row, message in (
        ("math", {"problem": "?", "answer": None}, r"one\.jsonl\[0\] has no answer"),
        ("qa", {"problem": "?", "answer": []}, r"\[0\] has no answer"),
        ("logic", {"question": "?", "answer": "maybe"}, "True, False or Unknown, got 'maybe'"),
        ("code", {"problem": "?", "tests": "{}"}, r"\[0\]: hidden tests must"),
    ):
        with pytest.raises(BadValue, match=message):
            graded(family, row, "", tmp_path)


def test_logic_with_the_theory_in_a_separate_column(tmp_path: Path) -> None:
    row = {"theory": "Anne is kind.", "question": "Anne is kind?", "answer": "True"}
    env = palestra.make("logic:File-v0", path=write_jsonl(tmp_path / "r.jsonl", [row]), context="theory")
    assert str(env.reset()[0]).startswith("Anne is kind.\n\nAnne is kind?")


def test_code_in_common_formats(tmp_path: Path) -> None:
    forms: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
        ({"tests": {"inputs": ["3\n"], "outputs": ["6\n"]}}, DOUBLE, {}),
        ({"tests": json.dumps([{"type": "stdin_stdout", "input": "3\n", "output": "6\n"}])}, DOUBLE, {}),
        (
            {"tests": json.dumps({"fn_name": "double", "inputs": [[3]], "outputs": [6]})},
            "def double(n):\n    return 2 * n",
            {},
        ),
        (
            {"test_list": ["assert double(4) == 8"], "starter_code": "def double(n):", "entry_point": "double"},
            "def double(n):\n    return n + n",
            {"tests": "test_list", "starter": "starter_code", "function": "entry_point"},
        ),
    ]
    for row, program, kwargs in forms:
        place = write_parquet(tmp_path / "r.parquet", [{"problem": "Double it.", **row}])
        env = palestra.make("code:File-v0", path=place, **kwargs)
        prompt, _ = env.reset()
        assert "Double it." in prompt
        assert ("Start from this code:" in prompt) is ("starter" in kwargs)
        assert env.expert_action() is None
        assert env.fork().step(fenced(program)).info["success"] is True
        assert env.fork().step(fenced("print(0)")).info["success"] is False
        assert env.step("no program").info["invalid"] == "format"


# Attempts, answer format and tools


def test_wrong_answers_may_be_tried_again(tmp_path: Path) -> None:
    env = palestra.make("math:File-v0", path=write_jsonl(tmp_path / "r.jsonl", math_rows(5)), max_attempts=3)
    prompt, _ = env.reset(options={"index": 2})
    assert "You have 3 attempts." in prompt
    wrong = env.step(r"\boxed{5}")
    assert (wrong.reward, wrong.done) == (0.0, False)
    assert "2 attempts left" in str(wrong.observation)
    unread = env.step("I do not know")
    assert (unread.reward, unread.done, unread.info["invalid"]) == (-0.1, False, "format")
    assert env.step(r"\boxed{4}").info["success"]


def test_the_format_reward_does_not_raise_the_total_of_a_success(tmp_path: Path) -> None:
    env = palestra.make(
        "math:File-v0", path=write_jsonl(tmp_path / "r.jsonl", math_rows(5)), max_attempts=3, format_reward=0.2
    )
    env.reset(options={"index": 2})
    rewards = [env.step(reply).reward for reply in (r"\boxed{5}", r"\boxed{6}", r"\boxed{4}")]
    assert rewards == pytest.approx([0.2, 0.0, 0.8])
    env.reset(options={"index": 2})
    assert env.step(r"\boxed{4}").reward == 1.0


def test_with_the_python_tool_only_the_final_answer_is_graded(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "r.jsonl", math_rows(5))
    with palestra.make("math:File-v0", path=place, tools=["python"], max_tool_calls=4) as env:
        env.reset(options={"index": 3})
        for call in ("<python>print(3 + 3)</python>", "```python\nprint(6)\n```", "<python>1/0</python>"):
            step = env.step(call)
            assert step.info["use_tool"]
            assert (step.reward, step.done) == (0.0, False)
        last = env.step(r"So it is \boxed{6}.")
        assert last.info["success"]
        assert last.info["turn"] == 1
        assert last.info["tool_calls_used"] == 3


def test_fenced_answers_are_not_interpreted_as_tool_calls(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "r.jsonl", CODE_ROWS)
    with palestra.make("code:File-v0", path=place, tools=["python"], max_attempts=2) as env:
        prompt, _ = env.reset(seed=0)
        assert "<python>" in str(prompt)
        assert "fenced block (```python" not in str(prompt)
        tried = env.step("<python>print(2 * 21)</python>")
        assert tried.info["use_tool"]
        assert "42" in str(tried.observation)
        wrong = env.step(fenced("print(1)"))
        assert not wrong.info["use_tool"]
        assert "1 attempt left" in str(wrong.observation)
        assert env.step(fenced(DOUBLE)).info["success"]


def test_search_calls_are_not_attempts(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "r.jsonl", QA_ROWS)

    async def run() -> Any:
        env = palestra.make("qa:File-v0", path=place, tools=["search"], max_attempts=2)
        await env.areset(options={"index": 4})
        step = await env.astep("<search>who wrote book 4</search>")
        assert step.info["use_tool"]
        assert not step.done
        missed = await env.astep("<answer>Nobody</answer>")
        assert (missed.done, missed.info["turn"]) == (False, 1)
        last = await env.astep("<answer>author 4</answer>")
        await env.aclose()
        return last

    assert asyncio.run(run()).info["success"]


def test_keywords_are_checked(tmp_path: Path) -> None:
    place = write_jsonl(tmp_path / "r.jsonl", math_rows(5))
    with pytest.raises(UnknownKeyword, match="Did you mean question"):
        palestra.make("math:File-v0", path=place, qestion="problem")
    with pytest.raises(BadValue, match="max_tests"):
        palestra.make("code:File-v0", path=write_jsonl(tmp_path / "c.jsonl", CODE_ROWS), max_tests=0)


def test_the_prompt_without_our_instructions_is_the_question(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", math_rows(3))
    env: Any = palestra.make("math:File-v0", path=str(path), question="problem", format_note=False)
    prompt, _ = env.reset(seed=0)
    assert text_of(prompt) == env.unwrapped.item.question
    generated, _ = palestra.make("math:Arithmetic-v0-easy", format_note=False).reset(seed=0)
    assert "boxed" not in text_of(generated)
