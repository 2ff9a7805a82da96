"""Pack trained models with their trajectories and model cards as release files.

    python scripts/release_checkpoints.py [RUN ...] [--out dist/checkpoints]

Each finished run with at most 10M parameters becomes NAME.tar.gz: the best model in Hugging Face format, a model card
(README.md), settings, metrics, and the trajectories of every step. SHA256SUMS lists the files. A run without stored
trajectories is refused; train with `--store`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile
from math import prod
from pathlib import Path

from palestra.errors import BadValue
from palestra.training.model_card import model_card
from palestra.training.reporting.run_folder import RunRecord, read_run

ROOT = Path(__file__).parents[1]
MAX_PARAMETERS = 10_500_000  # default:10M has slightly more than 10M
EXTRA = ("run.json", "metrics.jsonl", "report.html")  # files of the run besides model, card and trajectories


class NotPacked(Exception):
    """The run is not packed; the message is the reason."""


def parameters(model: Path) -> int:
    """Return the number of parameters in a model folder, from the headers of its safetensors files."""
    total = 0
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        total += sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    return total


def model_of(run: Path) -> Path:
    """Return the folder of a run's best model, or of its last one if no evaluation has selected a best one."""
    return run / "best" if (run / "best").exists() else run / "last"


def contents(record: RunRecord) -> dict[str, bytes]:
    """Return the files of a release by name; raise NotPacked if the run is unsuitable."""
    folder = record.folder
    model = model_of(folder)
    if not record.finished or not (model / "config.json").exists():
        raise NotPacked("the run has not finished")
    count = parameters(model)
    if count > MAX_PARAMETERS:
        raise NotPacked(f"{count:,} parameters are more than 10M")
    trajectories = sorted((folder / "trajectories").glob("step-*.jsonl.gz"))
    if not trajectories:
        raise NotPacked("no stored trajectories; train with --store")
    card = model_card(record, folder.name)
    card += f"\n## Files\n\nThe model has {count:,} parameters. `trajectories/` contains the episodes of every step.\n"
    files = {path.name: path for path in sorted(model.iterdir()) if path.name not in ("manifest.json", "README.md")}
    files |= {name: folder / name for name in EXTRA if (folder / name).exists()}
    files |= {f"trajectories/{path.name}": path for path in trajectories}
    return {"README.md": card.encode(), **{name: path.read_bytes() for name, path in files.items()}}


def pack(run: Path, out: Path) -> Path:
    """Write the release file of a run; the same run gives the same bytes."""
    files = contents(read_run(run))
    path = out / f"{run.name}.tar.gz"
    out.mkdir(parents=True, exist_ok=True)
    with (
        path.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{run.name}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="Folders of runs (default: all runs below runs/).")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "checkpoints", help="Folder for the files.")
    args = parser.parse_args(arguments)
    runs = args.runs or sorted(path.parent for path in (ROOT / "runs").rglob("run.json"))
    sums = []
    for run in runs:
        try:
            path = pack(run.resolve(), args.out)
        except (NotPacked, BadValue) as err:
            print(f"{run}: not packed: {err}", file=sys.stderr)
            continue
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        print(f"{path.stat().st_size:>12,}  {path}")
    if sums:
        (args.out / "SHA256SUMS").write_text("".join(sums))
    return 0 if sums else 1


if __name__ == "__main__":
    sys.exit(main())
