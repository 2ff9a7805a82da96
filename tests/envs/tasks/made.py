"""Data sets in the schemas that the hub's have, written by the tests."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def math_rows(count: int = 12) -> list[dict[str, Any]]:
    """axon-rl's columns for mathematics."""
    return [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(count)]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def geometry() -> datasets.Dataset:
    """axon-rl/geometry3k: a list of pictures a row, as the feature that `datasets` has for them."""
    rows = {
        "problem": ["<image>Find x.", "Find y of the figure <image>, as drawn in <image>."],
        "answer": ["3", "\\sqrt{2}"],
        "images": [[{"bytes": png("red"), "path": None}], [{"bytes": png("blue"), "path": None}] * 2],
    }
    features = datasets.Features(
        {
            "problem": datasets.Value("string"),
            "answer": datasets.Value("string"),
            "images": datasets.List(datasets.Image()),
        }
    )
    return datasets.Dataset.from_dict(rows, features=features)


def as_cached(cache: Path, dataset_id: str, rows: list[dict[str, Any]], split: str = "train") -> None:
    """Put rows where `datasets` leaves a data set that it has downloaded."""
    owner, name = dataset_id.split("/")
    lower = name.lower()
    folder = cache / f"{owner}___{lower}" / "default" / "0.0.0" / "0123456789abcdef"
    made = datasets.Dataset.from_list(rows)
    made.save_to_disk(str(folder / "saved"))
    (next((folder / "saved").glob("*.arrow"))).rename(folder / f"{lower}-{split}.arrow")
    info = datasets.DatasetInfo(
        features=made.features,
        dataset_name=lower,
        config_name="default",
        version="0.0.0",
        splits=datasets.SplitDict({split: datasets.SplitInfo(name=split, num_examples=len(rows), dataset_name=lower)}),
    )
    info.write_to_directory(str(folder))
