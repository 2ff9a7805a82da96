"""Test GPQA, IFEval, LiveCodeBench, BFCL and AIME25 on small files in the schema of each dataset."""

from __future__ import annotations

import base64
import csv
import json
import pickle
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.core import Env
from palestra.errors import BadValue, DataMissing
from palestra.parsing import fenced
from palestra.types import text_of
from tests.envs.tasks.data_files import math_rows, write_jsonl

GPQA_ROWS = [
    {
        "Question": f"Which particle has charge {n}?",
        "Correct Answer": f"right {n}\n",
        "Incorrect Answer 1": f"first {n}",
        "Incorrect Answer 2": f"second {n}",
        "Incorrect Answer 3": f"third {n}",
        "Subdomain": "Physics",
    }
    for n in range(40)
]


@pytest.fixture
def gpqa(tmp_path: Path) -> Path:
    path = tmp_path / "Idavidrein" / "gpqa" / "gpqa_diamond.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(GPQA_ROWS[0]))
        writer.writeheader()
        writer.writerows(GPQA_ROWS)
    return tmp_path


def solve(env: Env, reply: str | None = None) -> Any:
    action = env.expert_action() if reply is None else reply
    assert action is not None
    return env.step(action)


def test_aime25(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "math-ai" / "aime25" / "test.jsonl", math_rows(30))
    env = palestra.make("eval:AIME25", mirror=tmp_path)
    assert env.num_tasks == 30
    env.reset(seed=0)
    assert solve(env).info["success"]


def test_gpqa_shuffles_the_options_of_each_row(gpqa: Path) -> None:
    env: Any = palestra.make("eval:GPQA", mirror=gpqa)
    assert env.num_tasks == 40
    letters: Counter[str] = Counter()
    for seed in range(40):
        prompt, info = env.reset(seed=seed)
        number = info["index"]
        text = text_of(prompt)
        assert f"Which particle has charge {number}?" in text
        letter = env.unwrapped.item.answer
        letters[letter] += 1
        assert f"{letter}) right {number}" in text.splitlines()
        assert solve(env).info["success"]
        assert text_of(env.reset(seed=seed)[0]) == text  # all attempts list the options in the same order
    assert set(letters) == set("ABCD")
    assert max(letters.values()) < 20


def test_gpqa_answers(gpqa: Path) -> None:
    env: Any = palestra.make("eval:GPQA", mirror=gpqa)
    env.reset(seed=3)
    item = env.unwrapped.item
    letter, wrong = item.answer, next(one for one in "ABCD" if one != item.answer)
    text = item.gold["ABCD".index(letter)]
    for reply, right in (
        (f"\\boxed{{{letter}}}", True),
        (f"\\boxed{{\\text{{{letter}}}}}", True),
        (f"\\boxed{{({letter.lower()})}}", True),
        (f"\\boxed{{{letter}) {text}}}", True),
        (f"\\boxed{{{text}}}", True),
        (f"Thinking about {wrong}. The answer is {letter}.", True),
        (f"<answer>{letter}</answer>", True),
        (f"\\boxed{{{wrong}}}", False),
        ("\\boxed{E}", False),
        ("\\boxed{none}", False),
        (f"\\boxed{{{letter} proton}}", False),  # "A" in "A proton" is an article, not an option
        (f"\\boxed{{{letter}, {wrong}}}", False),
        (f"\\boxed{{option {letter}}}", True),
        (f"\\boxed{{**{letter}**}}", True),
        (f"\\boxed{{{letter}}} or \\boxed{{{wrong}}}", False),
        (f"\\boxed{{{letter}{wrong}}}", False),
    ):
        env.reset(seed=3)
        assert solve(env, reply).info["success"] is right, reply
    env.reset(seed=3)
    assert env.step("I do not know, but the answer is a proton").info["invalid"] == "format"


def test_other_option_columns(tmp_path: Path) -> None:
    rows = [{"q": "2 + 2?", "good": "4", "bad": ["3", "5"]}]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    env = palestra.make("eval:GPQA", path=str(path), config=None, question="q", answer="good", wrong="bad")
    env.reset(seed=0)
    assert solve(env).info["success"]
    with pytest.raises(BadValue, match="no column 'worse'"):
        palestra.make("eval:GPQA", path=str(path), config=None, question="q", answer="good", wrong="worse")


