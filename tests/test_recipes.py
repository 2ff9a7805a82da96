"""Test that the recipes are valid settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from palestra.training.recipe import from_mapping, read_recipe

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.rglob("*.toml")))
def test_a_recipe_is_a_config(recipe: str) -> None:
    (path,) = RECIPES.rglob(recipe)
    from_mapping(read_recipe(path))
