"""`palestra init-model`: create a small model checkpoint that all commands accept as `--model`."""

from __future__ import annotations

import argparse

from palestra.engines.default_model import SIZES, count_parameters, default_model, save
from palestra.errors import BadValue
from palestra.progress import phase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default="1M",
        metavar="MODEL",
        help=f"Model to create: the size of an untrained model ({', '.join(SIZES)}), or smollm2 for a pretrained "
        "model with 135M parameters (default: 1M).",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="Folder to write the model checkpoint to.")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="Random seed for initializing the weights of an untrained model (default: 0).",
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace an existing checkpoint in the folder.")


def run(args: argparse.Namespace) -> int:
    if args.model not in SIZES and args.model != "smollm2":
        raise BadValue(f"there is no model {args.model!r}; the models are {', '.join(SIZES)} and smollm2")
    with phase(f"creating the model {args.model}"):
        if args.model == "smollm2":
            from palestra.engines.smollm2 import smollm2

            model, tokenizer = smollm2()
        else:
            model, tokenizer = default_model(args.model, seed=args.seed)
        folder = save(model, tokenizer, args.out, overwrite=args.overwrite)
    state = "pretrained" if args.model == "smollm2" else "untrained"
    print(f"{folder}: {count_parameters(model):,} parameters, {len(tokenizer):,} tokens in the vocabulary, {state}")
    return 0
