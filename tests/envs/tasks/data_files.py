"""Small datasets for tests, with the same schemas as datasets on the Hub."""

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
    """Return rows with the columns of axon-rl's math datasets."""
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
    """Return a dataset with the schema of axon-rl/geometry3k, in which each row has a list of images."""
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
    """Write rows to the cache as if `datasets` had downloaded them."""
    owner, name = dataset_id.split("/")
    lower = name.lower()
    folder = cache / f"{owner}___{lower}" / "default" / "0.0.0" / "0123456789abcdef"
    dataset = datasets.Dataset.from_list(rows)
    dataset.save_to_disk(str(folder / "saved"))
    (next((folder / "saved").glob("*.arrow"))).rename(folder / f"{lower}-{split}.arrow")
    info = datasets.DatasetInfo(
        features=dataset.features,
        dataset_name=lower,
        config_name="default",
        version="0.0.0",
        splits=datasets.SplitDict({split: datasets.SplitInfo(name=split, num_examples=len(rows), dataset_name=lower)}),
    )
    info.write_to_directory(str(folder))
