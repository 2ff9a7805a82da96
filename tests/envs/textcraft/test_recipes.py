"""Test that the recipe book has Minecraft's recipes and no cycles, and does not depend on the order of files."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.textcraft.crafting import repetitions
from palestra.envs.textcraft.recipes import TAGS, RecipeBook, _packaged, build_recipe_book, load_recipe_book
from palestra.errors import DataMissing

FILES: list[dict[str, Any]] = [json.loads(file.read_text()) for file in sorted(_packaged().glob("*.json"))]
BOOK = load_recipe_book(None)


def test_independent_of_the_order_of_files() -> None:
    for seed in range(3):
        files = FILES.copy()
        Random(seed).shuffle(files)
        assert build_recipe_book(files) == BOOK


def test_recipes_equal_minecrafts() -> None:
    assert [recipe.text for recipe in BOOK.recipes["bookshelf"]] == ["craft 1 bookshelf using 3 book, 6 planks"]
    assert "craft 4 stick using 2 planks" in [recipe.text for recipe in BOOK.recipes["stick"]]
    assert BOOK.recipes["torch"][0].line == "craft 4 torch using 1 coal (or charcoal), 1 stick"


def test_no_item_needs_itself() -> None:
    def below(item: str, book: RecipeBook) -> set[str]:
        reached: set[str] = set()
        edge = [item]
        while edge:
            for recipe in book.recipes.get(edge.pop(), ()):
                for option in (option for ingredient in recipe.ingredients for option in ingredient.options):
                    if option not in reached:
                        reached.add(option)
                        edge.append(option)
        return reached

    for item in BOOK.recipes:
        assert item not in below(item, BOOK), item


def test_depth_is_counted_from_items_that_can_be_found() -> None:
    depths = {
        "oak_log": 0,
        "iron_ingot": 0,
        "iron_block": 1,
        "oak_planks": 1,
        "stick": 1,
        "oak_sign": 2,
        "bookshelf": 3,
        "lectern": 4,
    }
    assert {item: BOOK.depth[item] for item in depths} == depths
    for item, recipes in BOOK.recipes.items():
        easiest = min(
            max(min(BOOK.depth[o] for o in part.options if o in BOOK.depth) for part in recipe.ingredients)
            for recipe in recipes
        )
        assert BOOK.depth[item] == 1 + easiest
    assert {depth: len(BOOK.of_depth(depth)) for depth in range(1, 6)} == {1: 148, 2: 269, 3: 112, 4: 11, 5: 0}


def test_every_tag_of_the_recipes_is_defined() -> None:
    text = json.dumps(FILES)
    used = {part.partition('"')[0] for part in text.split('"tag": "minecraft:')[1:]}
    crafted = {
        one.name
        for recipes in BOOK.recipes.values()
        for recipe in recipes
        for one in recipe.ingredients
        if len(one.options) > 1
    }
    assert used & crafted <= TAGS.keys() | BOOK.items
    assert {"planks", "wooden_slabs", "oak_logs"} <= TAGS.keys()


def test_items_of_a_tag_may_be_mixed_and_recipes_followed_several_times() -> None:
    stick = next(recipe for recipe in BOOK.recipes["stick"] if "planks" in recipe.text)
    assert repetitions(stick, {"oak_planks": 1, "birch_planks": 1}) == 1
    assert repetitions(stick, {"oak_planks": 4, "birch_planks": 2}) == 3
    assert repetitions(stick, {"oak_planks": 3}) == 0
    assert repetitions(stick, {"oak_planks": 1, "cobblestone": 1}) == 0
    assert repetitions(stick, {}) == 0


def test_a_custom_folder(tmp_path: Path) -> None:
    (tmp_path / "cake.json").write_text(
        json.dumps(
            {
                "type": "minecraft:crafting_shapeless",
                "ingredients": [{"item": "minecraft:egg"}],
                "result": "minecraft:cake",
            }
        )
    )
    env = palestra.make("textcraft:Depth1-v0", folder=str(tmp_path))
    assert "Goal: craft cake." in env.reset(seed=0)[0]
    with pytest.raises(DataMissing, match="no recipe files"):
        palestra.make("textcraft:Depth1-v0", folder=str(tmp_path / "nowhere"))
