"""Write the gallery on the docs site: one page per family with prompts, expert episodes and success rates.

    python scripts/docs_gallery.py docs/generated/gallery [--families game math]

Ids and rates come from the catalogs. Episodes are played here by each environment's expert; a family whose packages are
missing is an error, because its page would be incomplete.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import palestra
from palestra.cli.envs import FAMILIES, PLAYERS
from palestra.spec import EnvSpec

MAX_EXAMPLES = {
    "rg": 6,
    "babyai": 4,
    "sciworld": 2,
    "miniwob": 4,
    "sql": 4,
    "search": 4,
}  # per family; others: all names
MAX_TURNS = 6  # turns to show of an episode
MAX_TEXT = 1500  # characters to show of an observation or action
FENCE = "`" * 6  # longer than any fence in an observation


def families() -> dict[str, list[EnvSpec]]:
    """Return the registered environments by family, in the order of `palestra envs`."""
    found: dict[str, list[EnvSpec]] = {}
    for name in palestra.list_envs():
        found.setdefault(name.partition(":")[0], []).append(palestra.get_spec(name))
    return found


def index_page(specs_by_family: Mapping[str, Sequence[EnvSpec]]) -> str:
    count = sum(map(len, specs_by_family.values()))
    rows = [
        f"| [`{family}:`]({family}.md) | {len(specs)} | {FAMILIES.get(family, specs[0].summary)} |"
        for family, specs in specs_by_family.items()
    ]
    text = (
        f"Palestra has {count} environments in {len(specs_by_family)} families. Each page shows prompts and episodes "
        "of the expert, and lists all ids with the measured success rates of four players. `palestra envs` prints the "
        "same tables, and `palestra play ID` plays an episode.\n"
    )
    head = "| family | environments | tasks |\n|---|---|---|"
    return "\n".join(["# Gallery of environments\n", text, head, *rows, ""])


def family_page(family: str, specs: Sequence[EnvSpec], folder: Path) -> str:
    """Return a family's page. Drawings of states are written to `folder`."""
    extras = sorted({spec.extra for spec in specs if spec.extra})
    install = "".join(f" Install it with `pip install 'palestra[{extra}]'`." for extra in extras)
    parts = [f"# {family}\n", f"{_sentence(FAMILIES.get(family, specs[0].summary))}{install}\n"]
    chosen = examples(specs)
    if chosen:
        parts.append("## Episodes\n")
        parts += [episode(spec, folder) for spec in chosen]
    else:
        parts.append("These environments need a dataset or a website, so this page shows no episode.\n")
    parts += ["## Environments\n", rates_table(specs)]
    return "\n".join(parts)


def examples(specs: Sequence[EnvSpec]) -> list[EnvSpec]:
    """Return one environment per name, the first variant that has an expert and needs no data."""
    by_name: dict[str, EnvSpec] = {}
    for spec in specs:
        if spec.expert_success is not None and not spec.needs_data:
            by_name.setdefault(spec.parts.name, spec)
    names = list(by_name.values())
    most = MAX_EXAMPLES.get(specs[0].parts.family, len(names))
    return names[:: max(1, len(names) // max(1, most))][:most]


def episode(spec: EnvSpec, folder: Path, seed: int = 1) -> str:
    """Play an episode with the expert and return it as Markdown, folded except for its title."""
    lines = [f"### {spec.parts.name}\n", f"{_sentence(spec.summary)} Seed {seed} of `{spec.id}`:\n"]
    with palestra.make(spec.id) as env:
        observation, _ = env.reset(seed=seed)
        lines += _fenced("Prompt", observation)
        image = env.render("image")
        if isinstance(image, bytes):
            name = f"{spec.parts.family}-{spec.parts.name}.png"
            (folder / name).write_bytes(image)
            lines += [f"![First state in {spec.id}]({name})\n"]
        turn, total, over = 0, 0.0, False
        while not over:
            action = env.expert_action()
            if action is None:
                raise RuntimeError(f"{spec.id}: the expert has no action in turn {turn + 1}")
            step = env.step(action)
            turn, total, over = turn + 1, total + step.reward, step.terminated or step.truncated
            if turn <= MAX_TURNS or over:
                if turn > MAX_TURNS + 1:
                    lines.append(f"*({turn - MAX_TURNS - 1} more turns)*\n")
                lines += _fenced(f"Expert, turn {turn}", action)
                lines += _fenced(f"Observation, reward {step.reward:g}", step.observation)
        lines.append(
            f"The episode ended after {turn} turns with return {total:g}, success: {step.info.get('success')}.\n"
        )
    head, body = lines[:2], lines[2:]
    return "\n".join([*head, '??? example "Expert episode"\n', *(_indent(text) for text in body)])


def rates_table(specs: Sequence[EnvSpec]) -> str:
    """Return all ids of a family with the rates in their specs."""
    head = f"| id | {' | '.join(PLAYERS)} | task |\n|---|{'---:|' * len(PLAYERS)}---|"
    rows = [
        f"| `{spec.id}` | {' | '.join(_rate(getattr(spec, f'{player}_success')) for player in PLAYERS)} "
        f"| {_cell(spec.summary)} |"
        for spec in specs
    ]
    text = (
        "Success rates of the reference solver, of a player with random valid actions, of replies that copy a part of "
        "the prompt, and of the best constant reply.\n"
    )
    return "\n".join([text, head, *rows, ""])


def _fenced(title: str, text: Any) -> list[str]:
    words = text if isinstance(text, str) else "\n".join(_part(part) for part in text)
    if len(words) > MAX_TEXT:
        words = f"{words[: MAX_TEXT - 300]}\n[... {len(words) - MAX_TEXT:,} characters ...]\n{words[-300:]}"
    return [f"**{title}**\n", f"{FENCE}text\n{words}\n{FENCE}\n"]


def _part(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if "text" in part else "[image]"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"


def write(folder: Path, wanted: Iterable[str] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    specs_by_family = families()
    (folder / "index.md").write_text(index_page(specs_by_family))
    for family in wanted or specs_by_family:
        (folder / f"{family}.md").write_text(family_page(family, specs_by_family[family], folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="Folder for the pages.")
    parser.add_argument("--families", nargs="*", help="Families to write (default: all).")
    args = parser.parse_args()
    write(args.out, args.families)


if __name__ == "__main__":
    main()
