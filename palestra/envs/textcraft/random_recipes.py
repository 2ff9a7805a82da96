"""Draw random recipes, so that an agent has to read the recipes in its prompt instead of remembering them."""

from __future__ import annotations

import re
from random import Random

from palestra.envs.textcraft.crafting import Route, steps_to
from palestra.envs.textcraft.recipes import TAGS, Ingredient, Recipe, RecipeBook, make_recipe
from palestra.errors import BadValue

MAX_ITEMS = 64  # maximum number of items of one kind in an action of the plan
# Numbers from which those of a recipe are drawn; small ones are more frequent, as in Minecraft.
_RESULTS = (1, 1, 1, 1, 2, 3, 4, 6, 8, 16)
_COUNTS = (1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 9)
_INGREDIENTS = (1, 1, 2, 2, 2, 3, 3, 4)
_CRAFTED = 0.25  # fraction of crafted ingredients, beside one in each recipe that makes the goal as deep as required
_REUSED = 0.25  # fraction of ingredients that another recipe needs, too
_TAGGED = 0.15  # fraction of ingredients that are tags
_TRIES = 10  # number of plans to draw before the maximum number of ingredients in a recipe is lowered


class RandomRecipes:
    """Random recipes for a random goal at a given depth, with the names of the items in `book`.

    The plan has at most `max_steps` actions or, if that is impossible, one per level and another one. With `once`, an
    action applies a recipe only once.
    """

    goal: str
    route: Route
    others: list[Recipe]  # recipes that the plan does not need

    def __init__(
        self, book: RecipeBook, *, depth: int, distractors: int, max_steps: int, rng: Random, once: bool = False
    ) -> None:
        self._book = book
        self._rng = rng
        self._names = sorted(book.items - TAGS.keys())
        self._most = max(_INGREDIENTS)  # maximum number of ingredients in a recipe
        tries = 0
        while tries == 0 or not self._is_short(max(max_steps, depth + 1), once=once):
            self._most = max(1, max(_INGREDIENTS) - tries // _TRIES)
            tries += 1
            self._taken: set[str] = set()  # items in recipes
            self._depth: dict[str, int] = {}
            self.route = {}
            self.goal = self._new_item()
            self._draw(self.goal, depth)
        used = sorted({option for _, options in self.route.values() for option in options})
        self.others = [self._distractor(used) for _ in range(distractors)]

    def book(self) -> RecipeBook:
        """Return a recipe book with these recipes only, in which all other items can be collected."""
        recipes = (*(recipe for recipe, _ in self.route.values()), *self.others)
        return RecipeBook(
            recipes={recipe.item: (recipe,) for recipe in recipes},
            items=self._book.items,
            depth=dict.fromkeys(self._book.items, 0) | self._depth,
            ordered=recipes,
            by_option={},
        )

    def _is_short(self, max_steps: int, *, once: bool) -> bool:
        """Return whether the plan has few actions with few items."""
        steps = steps_to(self.goal, self.route, {}, once=once)
        largest = max(int(number) for step in steps for number in re.findall(r"\d+", step))
        return largest <= MAX_ITEMS and len(steps) <= max_steps

    def _new_item(self) -> str:
        if len(self._taken) >= len(self._names):
            raise BadValue(
                f"the recipe folder has only {len(self._names)} items, which are too few for random recipes; use "
                "random_recipes=0, or lower `distractors`"
            )
        while (item := self._rng.choice(self._names)) in self._taken:
            pass
        self._taken.add(item)
        return item

    def _draw(self, item: str, level: int) -> None:
        """Draw a recipe for an item and for its ingredients; `level` is the item's depth."""
        rng = self._rng
        self._depth[item] = level
        more = min(self._most, rng.choice(_INGREDIENTS)) - 1
        levels = [level - 1, *(rng.randrange(level) if rng.random() < _CRAFTED else 0 for _ in range(more))]
        chosen: dict[Ingredient, str] = {}
        for below in levels:
            ingredient, option = self._ingredient(below, [*chosen.values()])
            chosen[ingredient] = option
            if below and option not in self.route:
                self._draw(option, below)
        recipe = make_recipe(item, rng.choice(_RESULTS), chosen)
        self.route[item] = (recipe, tuple(chosen[ingredient] for ingredient in recipe.ingredients))

    def _ingredient(self, level: int, chosen: list[str]) -> tuple[Ingredient, str]:
        """Return an ingredient that is not in `chosen`, and the item at this depth that the plan uses for it."""
        rng = self._rng
        count = rng.choice(_COUNTS)
        if level == 0 and rng.random() < _TAGGED:
            tag = rng.choice(sorted(TAGS))
            options = tuple(option for option in TAGS[tag] if option in self._book.items)
            if options and self._taken.isdisjoint(options):
                self._taken.update(options)
                return Ingredient(name=tag, options=options, count=count), rng.choice(options)
        if rng.random() < _REUSED:
            parts = [i for recipe, _ in self.route.values() for i in recipe.ingredients if len(i.options) == 1]
            known = [i.name for i in parts if self._depth.get(i.name, 0) == level and i.name not in chosen]
            if known:
                item = rng.choice(known)
                return Ingredient(name=item, options=(item,), count=count), item
        item = self._new_item()
        return Ingredient(name=item, options=(item,), count=count), item

    def _distractor(self, used: list[str]) -> Recipe:
        """Return a recipe for a new item that shares an ingredient with the plan."""
        rng = self._rng
        item = self._new_item()
        parts = {rng.choice(used)}
        for _ in range(rng.choice(_INGREDIENTS) - 1):
            parts.add(rng.choice(used) if rng.random() < _REUSED else self._new_item())
        self._depth[item] = 1 + max(self._depth.get(part, 0) for part in parts)
        ingredients = [Ingredient(name=part, options=(part,), count=rng.choice(_COUNTS)) for part in sorted(parts)]
        return make_recipe(item, rng.choice(_RESULTS), ingredients)
