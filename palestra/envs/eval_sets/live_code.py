"""LiveCodeBench: dated programming problems, graded in the sandbox by their public and private tests."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn, Unpack

from palestra.envs.code.problems import CodeProblems
from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions
from palestra.envs.tasks.rows import Rows, open_rows
from palestra.envs.tasks.source import Source, Table
from palestra.errors import BadValue, DataMissing
from palestra.grading import read_tests
from palestra.parsing import fenced

MAX_TEST_BYTES = 1 << 30  # limit on the decompressed size of a row's private tests


class CodeOptions(DataOptions, total=False):
    """`CodeProblems` keyword arguments that also apply to LiveCodeBench."""

    max_tests: int | None
    stop_early: bool
    seconds: float


class LiveCodeBench(CodeProblems):
    """Problems from LiveCodeBench's code generation task, in the schema of `livecodebench/code_generation_lite`.

    `start_date` and `end_date` select problems by contest date, for example "2025-01-01"; both dates are inclusive. All
    tests are run by default. If a problem has starter code, its tests call a method of the `Solution` class; otherwise
    the program reads standard input.
    """

    def __init__(
        self, *, start_date: str | None = None, end_date: str | None = None, **options: Unpack[CodeOptions]
    ) -> None:
        self.start_date, self.end_date = start_date, end_date
        options.setdefault("max_tests", None)
        options.setdefault("stop_early", True)
        options.setdefault("question", "question_content")
        options.setdefault("seconds", 6.0)
        super().__init__(tests="public_test_cases", **options)

    def open_rows(self, source: Source) -> Rows:
        return open_dated_rows(source, self.start_date, self.end_date)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        cases = [*_cases(row.get("public_test_cases"), key), *_cases(row.get("private_test_cases"), key)]
        metadata = row.get("metadata") or "{}"
        function = (json.loads(metadata) if isinstance(metadata, str) else metadata).get("func_name")
        try:
            tests = read_tests(cases, function=function or None)
        except BadValue as err:
            raise BadValue(f"{key}: {err}") from err
        text = cell_text(get_cell(row, self.question))
        if row.get("starter_code"):
            text = f"{text}\n\nStart from this code:\n{fenced(str(row['starter_code']))}"
        return Item(question=text, answer=str(row.get("solution") or ""), gold=tests, key=key)


class DatedRows(Rows):
    """Rows whose contest date lies between two dates."""

    __slots__ = ("dates",)

    def __init__(self, rows: Rows, table: Table, dates: tuple[str | None, str | None]) -> None:
        super().__init__(rows.source, table, rows.folder)
        self.dates = dates

    def __reduce__(self) -> tuple[Any, ...]:
        return open_dated_rows, (self.source, *self.dates)


class _Selection:
    """Selected rows from a table."""

    def __init__(self, table: Table, numbers: list[int]) -> None:
        self.table = table
        self.numbers = numbers
        self.columns = table.columns

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        return self.table[self.numbers[index]]


def open_dated_rows(source: Source, start: str | None, end: str | None) -> Rows:
    """Load a source's rows that have a `contest_date` between two dates."""
    rows = open_rows(source)
    if start is None and end is None:
        return rows
    dates = [str(rows[number].get("contest_date", ""))[:10] for number in range(len(rows))]
    numbers = [number for number, date in enumerate(dates) if (start or "") <= date <= (end or "9999")]
    if not numbers:
        raise DataMissing(
            f"{source.name} has no problems from {start} to {end}; it covers {min(dates)} to {max(dates)}"
        )
    return DatedRows(rows, _Selection(rows.table, numbers), (start, end))


def _cases(cell: Any, key: str) -> list[dict[str, Any]]:
    """Return the test cases in a cell: JSON, or base64 of compressed and pickled JSON."""
    if not cell:
        return []
    if not isinstance(cell, str):
        return list(cell)
    try:
        return list(json.loads(cell))
    except ValueError:
        pass
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(cell), MAX_TEST_BYTES)
        return list(json.loads(_TextUnpickler(io.BytesIO(data)).load()))
    except (ValueError, TypeError, zlib.error, pickle.UnpicklingError, EOFError) as err:
        raise BadValue(f"{key}: the private tests cannot be decoded: {err}") from err


class _TextUnpickler(pickle.Unpickler):
    """Unpickler for text, which cannot import anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
