"""A goal and the recipes a player was shown -> the steps that craft it; a player's words -> the recipe they follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from palestra.envs.textcraft.recipes import Book, Ingredient, Recipe, spaced

Route = dict[str, tuple[Recipe, tuple[str, ...]]]  # item -> its recipe, and which option is used for each ingredient


def route_to(goal: str, book: Book, rng: Random) -> Route:
    """A way to make `goal` in no more steps below each other than its depth, drawn among all there are."""
    route: Route = {}
    _choose(goal, book.depth[goal], book, rng, route)
    return route


def _choose(item: str, allowed: int, book: Book, rng: Random, route: Route) -> None:
    if item in route or book.depth[item] == 0:
        return
    ways = [way for way in book.recipes[item] if all(_within(one, allowed - 1, book) for one in way.ingredients)]
    way = ways[0] if len(ways) == 1 else rng.choice(ways)
    options = []
    for one in way.ingredients:
        able = [option for option in one.options if book.depth.get(option, allowed) < allowed]
        chosen = next((option for option in able if option in route), None)  # one kind of planks for all of it
        options.append(chosen if chosen is not None else able[0] if len(able) == 1 else rng.choice(able))
    route[item] = (way, tuple(options))
    for option in options:
        _choose(option, book.depth[option], book, rng, route)


def _within(ingredient: Ingredient, depth: int, book: Book) -> bool:
    return any(book.depth.get(option, depth + 1) <= depth for option in ingredient.options)


def distractors(route: Route, count: int, book: Book, rng: Random) -> list[Recipe]:
    """Recipes that are of no use, but made of what is needed."""
    recipes = book.ordered
    tempting: set[int] = set()
    for _, options in route.values():
        for option in options:
            tempting.update(book.by_option.get(option, ()))
    drawn = [number for number in sorted(tempting) if recipes[number].item not in route]
    return [recipes[number] for number in (rng.sample(drawn, count) if count < len(drawn) else drawn)]


def steps_to(goal: str, route: Route, inventory: Mapping[str, int]) -> list[str]:
    """The actions that lead from what is in hand to one `goal`, each possible when its turn comes."""
    stock = Counter(inventory)
    steps: list[str] = []
    _provide(goal, 1 + stock[goal], route, stock, steps)
    return steps


def _provide(item: str, count: int, route: Route, stock: Counter[str], steps: list[str]) -> None:
    lack = count - stock[item]
    if lack <= 0:
        return
    if item not in route:
        steps.append(f"get {lack} {spaced(item)}")
        stock[item] += lack
        return
    way, options = route[item]
    times = -(-lack // way.count)
    for one, option in zip(way.ingredients, options, strict=True):
        _provide(option, one.count * times, route, stock, steps)
        stock[option] -= one.count * times  # set aside, so that nothing else uses it up
    parts = ", ".join(f"{one.count * times} {spaced(o)}" for one, o in zip(way.ingredients, options, strict=True))
    steps.append(f"craft {way.count * times} {spaced(item)} using {parts}")
    stock[item] += way.count * times


def times_followed(recipe: Recipe, given: Mapping[str, int]) -> int:
    """How often `given` would be used up by following the recipe; 0: it does not fit."""
    need = sum(one.count for one in recipe.ingredients)
    have = sum(given.values())
    times, rest = divmod(have, need)
    if rest or not times:
        return 0
    slots = sorted(((one.options, one.count * times) for one in recipe.ingredients), key=lambda slot: len(slot[0]))
    return times if _fits(slots, 0, dict(given)) else 0


def _fits(slots: list[tuple[tuple[str, ...], int]], at: int, left: dict[str, int]) -> bool:
    """Whether the items can be dealt out to the slots, scarcest slots first."""
    if at == len(slots):
        return not any(left.values())
    options, need = slots[at]
    for part in _portions([option for option in options if left.get(option)], need, left):
        rest = {item: count - part.get(item, 0) for item, count in left.items()}
        if _fits(slots, at + 1, rest):
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
