"""Plan the steps to craft a goal item, and check whether ingredients match a recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from palestra.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, display_name

# Maps an item to its recipe and the option chosen for each ingredient.
Route = dict[str, tuple[Recipe, tuple[str, ...]]]


def route_to(goal: str, book: RecipeBook, rng: Random) -> Route:
    """Return a random plan that crafts `goal` within its depth."""
    route: Route = {}
    _choose(goal, book.depth[goal], book, rng, route)
    return route


def _choose(item: str, allowed: int, book: RecipeBook, rng: Random, route: Route) -> None:
    if item in route or book.depth[item] == 0:
        return
    recipes = [
        recipe
        for recipe in book.recipes[item]
        if all(_within(ingredient, allowed - 1, book) for ingredient in recipe.ingredients)
    ]
    recipe = recipes[0] if len(recipes) == 1 else rng.choice(recipes)
    options = []
    for ingredient in recipe.ingredients:
        usable = [option for option in ingredient.options if book.depth.get(option, allowed) < allowed]
        # Use the same option, such as one kind of planks, in the whole plan.
        chosen = next((option for option in usable if option in route), None)
        options.append(chosen if chosen is not None else usable[0] if len(usable) == 1 else rng.choice(usable))
    route[item] = (recipe, tuple(options))
    for option in options:
        _choose(option, book.depth[option], book, rng, route)


def _within(ingredient: Ingredient, depth: int, book: RecipeBook) -> bool:
    return any(book.depth.get(option, depth + 1) <= depth for option in ingredient.options)


def distractors(route: Route, count: int, book: RecipeBook, rng: Random) -> list[Recipe]:
    """Return up to `count` random recipes that the plan does not need but that share ingredients with it."""
    recipes = book.ordered
    related: set[int] = set()
    for _, options in route.values():
        for option in options:
            related.update(book.by_option.get(option, ()))
    candidates = [number for number in sorted(related) if recipes[number].item not in route]
    return [recipes[number] for number in (rng.sample(candidates, count) if count < len(candidates) else candidates)]


def steps_to(goal: str, route: Route, inventory: Mapping[str, int], *, once: bool = False) -> list[str]:
    """Return the sequence of actions that produces one more `goal` from the inventory.

    With `once`, an action applies a recipe only once.
    """
    stock = Counter(inventory)
    steps: list[str] = []
    _provide(goal, 1 + stock[goal], route, stock, steps, once=once)
    return steps


def _provide(item: str, count: int, route: Route, stock: Counter[str], steps: list[str], *, once: bool) -> None:
    missing = count - stock[item]
    if missing <= 0:
        return
    if item not in route:
        steps.append(f"get {missing} {display_name(item)}")
        stock[item] += missing
        return
    recipe, options = route[item]
    times = -(-missing // recipe.count)
    for ingredient, option in zip(recipe.ingredients, options, strict=True):
        _provide(option, ingredient.count * times, route, stock, steps, once=once)
        stock[option] -= ingredient.count * times  # reserve the items for this recipe
    per_action = 1 if once else times
    parts = [
        f"{ingredient.count * per_action} {display_name(option)}"
        for ingredient, option in zip(recipe.ingredients, options, strict=True)
    ]
    action = f"craft {recipe.count * per_action} {display_name(item)} using {', '.join(parts)}"
    steps += [action] * (times // per_action)
    stock[item] += recipe.count * times


def repetitions(recipe: Recipe, items: Mapping[str, int]) -> int:
    """Return how many times the recipe must be applied to use exactly `items`, or 0 if they do not match it."""
    required = sum(ingredient.count for ingredient in recipe.ingredients)
    available = sum(items.values())
    times, remainder = divmod(available, required)
    if remainder or not times:
        return 0
    demands = [(ingredient.options, ingredient.count * times) for ingredient in recipe.ingredients]
    demands.sort(key=lambda demand: len(demand[0]))
    return times if _fits(demands, 0, dict(items)) else 0


def _fits(demands: list[tuple[tuple[str, ...], int]], index: int, left: dict[str, int]) -> bool:
    """Return whether the remaining items exactly meet the demands from `index` to the end.

    Demands with fewer options come first.
    """
    if index == len(demands):
        return not any(left.values())
    options, need = demands[index]
    for part in _portions([option for option in options if left.get(option)], need, left):
        after = {item: count - part.get(item, 0) for item, count in left.items()}
        if _fits(demands, index + 1, after):
            return True
    return False


def _portions(options: list[str], need: int, left: Mapping[str, int]) -> Iterable[dict[str, int]]:
    if need == 0:
        yield {}
    elif options:
        first, others = options[0], options[1:]
        for count in range(min(need, left[first]), -1, -1):
            for part in _portions(others, need - count, left):
                yield {first: count, **part}