def test_ifeval(tmp_path: Path) -> None:
    rows = [
        {
            "key": 1000,
            "prompt": "Write about rivers in at least 5 words without commas.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [{}, {"num_words": 5, "relation": "at least", "num_highlights": None}],
        }
    ]
    write_jsonl(tmp_path / "google" / "IFEval" / "data" / "train.jsonl", rows)
    env = palestra.make("eval:IFEval", mirror=tmp_path)
    prompt, _ = env.reset(seed=0)
    assert prompt == rows[0]["prompt"]
    assert env.expert_action() is None
    assert solve(env, "<think>First, I plan.</think>Rivers flow to the sea.").info["success"]
    env.reset(seed=0)
    step = solve(env, "Rivers, of course.")
    assert (step.info["success"], step.info["score"]) == (False, 0.0)
    env.reset(seed=0)
    assert solve(env, "Rivers flow.").info["score"] == 0.5
    loose = palestra.make("eval:IFEval", mirror=tmp_path, loose=True)
    loose.reset(seed=0)
    assert solve(loose, "Sure, here it is:\nRivers flow to the sea.").info["success"]


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def live_rows() -> list[dict[str, Any]]:
    shared = {"question_title": "t", "platform": "atcoder", "difficulty": "easy"}
    stdin = {"testtype": "stdin"}
    functional = {"testtype": "functional"}
    return [
        {
            **shared,
            "question_id": "abc1",
            "question_content": "Read n and print 2n.",
            "contest_date": "2024-10-05T00:00:00",
            "starter_code": "",
            "public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", **stdin}]),
            "private_test_cases": packed([{"input": "21\n", "output": "42\n", **stdin}]),
            "metadata": "{}",
        },
        {
            **shared,
            "question_id": "3000",
            "question_content": "Return the sum of two numbers.",
            "contest_date": "2025-02-01T00:00:00",
            "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
            "public_test_cases": json.dumps([{"input": "1\n2", "output": "3", **functional}]),
            "private_test_cases": json.dumps([{"input": "-4\n4", "output": "0", **functional}]),
            "metadata": json.dumps({"func_name": "add"}),
        },
    ]


def test_livecodebench(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "test.jsonl", live_rows())
    env = palestra.make("eval:LiveCodeBench", path=str(path), config=None, shuffle=False)
    double = "print(2 * int(input()))"
    add = "class Solution:\n    def add(self, a, b):\n        return a + b"
    for seed, program, right in (
        (0, double, True),
        (0, "print(2)", False),  # passes only the public test
        (1, add, True),
        (1, add.replace("a + b", "3"), False),
    ):
        prompt, _ = env.reset(seed=seed)
        assert ("class Solution" in text_of(prompt)) == (seed == 1)
        assert solve(env, fenced(program)).info["success"] is right, program


def test_livecodebench_by_date(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "test.jsonl", live_rows()))
    env = palestra.make("eval:LiveCodeBench", path=path, config=None, start_date="2025-01-01")
    assert env.num_tasks == 1
    assert "sum of two" in text_of(env.reset(seed=0)[0])
    copy = Env.restore(env.snapshot())
    assert "sum of two" in text_of(copy.reset(seed=5)[0])
    with pytest.raises(DataMissing, match="it covers 2024-10-05 to 2025-02-01"):
        palestra.make("eval:LiveCodeBench", path=path, config=None, start_date="2026-01-01")


def test_private_tests_cannot_run_code(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return eval, ("1",)  # other packages may replace functions such as print

    rows = live_rows()[:1]
    rows[0]["private_test_cases"] = base64.b64encode(zlib.compress(pickle.dumps(Attack()))).decode()
    env = palestra.make("eval:LiveCodeBench", path=str(write_jsonl(tmp_path / "test.jsonl", rows)), config=None)
    with pytest.raises(BadValue, match="cannot be decoded: builtins.eval is not allowed"):
        env.reset(seed=0)


def bfcl(folder: Path, category: str) -> None:
    function = {
        "name": "math.factorial",
        "description": "Compute a factorial.",
        "parameters": {"type": "dict", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    }
    questions, answers = [], []
    for n in range(3):
        numbers = [n, n + 1] if "parallel" in category else [n]
        name = f"{category}_{n}"
        text = f"Compute the factorial of {numbers}."
        questions.append({"id": name, "question": [[{"role": "user", "content": text}]], "function": [function]})
        truth = [{"math.factorial": {"number": [number]}} for number in numbers]
        answers.append({"id": name, "ground_truth": truth})
    place = folder / "gorilla-llm" / "Berkeley-Function-Calling-Leaderboard"
    write_jsonl(place / f"BFCL_v3_{category}.json", questions)
    write_jsonl(place / "possible_answer" / f"BFCL_v3_{category}.json", list(reversed(answers)))


@pytest.mark.parametrize("category", ["simple", "multiple", "parallel", "parallel_multiple"])
def test_bfcl(category: str, tmp_path: Path) -> None:
    bfcl(tmp_path, category)
    env = palestra.make(f"eval:BFCL-{category}", mirror=tmp_path)
    assert env.num_tasks == 3
    for seed in range(3):
        prompt, _ = env.reset(seed=seed)
        assert "math.factorial" in text_of(prompt)
        assert solve(env).info["success"]
    env.reset(seed=0)
    assert not solve(env, "[math.factorial(number=9)]").info["success"]
    env.reset(seed=0)
    assert env.step("The factorial is 6.").info["invalid"] == "format"
    copy = Env.restore(env.snapshot())
    copy.reset(seed=1)
    assert solve(copy).info["success"]


def test_bfcl_without_its_files(tmp_path: Path) -> None:
    bfcl(tmp_path, "simple")
    with pytest.raises(DataMissing, match=r"does not contain BFCL_v3_parallel\.json"):
        palestra.make("eval:BFCL-parallel", mirror=tmp_path)


def test_conformance(gpqa: Path) -> None:
    bfcl(gpqa, "simple")
    for env_id in ("eval:GPQA", "eval:BFCL-simple"):
        report = palestra.check_env(env_id, kwargs={"mirror": str(gpqa)}, episodes=3, seconds=1.0, processes=False)
        assert report.expert is not None
        assert report.expert.value == 1.0
