"""`palestra init-model`: write a model that every command takes, without a hub."""

from __future__ import annotations

import argparse

from palestra.engines.default_model import SIZES, count_parameters, default_model, save
from palestra.engines.smollm2 import smollm2
from palestra.errors import BadValue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default="1M",
        metavar="MODEL",
        help=f"a size of the default model, untrained: {', '.join(SIZES)} (1M); or smollm2, pretrained, 135M",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the checkpoint goes")
    parser.add_argument("--seed", type=int, default=0, help="the weights of an untrained model follow from it (0)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in FOLDER")


def run(args: argparse.Namespace) -> int:
    if args.model not in SIZES and args.model != "smollm2":
        raise BadValue(f"no model {args.model!r}; there are {', '.join(SIZES)} and smollm2")
    model, tokenizer = smollm2() if args.model == "smollm2" else default_model(args.model, seed=args.seed)
    folder = save(model, tokenizer, args.out, overwrite=args.force)
    kind = "pretrained" if args.model == "smollm2" else "untrained"
    print(f"{folder}: {count_parameters(model):,} parameters, {len(tokenizer):,} tokens in the vocabulary, {kind}")
    return 0
