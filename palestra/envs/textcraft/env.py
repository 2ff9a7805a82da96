"""TextCraft: get what can be found, craft what cannot, until the goal is made."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Unpack

from palestra.envs.textcraft.crafting import Route, distractors, route_to, steps_to, times_followed
from palestra.envs.textcraft.recipes import TAGS, Book, Recipe, book_of, spaced
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions, spoken
from palestra.errors import BadValue
from palestra.parsing import clip

MOST = 10_000  # of one item at a time
_GET = re.compile(r"get (?:([0-9]+) )?(.+)")
_CRAFT = re.compile(r"craft (?:([0-9]+) )?(.+?) using (.+)")
_PART = re.compile(r"(?:([0-9]+) )?(.+)")
_ASIDE = re.compile(r" ?\([^()]*\)")


class TextCraft(WorldEnv):
    """Craft a goal item of Minecraft; the recipes it takes are shown among others.

    `depth` is how many crafting steps lie below each other from what can be found to the goal, 1 to 4. The goal is
    drawn by the seed among all items of that depth in alphabetical order, the way to it among all ways that are not
    deeper; so is what is shown: the recipes it takes, and `distractors` that use the same things. Any recipe of the
    game may be followed, once or several times in one action. `folder`: another folder of Minecraft recipes.

    Differs from AgentGym: goals do not depend on the order of files, a tag ("planks") stands for any of its items, and
    getting an item is no way to have crafted it.
    """

    shared = WorldEnv.shared | {"book", "shown", "_route"}

    goal: str
    inventory: dict[str, int]
    shown: list[Recipe]

    def __init__(
        self,
        *,
        depth: int = 2,
        distractors: int = 10,
        folder: str | None = None,
        max_turns: int = 30,
        **options: Unpack[WorldOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        self.book: Book = book_of(None if folder is None else str(folder))
        self._goals = tuple(self.book.of_depth(depth)) if isinstance(depth, int) and depth > 0 else ()
        if not self._goals:
            deepest = max(self.book.depth.values())
            raise BadValue(f"depth is a whole number from 1 to {deepest}, got {depth!r}")
        if isinstance(distractors, bool) or not isinstance(distractors, int) or distractors < 0:
            raise BadValue(f"distractors is a whole number from 0 up, got {distractors!r}")
        self.depth = depth
        self.distractors = distractors

    def begin(self, options: dict[str, Any]) -> None:
        goal = options.pop("goal", None)
        self.goal = self.rng.choice(self._goals)
        if goal is not None:
            self.goal = str(goal).removeprefix("minecraft:").replace(" ", "_")
            if self.goal not in self.book.recipes:
                raise BadValue(f"{goal!r} cannot be crafted; goals are items with a recipe, such as {self._goals[0]}")
        self._route: Route = route_to(self.goal, self.book, self.rng)
        self.shown = [way for way, _ in self._route.values()]
        self.shown += distractors(self._route, self.distractors, self.book, self.rng)
        self.rng.shuffle(self.shown)
        self.inventory = {}

    def told(self) -> dict[str, Any]:
        return {"goal": spaced(self.goal), "depth": self.book.depth[self.goal]}

    def prompt(self) -> str:
        recipes = "\n".join(recipe.line for recipe in self.shown)
        tags = sorted({one.name for recipe in self.shown for one in recipe.ingredients} & TAGS.keys())
        kinds = "".join(f"{spaced(tag)}: any of {', '.join(map(spaced, TAGS[tag]))}\n" for tag in tags)
        if kinds:
            kinds = f"Kinds of items:\n{kinds}"
        return (
            "You craft items of Minecraft. Three actions are possible:\n"
            "get COUNT ITEM - find items in the world; works for every item that has no recipe;\n"
            "craft COUNT ITEM using COUNT ITEM, COUNT ITEM, ... - follow a recipe with what you have, once or several "
            "times over;\ninventory - see what you have.\n"
            f"Crafting recipes:\n{recipes}\n{kinds}Not all of them are of use.\nGoal: craft {spaced(self.goal)}.\n"
            f"Answer with one action, for example: {self.example_action()}\nYou may think first; the last line of your "
            f'reply, or what follows "Action:", is the action. You have {self.max_turns} turns.'
        )

    def act(self, action: str) -> Outcome:
        words = spoken(action)
        if words == "inventory":
            return Outcome(self._stock())
        words = words and _ASIDE.sub("", words)
        if not words:
            return _bad("No action could be read: write it on the last line of your reply. " + _FORMS)
        got = _GET.fullmatch(words)
        if got is not None:
            return self._get(1 if got[1] is None else int(got[1]), got[2])
        crafted = _CRAFT.fullmatch(words)
        if crafted is not None:
            return self._craft(crafted[1], crafted[2], crafted[3])
        return _bad(f'There is no action "{clip(words)}". {_FORMS}')

    def _get(self, count: int, name: str) -> Outcome:
        item = self._found(name)
        if item is None:
            return _not(self._unknown(name))
        if item in self.book.recipes:
            known = [way.text for way in self.shown if way.item == item]
            way = known[0] if known else self.book.recipes[item][0].text
            return _not(f"{spaced(item)} cannot be found, only crafted: {way}.")
        if not 1 <= count <= MOST:
            return _not(f"You can get 1 to {MOST} at a time.")
        self.inventory[item] = self.inventory.get(item, 0) + count
        return Outcome(f"Got {count} {spaced(item)}.")

    def _found(self, name: str) -> str | None:
        """The item of that name; a tag gives an item of it, one that can be found if there is any."""
        item = name.replace(" ", "_")
        if item in self.book.items:
            return item
        options = [option for option in TAGS.get(item, ()) if option in self.book.items]
        return min(options, key=lambda option: self.book.depth[option], default=None)

    def _craft(self, count: str | None, name: str, parts: str) -> Outcome:
        item = name.replace(" ", "_")
        if item not in self.book.items:
            return _not(self._unknown(name))
        ways = self.book.recipes.get(item)
        if ways is None:
            return _not(f"{spaced(item)} has no recipe; it can be found: get 1 {spaced(item)}.")
        given: Counter[str] = Counter()
        for part in parts.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                return _bad(f"Write what you use as counts and items with commas between them. {_FORMS}")
            number = 1 if match[1] is None else int(match[1])
            if not 1 <= number <= MOST:
                return _not(f"You can use 1 to {MOST} of an item at a time.")
            missing = self._use(match[2], number, given)
            if missing is not None:
                return _not(missing)
        for way in ways:
            times = times_followed(way, given)
            if times and (count is None or int(count) == way.count * times):
                return self._crafted(way, times, given)
        return _not(self._why_not(ways, item, count, given))

    def _use(self, name: str, number: int, given: Counter[str]) -> str | None:
        """Take `number` of what is named out of the inventory for a recipe; what is wrong where that cannot be."""
        item = name.replace(" ", "_")
        if item in self.book.items:
            have = self.inventory.get(item, 0)
            if have < given[item] + number:
                return f"You have {have} {spaced(item)}, not {given[item] + number}."
            given[item] += number
            return None
        if item not in TAGS:
            return self._unknown(name)
        left = number
        for option in TAGS[item]:
            taken = min(left, self.inventory.get(option, 0) - given[option])
            if taken > 0:
                given[option] += taken
                left -= taken
        return None if left == 0 else f"You have {number - left} {spaced(item)}, not {number}."

    def _crafted(self, way: Recipe, times: int, given: Counter[str]) -> Outcome:
        for item, count in given.items():
            self.inventory[item] -= count
            if not self.inventory[item]:
                del self.inventory[item]
        self.inventory[way.item] = self.inventory.get(way.item, 0) + way.count * times
        done = f"Crafted {way.count * times} {spaced(way.item)}."
        if way.item == self.goal:
            return Outcome(f"{done} That was the goal.", 1.0, "solved")
        return Outcome(done)

    def _why_not(self, ways: tuple[Recipe, ...], item: str, count: str | None, given: Counter[str]) -> str:
        for way in ways:
            times = times_followed(way, given)
            if times:
                return f"These make {way.count * times} {spaced(item)}, not {count}."
        known = [way for way in self.shown if way.item == item] or list(ways)
        return f"That is no recipe for {spaced(item)}. A recipe: {known[0].line}."

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        words = set(name.split())
        # Names that share a word or the beginning: comparing with all of them would take longer than all the rest.
        some = sorted(item for item in self.book.items if item[:3] == name[:3] or not words.isdisjoint(item.split("_")))
        near = get_close_matches(name.replace(" ", "_"), some, n=1)
        hint = f" Did you mean {spaced(near[0])}?" if near else ""
        return f'There is no item "{clip(name)}".{hint}'

    def _stock(self) -> str:
        if not self.inventory:
            return "You have nothing."
        return f"You have: {', '.join(f'{count} {spaced(item)}' for item, count in self.inventory.items())}."

    def example_action(self) -> str:
        return "get 2 cobblestone"

    def sample_random_action(self) -> str:
        rng = self.player_rng
        recipe = rng.choice(self.shown)
        if rng.random() < 0.5:
            return recipe.text
        one = rng.choice(recipe.ingredients)
        return f"get {rng.randint(1, 9)} {spaced(rng.choice(one.options))}"

    def expert_action(self) -> str:
        return steps_to(self.goal, self._route, self.inventory)[0]

    def render(self, mode: str = "text") -> str | bytes | None:
        """The goal and what is in hand; there is no picture."""
        if mode != "text" or self.ending == "reset":
            return None
        return f"Goal: craft {spaced(self.goal)}.\n{self._stock()}"


_FORMS = 'Actions read "get 2 cobblestone", "craft 4 stick using 2 oak planks" or "inventory".'


def _bad(text: str) -> Outcome:
    return Outcome(text, invalid="format")


def _not(text: str) -> Outcome:
    return Outcome(text, invalid="rule")
