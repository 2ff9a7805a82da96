"""Test that every option of every command has a help text, and that help imports only the modules it needs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import cache

import pytest

from palestra.cli import VERBS, build_parser

HEAVY = ("fastapi", "mcp", "msgspec", "numpy", "ray", "starlette", "torch", "transformers", "uvicorn")


@cache
def verb_parsers() -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_full_sentence(verb: str) -> None:
    problems = []
    for action in verb_parsers()[verb]._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        text = (action.help or "") % {"default": action.default, "prog": "palestra"}
        if len(text.split()) < 4 or not text[0].isupper() or not text.endswith("."):
            problems.append(f"{name}: {text!r}")
    assert problems == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_full_sentence(verb: str) -> None:
    assert VERBS[verb][0].isupper()
    assert VERBS[verb].endswith(".")


def loaded_by(*args: str) -> set[str]:
    code = (
        "import sys\nfrom palestra.cli import main\n"
        f"try:\n    main({list(args)!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_top_level_help_and_version_load_no_verb(option: str) -> None:
    modules = {name for name in loaded_by(option) if name.partition(".")[0] in ("palestra", *HEAVY)}
    assert modules == {"palestra", "palestra.cli", "palestra.cli.interrupts", "palestra.errors"}


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_loads_no_heavy_library(verb: str) -> None:
    modules = loaded_by(verb, "--help")
    assert {name for name in HEAVY if name in modules} == set()
    other = {f"palestra.cli.{name.replace('-', '_')}" for name in VERBS if name != verb}
    assert modules & other <= {"palestra.cli.eval"}  # rescore shares a helper with eval
