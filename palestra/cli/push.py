"""`palestra push RUN OWNER/NAME`: upload a run's model to the Hugging Face hub, with a model card."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from types import ModuleType

from palestra.errors import BadValue, StoreFailed
from palestra.optional import require
from palestra.progress import phase

_EPILOG = """\
examples:
  palestra push runs/sudoku me/sudoku-1.7b --private     upload the best model of a run
  palestra push runs/sudoku me/sudoku-1.7b --dry-run     print the model card and the files

Log in with `hf auth login`, or set HF_TOKEN. HF_ENDPOINT selects another hub.
"""
_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("run_folder", metavar="RUN", help="Folder of the training run.")
    parser.add_argument("name", metavar="OWNER/NAME", help="Name of the model on the hub; it is created if necessary.")
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        default="best",
        help="Model to upload: the best one on held-out tasks, or the last one (default: best).",
    )
    parser.add_argument("--private", action="store_true", help="Make a new model private.")
    parser.add_argument(
        "--message", default="Upload model trained with Palestra", metavar="TEXT", help="Message of the hub's commit."
    )
    parser.add_argument("--dry-run", action="store_true", help="Print the model card and the files without uploading.")


def run(args: argparse.Namespace) -> int:
    if not _NAME.fullmatch(args.name):
        raise BadValue(f"the name of a model has the form OWNER/NAME, got {args.name!r}")
    with phase("reading the run"):
        from palestra.training.model_card import model_card
        from palestra.training.reporting.run_folder import read_run

        record = read_run(args.run_folder)
    folder = Path(args.run_folder) / args.which
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    if not (folder / "config.json").exists():
        raise BadValue(f"{folder} contains no model; the run has not written one yet")
    card = model_card(record, args.name)
    if args.dry_run:
        print(card)
        for path in files:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}")
        return 0
    print(f"uploading {len(files)} files from {folder}", flush=True)
    with phase("connecting to the hub"):
        hub = require("huggingface_hub", extra="train")
    print(_upload(hub, folder, card, args))
    return 0


def _upload(hub: ModuleType, folder: Path, card: str, args: argparse.Namespace) -> str:
    """Upload the files and the card in one commit, and return its URL."""
    errors = require("huggingface_hub.errors", extra="train")
    http = require("httpx", extra="train")
    api = hub.HfApi()
    try:
        api.create_repo(args.name, private=args.private, exist_ok=True)
        card_file = hub.CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=card.encode())
        operations = [
            hub.CommitOperationAdd(path_in_repo=path.relative_to(folder).as_posix(), path_or_fileobj=str(path))
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in ("manifest.json", "README.md")
        ]
        commit = api.create_commit(args.name, [card_file, *operations], commit_message=args.message)
    except errors.LocalTokenNotFoundError as err:
        raise BadValue("you are not logged in to the hub: run `hf auth login`, or set HF_TOKEN") from err
    except errors.HfHubHTTPError as err:
        status = err.response.status_code if err.response is not None else None
        if status in (401, 403):
            raise BadValue(
                f"the hub refused the upload to {args.name} ({status}): log in with `hf auth login`, or set HF_TOKEN "
                "to a token that may write to it"
            ) from err
        raise StoreFailed(f"the hub refused the upload to {args.name}: {err}") from err
    except (http.HTTPError, OSError) as err:
        raise StoreFailed(f"the hub cannot be reached: {err}. Run the same command again later") from err
    return str(commit.commit_url)
