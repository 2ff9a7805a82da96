"""Print a random sample of the texts that users and developers read, to review their wording.

    python scripts/sample_texts.py --count 60 --seed 1

Prints docstrings, comments, error messages, option help, environment prompts, documentation paragraphs and commit
subjects, one per entry, each with its location.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Text = tuple[str, str]  # location, text


def docstrings_and_errors(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings in a file and the messages of its exceptions."""
    name = path.relative_to(ROOT)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield f"{name}:{getattr(node, 'lineno', 1)} docstring", docstring.split("\n\n")[0]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = ast.unparse(node.exc.args[0])
            if message.count(" ") > 3:
                yield f"{name}:{node.lineno} error", message


def comments(path: Path) -> Iterator[Text]:
    """Yield the comments in a file; a comment may span several lines."""
    blocks: list[list[tokenize.TokenInfo]] = []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# noqa", "# type", "# ruff", "# fmt", "#!")):
            continue
        line, column = token.start
        if blocks and blocks[-1][-1].start == (line - 1, column) and not token.line[:column].strip():
            blocks[-1].append(token)
        else:
            blocks.append([token])
    for block in blocks:
        text = "# " + " ".join(token.string.removeprefix("#").strip() for token in block)
        if text.count(" ") > 3:
            yield f"{path.relative_to(ROOT)}:{block[0].start[0]} comment", text


def option_help() -> Iterator[Text]:
    from palestra.cli import build_parser

    parser = build_parser()
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for verb, subparser in subparsers.choices.items():
        for action in subparser._actions:
            if action.help and action.help != argparse.SUPPRESS:
                name = "/".join(action.option_strings) or action.dest
                yield f"palestra {verb} {name} help", action.help.replace("%%", "%")


def prompts(rng: random.Random, count: int) -> Iterator[Text]:
    import palestra
    from palestra.types import text_of

    families = ["game", "math", "logic", "code", "babyai", "textcraft", "webshop", "sql", "search", "qa"]
    for family in families:
        names = [name for name in palestra.list_envs(family) if not palestra.get_spec(name).needs_data]
        for name in rng.sample(names, min(count, len(names))):
            with palestra.make(name) as env:
                observation = env.reset(seed=1)[0]
            yield f"{name} prompt", text_of(observation)


def paragraphs(path: Path) -> Iterator[Text]:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for paragraph in text.split("\n\n"):
        if paragraph.count(" ") > 5 and not paragraph.startswith(("|", "#")):
            yield f"{path.relative_to(ROOT)} paragraph", paragraph.strip()


def commit_subjects() -> Iterator[Text]:
    log = subprocess.run(["git", "log", "-100", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True, check=True)
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        yield f"commit {commit}", subject


def collect(rng: random.Random) -> dict[str, list[Text]]:
    """Return all texts by kind."""
    texts: dict[str, list[Text]] = {"package": [], "comments": [], "tests": []}
    for folder, kind in (("palestra", "package"), ("benchmarks", "tests"), ("tests", "tests")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts[kind] += docstrings_and_errors(path, ast.parse(path.read_text(encoding="utf-8")))
            texts["comments" if kind == "package" else "tests"] += comments(path)
    texts["help"] = list(option_help())
    texts["prompts"] = list(prompts(rng, 3))
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts["docs"] = [text for page in pages for text in paragraphs(page)]
    texts["commits"] = list(commit_subjects())
    return texts


SHARES = {"package": 18, "comments": 12, "tests": 8, "help": 8, "prompts": 4, "docs": 6, "commits": 4}  # of 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="Number of texts to print.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed for the sample.")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    texts = collect(rng)
    sample = []
    for kind, share in SHARES.items():
        sample += rng.sample(texts[kind], min(len(texts[kind]), round(share * args.count / 60)))
    for number, (location, text) in enumerate(sample, 1):
        print(f"{number}. [{location}]\n   " + text.replace("\n", "\n   ")[:900] + "\n")


if __name__ == "__main__":
    main()
