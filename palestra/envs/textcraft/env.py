"""TextCraft environment, in which the agent collects items and follows recipes to craft a goal item."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Unpack, get_args

from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome, parse_command
from palestra.envs.textcraft.crafting import Route, distractors, repetitions, route_to, steps_to
from palestra.envs.textcraft.random_recipes import RandomRecipes
from palestra.envs.textcraft.recipes import TAGS, Recipe, RecipeBook, display_name, load_recipe_book
from palestra.errors import BadValue
from palestra.parsing import clip
from palestra.spec import fingerprint

Feedback = Literal["hints", "agentgym"]
MAX_COUNT = 10_000  # maximum number of one item per action
_GET = re.compile(r"get (?:([0-9]+) )?(.+)")
_CRAFT = re.compile(r"craft (?:([0-9]+) )?(.+?) using (.+)")
_PART = re.compile(r"(?:([0-9]+) )?(.+)")
_PARENTHESES = re.compile(r" ?\([^()]*\)")


class TextCraft(MultiTurnEnv):
    """Craft a Minecraft item. The prompt lists the required recipes and some others.

    `depth` is the number of crafting levels between items that can be collected and the goal, from 1 to 4. The seed
    determines the goal (any item at that depth), a plan within that depth, and the listed recipes (the required ones
    and up to `distractors` others that share ingredients). With `depth=None`, goals have any depth. With
    `order="agentgym"`, seed s selects goal s modulo the number of goals, which are sorted by depth. The agent may use
    any recipe in the game, once or several times per action. `folder` replaces the default folder of Minecraft recipes.
    `split` holds out one eighth of the goals at each depth, but at least one goal.

    With `partial_credit`, a reward of 1 is divided among the steps of the plan, which the agent does not see: an action
    is rewarded when fewer of them remain than ever before in the episode, for example because it collected a required
    ingredient. Applying a recipe several times is several steps, also in one action. Crafting the goal earns
    `success_reward` minus the credit so far, also without following the plan.

    With `random_recipes`, this fraction of the episodes has random recipes instead of Minecraft's, with random items,
    so that recipes have to be read from the prompt. The test split always has the real recipes.

    `feedback="agentgym"` follows AgentGym's rules: the reply to an impossible action is "Could not find ..." and does
    not show a recipe, and an action applies a recipe once. The default, "hints", explains what is wrong.

    Differences from AgentGym: goals at the same depth are numbered alphabetically instead of in the order of the files
    on the server's disk, a tag ("planks") matches any of its items, and collecting an item does not count as crafting
    it.
    """

    expert_peeks = True  # the expert follows the plan from which the recipes were chosen
    filters_tasks = False  # `_goals` contains only goals in the split
    shared = MultiTurnEnv.shared | {"book", "shown", "_route", "_goals", "_real_book"}

    goal: str
    inventory: dict[str, int]
    shown: list[Recipe]
    book: RecipeBook  # of the current episode

    def __init__(
        self,
        *,
        depth: int | None = 2,
        order: Literal["agentgym"] | None = None,
        feedback: Feedback = "hints",
        distractors: int = 10,
        folder: str | None = None,
        max_turns: int = 30,
        partial_credit: bool = False,
        success_reward: float = 1.0,
        random_recipes: float = 0.0,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        self.book = self._real_book = load_recipe_book(None if folder is None else str(folder))
        deepest = max(self.book.depth.values())
        depths = range(1, deepest + 1) if depth is None else (depth,)
        if depth is not None and (isinstance(depth, bool) or depth not in range(1, deepest + 1)):
            raise BadValue(f"`depth` must be an integer from 1 to {deepest}, or None for all; got {depth!r}")
        self._goals = tuple(goal for level in depths for goal in goals_of_split(self.book.of_depth(level), self.split))
        if order not in (None, "agentgym"):
            raise BadValue(f'`order` must be "agentgym", or None for random goals; got {order!r}')
        self.num_tasks = None if order is None else len(self._goals)
        if feedback not in get_args(Feedback):
            raise BadValue(f"`feedback` must be one of {', '.join(get_args(Feedback))}; got {feedback!r}")
        self.feedback = feedback
        if isinstance(distractors, bool) or not isinstance(distractors, int) or distractors < 0:
            raise BadValue(f"`distractors` must be an integer of at least 0, got {distractors!r}")
        if not isinstance(random_recipes, int | float) or not 0 <= random_recipes <= 1:
            raise BadValue(f"`random_recipes` must be a fraction from 0 to 1, got {random_recipes!r}")
        self.random_recipes = 0.0 if self.split == "test" else float(random_recipes)
        self.depth = depth
        self.distractors = distractors
        self.partial_credit = bool(partial_credit)
        self.success_reward = float(success_reward)
        self.reward_range = (self.reward_range[0], max(self.reward_range[1], self.success_reward))

    def setup(self, options: dict[str, Any]) -> None:
        goal = options.pop("goal", None)
        self.book = self._real_book
        if goal is None and self.random_recipes and self.rng.random() < self.random_recipes:
            self._draw_recipes()
        else:
            self._choose_goal(goal)
        self.rng.shuffle(self.shown)
        self.inventory = {}
        self._plan_length = len(self._remaining_steps(once=True)) if self.partial_credit else 0
        self._credit_paid = 0.0  # partial credit granted so far in this episode

    def _choose_goal(self, goal: Any) -> None:
        if self.num_tasks is None:
            self.goal = self.rng.choice(self._goals)
        else:
            self.goal = self._goals[self.seed % self.num_tasks]
        if goal is not None:
            self.goal = str(goal).removeprefix("minecraft:").replace(" ", "_")
            if self.goal not in self.book.recipes:
                example = self._goals[0]
                raise BadValue(f"{goal!r} cannot be crafted; `goal` must be an item with a recipe, such as {example}")
        self._route: Route = route_to(self.goal, self.book, self.rng)
        self.shown = [recipe for recipe, _ in self._route.values()]
        self.shown += distractors(self._route, self.distractors, self.book, self.rng)

    def _draw_recipes(self) -> None:
        drawn = RandomRecipes(
            self._real_book,
            depth=self.depth or self.rng.randint(1, max(self._real_book.depth.values())),
            distractors=self.rng.randint(0, self.distractors),
            max_steps=self.max_turns // 2,
            rng=self.rng,
            once=self.feedback == "agentgym",
        )
        self.goal, self._route, self.book = drawn.goal, drawn.route, drawn.book()
        self.shown = list(self.book.ordered)

    def task_key(self) -> object:
        if self.book is self._real_book:
            return self.goal
        return (self.goal, *sorted(recipe.line for recipe in self.shown))

    def reset_info(self) -> dict[str, Any]:
        return {"goal": display_name(self.goal), "depth": self.book.depth[self.goal]}

    def prompt(self) -> str:
        recipes = "\n".join(recipe.line for recipe in self.shown)
        tags = sorted({ingredient.name for recipe in self.shown for ingredient in recipe.ingredients} & TAGS.keys())
        groups = "".join(f"{display_name(tag)}: any of {', '.join(map(display_name, TAGS[tag]))}\n" for tag in tags)
        if groups:
            groups = f"Groups of items:\n{groups}"
        return (
            "You craft Minecraft items. There are three actions:\n"
            "get COUNT ITEM - collect items; only items without a recipe can be collected\n"
            f"craft COUNT ITEM using COUNT ITEM, COUNT ITEM, ... - apply a recipe once{self._or_more()} to items from "
            "your inventory\ninventory - list your items\n"
            f"Crafting recipes:\n{recipes}\n{groups}"
            f"Not all of these recipes are needed.\nGoal: craft {display_name(self.goal)}.\n"
            f"Answer with one action, for example: {self.example_action()}\nYou may think first; the last line of your "
            f'reply, or the text after "Action:", is the action. You have {self.max_turns} turns.'
        )

    def act(self, action: str) -> Outcome:
        words = parse_command(action)
        if words == "inventory":
            return Outcome(self._stock())
        words = words and _PARENTHESES.sub("", words)
        if not words:
            return _bad("No action found; write the action on the last line of your reply. " + _FORMS)
        get = _GET.fullmatch(words)
        if get is not None:
            return self._get(1 if get[1] is None else int(get[1]), get[2])
        craft = _CRAFT.fullmatch(words)
        if craft is not None:
            return self._craft(craft[1], craft[2], craft[3])
        return _bad(f'There is no action "{clip(words)}". {_FORMS}')

    def _get(self, count: int, name: str) -> Outcome:
        item = self._item(name)
        if self.feedback == "agentgym" and (item is None or item in self.book.recipes):
            return _impossible(f"Could not find {clip(name)}")
        if item is None:
            return _impossible(self._unknown(name))
        if item in self.book.recipes:
            shown = [recipe.text for recipe in self.shown if recipe.item == item]
            action = shown[0] if shown else self.book.recipes[item][0].text
            return _impossible(f"{display_name(item)} cannot be collected, only crafted: {action}.")
        if not 1 <= count <= MAX_COUNT:
            return _impossible(f"You can get 1 to {MAX_COUNT} items at a time.")
        self.inventory[item] = self.inventory.get(item, 0) + count
        return Outcome(f"Got {count} {display_name(item)}.", self._credit())

    def _item(self, name: str) -> str | None:
        """Return the item with this name or, for a tag, one of its items, preferably one that can be collected."""
        item = name.replace(" ", "_")
        if item in self.book.items:
            return item
        options = [option for option in TAGS.get(item, ()) if option in self.book.items]
        return min(options, key=lambda option: self.book.depth[option], default=None)

    def _craft(self, count: str | None, name: str, parts: str) -> Outcome:
        item = name.replace(" ", "_")
        if self.feedback == "agentgym" and item not in self.book.recipes:
            return _impossible(f"Could not find a valid recipe for {clip(name)}")
        if item not in self.book.items:
            return _impossible(self._unknown(name))
        recipes = self.book.recipes.get(item)
        if recipes is None:
            return _impossible(f"{display_name(item)} has no recipe; collect it: get 1 {display_name(item)}.")
        used: Counter[str] = Counter()
        for part in parts.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                return _bad(f"Write the ingredients as counts and items separated by commas. {_FORMS}")
            number = 1 if match[1] is None else int(match[1])
            if not 1 <= number <= MAX_COUNT:
                return _impossible(f"You can use 1 to {MAX_COUNT} of an item at a time.")
            missing = self._use(match[2], number, used)
            if missing is not None:
                plain = f"Could not find enough items to craft {display_name(item)}"
                return _impossible(plain if self.feedback == "agentgym" else missing)
        for recipe in recipes:
            times = repetitions(recipe, used)
            if self.feedback == "agentgym":
                if times == 1:  # AgentGym ignores the number of results in the action
                    return self._crafted(recipe, 1, used)
            elif times and (count is None or int(count) == recipe.count * times):
                return self._crafted(recipe, times, used)
        if self.feedback == "agentgym":
            return _impossible(f"Could not find a valid recipe for {display_name(item)}")
        return _impossible(self._why_not(recipes, item, count, used))

    def _use(self, name: str, number: int, used: Counter[str]) -> str | None:
        """Reserve `number` items with this name from the inventory, or return the reason why that is not possible."""
        item = name.replace(" ", "_")
        if item in self.book.items:
            have = self.inventory.get(item, 0)
            if have < used[item] + number:
                return f"You have {have} {display_name(item)}, not {used[item] + number}."
            used[item] += number
            return None
        if item not in TAGS:
            return self._unknown(name)
        left = number
        for option in TAGS[item]:
            taken = min(left, self.inventory.get(option, 0) - used[option])
            if taken > 0:
                used[option] += taken
                left -= taken
        return None if left == 0 else f"You have {number - left} {display_name(item)}, not {number}."

    def _crafted(self, recipe: Recipe, times: int, used: Counter[str]) -> Outcome:
        for item, count in used.items():
            self.inventory[item] -= count
            if not self.inventory[item]:
                del self.inventory[item]
        self.inventory[recipe.item] = self.inventory.get(recipe.item, 0) + recipe.count * times
        done = f"Crafted {recipe.count * times} {display_name(recipe.item)}."
        if recipe.item == self.goal:
            return Outcome(f"{done} Goal reached.", self.success_reward - self._credit_paid, "solved")
        return Outcome(done, self._credit())

    def _credit(self) -> float:
        """Return the partial credit for an action, which is the increase in the finished fraction of the plan."""
        if not self.partial_credit:
            return 0.0
        finished = 1 - len(self._remaining_steps(once=True)) / self._plan_length
        increase = max(0.0, finished - self._credit_paid)
        self._credit_paid += increase
        return increase

    def _remaining_steps(self, *, once: bool) -> list[str]:
        return steps_to(self.goal, self._route, self.inventory, once=once)

    def _why_not(self, recipes: tuple[Recipe, ...], item: str, count: str | None, used: Counter[str]) -> str:
        for recipe in recipes:
            times = repetitions(recipe, used)
            if times:
                return f"These ingredients make {recipe.count * times} {display_name(item)}, not {count}."
        shown = [recipe for recipe in self.shown if recipe.item == item] or list(recipes)
        return f"That is not a recipe for {display_name(item)}. A valid recipe: {shown[0].line}."

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        words = set(name.split())
        # Compare only names that share a word or the first three letters, because comparing all names would be slow.
        candidates = sorted(
            item for item in self.book.items if item[:3] == name[:3] or not words.isdisjoint(item.split("_"))
        )
        matches = get_close_matches(name.replace(" ", "_"), candidates, n=1)
        hint = f" Did you mean {display_name(matches[0])}?" if matches else ""
        return f'There is no item "{clip(name)}".{hint}'

    def _or_more(self) -> str:
        return "" if self.feedback == "agentgym" else " or several times"

    def _stock(self) -> str:
        if not self.inventory:
            return "You have nothing."
        return f"You have: {', '.join(f'{count} {display_name(item)}' for item, count in self.inventory.items())}."

    def example_action(self) -> str:
        return "get 2 cobblestone"

    def sample_random_action(self) -> str:
        rng = self.player_rng
        recipe = rng.choice(self.shown)
        if rng.random() < 0.5:
            return recipe.text
        ingredient = rng.choice(recipe.ingredients)
        return f"get {rng.randint(1, 9)} {display_name(rng.choice(ingredient.options))}"

    def expert_action(self) -> str:
        return self._remaining_steps(once=self.feedback == "agentgym")[0]

    def render(self, mode: str = "text") -> str | bytes | None:
        """Return the goal and the inventory as text, or None for other modes."""
        if mode != "text" or self.ending == "reset":
            return None
        return f"Goal: craft {display_name(self.goal)}.\n{self._stock()}"


def goals_of_split(goals: Sequence[str], split: str | None) -> list[str]:
    """Return the goals in a split, in their order; one eighth of the goals, but at least one, is held out."""
    held_out = set(sorted(goals, key=fingerprint)[: max(1, len(goals) // 8)])
    return [goal for goal in goals if split is None or (goal in held_out) == (split == "test")]


_FORMS = 'Valid actions look like "get 2 cobblestone", "craft 4 stick using 2 oak planks" or "inventory".'


def _bad(text: str) -> Outcome:
    return Outcome(text, invalid="format")


def _impossible(text: str) -> Outcome:
    return Outcome(text, invalid="rule")
