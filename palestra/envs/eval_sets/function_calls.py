"""Environment for the Berkeley Function Calling Leaderboard (BFCL), in which answers are function calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.envs.tasks.files import DictTable, read_path
from palestra.envs.tasks.hub import unreachable_reason
from palestra.envs.tasks.rows import Rows, local_path
from palestra.envs.tasks.source import Source
from palestra.errors import BadValue, DataMissing
from palestra.grading import Grade
from palestra.grading.function_calls import Call, grade_calls, read_calls
from palestra.optional import require
from palestra.parsing import after_thinking

ANSWERS = "possible_answer"  # folder with the accepted calls


class FunctionCalls(DataTask):
    """Questions that are answered by calling functions, from BFCL's files.

    `category` is "simple", "multiple", "parallel", "parallel_multiple" or another category with accepted calls, and
    `version` is part of the file names: `BFCL_v3_simple.json` contains the questions and functions, and
    `possible_answer/BFCL_v3_simple.json` contains the accepted calls. A custom file has the columns `question`,
    `function` and `ground_truth`. Replies contain calls as Python or JSON (`palestra.grading.function_calls`).
    """

    answer_name = "list of calls"
    fenced_answers = True

    def __init__(self, *, category: str = "simple", version: str = "v3", **options: Unpack[DataOptions]) -> None:
        self.file = f"BFCL_{version}_{category}.json"
        super().__init__(**options)
        for column in ("function", "ground_truth"):
            self.rows.require_column(column, column)

    def open_rows(self, source: Source) -> Rows:
        return open_bfcl(source, self.file)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        functions, accepted = get_cell(row, "function"), get_cell(row, "ground_truth")
        functions = json.loads(functions) if isinstance(functions, str) else functions
        accepted = json.loads(accepted) if isinstance(accepted, str) else accepted
        if not isinstance(functions, list) or not isinstance(accepted, list) or not accepted:
            raise BadValue(f"{key} needs a list of functions and a list of accepted calls")
        question = get_cell(row, self.question)
        turns = question[0] if isinstance(question, list) and question and isinstance(question[0], list) else question
        described = "\n".join(json.dumps(function) for function in functions)
        text = f"{cell_text(turns)}\n\nYou can call these functions:\n{described}"
        return Item(question=text, answer=_python(accepted), gold=(accepted, functions), key=key)

    def read(self, reply: str) -> str | None:
        reply = after_thinking(reply)
        return None if read_calls(reply) is None else reply

    def write(self, answer: str) -> str:
        return answer

    def grade(self, answer: str) -> Grade:
        accepted, functions = self.item.gold
        calls: list[Call] = read_calls(answer) or []
        return grade_calls(calls, accepted, functions)

    def random_answer(self) -> str:
        _, functions = self.item.gold
        return f"[{self.player_rng.choice(functions)['name']}()]"

    def example_answer(self) -> str:
        return '[get_weather(city="Paris", days=3)]'

    def format_note(self) -> str:
        return (
            "Answer with the function calls in Python, as a list with keyword arguments, for example "
            f"{self.example_action()}. JSON tool calls are accepted as well. You may think first, inside "
            "<think></think>; the rest of your reply must consist of the calls."
        )


class JoinedRows(Rows):
    """Questions joined with their accepted calls."""

    __slots__ = ("file",)

    def __init__(self, source: Source, table: DictTable, folder: Path | None, file: str) -> None:
        super().__init__(source, table, folder)
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open_bfcl, (self.source, self.file)


def open_bfcl(source: Source, file: str) -> Rows:
    """Open a BFCL category from a folder, a mirror or the Hub, or a single file that contains everything."""
    path = local_path(source) or _download(source, file)
    if path.is_file():
        table = read_path(path)
        return JoinedRows(source, DictTable([table[i] for i in range(len(table))]), path.parent, file)
    questions, answers = path / file, path / ANSWERS / file
    for needed in (questions, answers):
        if not needed.is_file():
            raise DataMissing(f"{path} does not contain {needed.relative_to(path)}")
    accepted = {row["id"]: row["ground_truth"] for row in _lines(answers)}
    rows = [{**row, "ground_truth": accepted[row["id"]]} for row in _lines(questions) if row["id"] in accepted]
    if not rows:
        raise DataMissing(f"{questions} has no question with accepted calls in {answers}")
    return JoinedRows(source, DictTable(rows), path, file)


def _lines(path: Path) -> list[dict[str, Any]]:
    table = read_path(path)
    return [table[i] for i in range(len(table))]


def _download(source: Source, file: str) -> Path:
    hub = require("huggingface_hub", extra="data")
    reason = unreachable_reason(str(hub.constants.ENDPOINT))
    try:
        folder = hub.snapshot_download(
            source.dataset,
            repo_type="dataset",
            revision=source.revision,
            allow_patterns=[file, f"{ANSWERS}/{file}"],
            local_files_only=reason is not None,
        )
    except (OSError, ValueError) as err:
        raise DataMissing(
            f"{file} of {source.dataset} cannot be loaded: {reason or err}. Download it and {ANSWERS}/{file} into a "
            "folder and pass path=FOLDER, or use a mirror with mirror=FOLDER"
        ) from err
    return Path(folder)


def _python(accepted: list[Mapping[str, Mapping[str, list[Any]]]]) -> str:
    """Write accepted calls as Python, with the first accepted value for each required argument."""
    calls = []
    for call in accepted:
        [(name, arguments)] = call.items()
        given = ", ".join(f"{key}={_value(values)!r}" for key, values in arguments.items() if "" not in values)
        calls.append(f"{name}({given})")
    return f"[{', '.join(calls)}]"


def _value(values: list[Any]) -> Any:
    value = values[0]
    if isinstance(value, Mapping):  # each field is a list of accepted values
        return {key: _value(ones) if isinstance(ones, list) else ones for key, ones in value.items() if "" not in ones}
    return value
