"""Generate a small fictional encyclopedia, so that search works without a download.

All facts are invented, so that a model cannot know them in advance. They are connected: a person was born in a town,
the town lies on a river, the river rises in a mountain range. Each multi-hop question about them has exactly one
answer. The text is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from palestra.tools.search.passages import Passage

_ONSETS = (
    "b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "sk", "st", "t",
    "tr", "v", "w", "z",
)  # fmt: skip
_VOWELS = (
    "a", "e", "i", "o", "u", "ae", "ia",
)  # fmt: skip
_CODAS = ["", "", "l", "n", "r", "s", "th", "nd", "rk"]
_TRADES = (
    "astronomer", "cartographer", "chemist", "composer", "engineer", "historian", "painter", "physician", "poet",
    "sculptor",
)  # fmt: skip
_GOODS = (
    "amber", "barley", "copper", "glass", "linen", "paper", "salt", "silver", "slate", "tin", "wool", "pearls",
)  # fmt: skip
_METALS = (
    "copper", "iron", "lead", "silver", "tin", "zinc",
)  # fmt: skip
_FEATURES = (
    "a stone bridge", "a bell tower", "a botanical garden", "a covered market", "an observatory", "a tidal mill",
)  # fmt: skip
_WORKS = (
    "The Atlas of", "A Treatise on", "Songs of", "Letters from", "The Lamps of", "A History of",
)  # fmt: skip
LANDS, RANGES, RIVERS, TOWNS, PEOPLE = 12, 16, 40, 240, 480


class _Facts:
    """Facts in the encyclopedia, generated with a fixed seed."""

    def __init__(self) -> None:
        self.rng = rng = Random(1729)
        self._used_names: set[str] = set()
        self.lands = [self.name(2) for _ in range(LANDS)]
        self.ranges = [(self.name(2), rng.randrange(1_200, 5_900)) for _ in range(RANGES)]
        self.rivers = [(self.name(2), rng.randrange(RANGES), rng.randrange(60, 1_900)) for _ in range(RIVERS)]
        self.towns = [(self.name(3), rng.randrange(LANDS), rng.randrange(RIVERS)) for _ in range(TOWNS)]
        self.people = [
            (f"{self.name(2)} {self.name(2)}", rng.choice(_TRADES), rng.randrange(TOWNS), rng.randrange(1580, 1930))
            for _ in range(PEOPLE)
        ]

    def name(self, syllables: int) -> str:
        while True:
            parts = [self.rng.choice(_ONSETS) + self.rng.choice(_VOWELS) for _ in range(syllables)]
            word = ("".join(parts) + self.rng.choice(_CODAS)).capitalize()
            if word not in self._used_names:
                self._used_names.add(word)
                return word


def encyclopedia_passages() -> Iterator[Passage]:
    """Generate the passages; their ids are 0, 1, 2, ..."""
    pages = _pages(_Facts())
    return (Passage(id=str(number), title=title, text=text) for number, (title, text) in enumerate(pages))


def _pages(facts: _Facts) -> Iterator[tuple[str, str]]:
    rng = facts.rng
    for number, land in enumerate(facts.lands):
        towns = [town for town, home, _ in facts.towns if home == number]
        rule = rng.choice(["kingdom", "republic", "league of cities"])
        yield (
            land,
            (
                f"{land} is a country of {len(towns)} towns, among them {towns[0]}, {towns[1]} and {towns[2]}. Its "
                f"capital is {rng.choice(towns)}. It has been a {rule} since {rng.randrange(1400, 1900)} and lives on "
                f"trade in {rng.choice(_GOODS)} and {rng.choice(_GOODS)}."
            ),
        )
    for number, (name, height) in enumerate(facts.ranges):
        springs = [river for river, home, _ in facts.rivers if home == number]
        sources = f"The rivers {', '.join(springs)} rise there." if springs else "No river of note rises there."
        yield (
            f"{name} Range",
            (
                f"The {name} Range is a chain of mountains whose highest peak reaches {height:,} metres. {sources} The "
                f"passes are closed from {rng.choice(['October', 'November'])} to {rng.choice(['April', 'May'])}, and "
                f"{rng.choice(_METALS)} was mined on its slopes until {rng.randrange(1800, 1960)}."
            ),
        )
    for number, (name, source, length) in enumerate(facts.rivers):
        towns = [town for town, _, river in facts.towns if river == number]
        winters = rng.choice(["most winters", "hard winters only", "no winter on record"])
        yield (
            f"{name} (river)",
            (
                f"The {name} is a river of {length} kilometres that rises in the {facts.ranges[source][0]} Range. It "
                f"flows past {', '.join(towns) or 'no town'}. Barges carry {rng.choice(_GOODS)} down it, and it "
                f"freezes in {winters}."
            ),
        )
    for number, (name, home, river) in enumerate(facts.towns):
        born = [person for person, _, place, _ in facts.people if place == number]
        births = f"{born[0]} was born there. " if born else ""
        yield (
            name,
            (
                f"{name} is a town in {facts.lands[home]}, on the river {facts.rivers[river][0]}, with "
                f"{rng.randrange(800, 240_000):,} inhabitants. It was founded in {rng.randrange(900, 1700)} and is "
                f"known for {rng.choice(_FEATURES)} and for its {rng.choice(_GOODS)}. {births}"
                f"The mayor is elected every {rng.randrange(2, 8)} years."
            ),
        )
    for name, trade, place, year in facts.people:
        elders = [elder for elder, _, _, birth in facts.people if 20 <= year - birth <= 60]
        teacher = rng.choice(elders) if elders else "the town's schoolmaster"
        article = "an" if trade[0] in "aeiou" else "a"
        yield (
            name,
            (
                f"{name} ({year} to {year + rng.randrange(31, 90)}) was {article} {trade} born in "
                f"{facts.towns[place][0]}, remembered for {rng.choice(_WORKS)} {rng.choice(facts.towns)[0]}, published "
                f"in {year + rng.randrange(22, 30)}. {name.split()[0]} studied under {teacher} and spent the last "
                f"years in {rng.choice(facts.towns)[0]}, where a street is named after the {trade}."
            ),
        )
