"""SciWorld: an experiment to carry out in a house of ten rooms, in words, scored as it is carried out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Unpack

from palestra.core import Reset
from palestra.envs.sciworld.engine import Key, check_installed
from palestra.envs.sciworld.foresight import Foresight
from palestra.envs.sciworld.pool import AMBIGUOUS, UNREAD, World, pool
from palestra.envs.sciworld.tasks import TaskType, simplifications_of, types_of
from palestra.envs.sciworld.wire import Thrown
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions
from palestra.errors import BadValue
from palestra.parsing import after_thinking, clip, react_action
from palestra.seeding import Random, Rng, check_seed
from palestra.types import Step

LONGEST = 200  # characters of a command; the longest of a gold path has 90
EXAMPLE = "look around"
_CHOICES = re.compile(r"^\d+(?=:\t)", re.M)
_MEANING = {  # what the engine's forms do not say by themselves
    "focus on OBJ": "tell that OBJ is the thing the task asks about; a wrong thing fails the task",
    "look at OBJ": "describe OBJ",
    "move OBJ to OBJ": "put the first into the second",
    "use OBJ on OBJ": "use a tool or an instrument",
    "connect OBJ to OBJ": "wire up terminals, as in: connect battery anode to red wire terminal 1",
    "dunk OBJ in OBJ": "fill a container by dipping it into a liquid",
    "eat OBJ": "eat a food",
    "go OBJ": "go through an open door, as in: go to kitchen",
    "mix OBJ": "mix what a container holds",
    "reset task": "give up all progress and what you focused on",
    "teleport OBJ": "be in a room at once",
    "wait": "let ten steps of time pass",
    "wait1": "let one step of time pass",
    "task": "read the task again",
}


class SciWorld(WorldEnv):
    """ScienceWorld (Wang et al. 2022): boil, measure, wire, grow, mix, classify.

    `tasks`: a type ("find-plant", "4-3"), a group ("Find"), or several; an episode draws one, and a variation of
    `split`. `reset(options={"task": "boil", "variation": 3})` names them. `simplifications`: "easy", or some of
    openDoors, openContainers, teleportAction, selfWateringFlowerPots, noElectricalAction. `max_turns` None: each
    type's own budget, half as long again as its longest solution. `prepare_next`: build the episode that will likely
    follow while this one is played.

    Rewards are the changes of the score, so that they sum to the final score, 0 to 1; a wrong focus takes back what was
    earned and ends the episode. Differs from the package: a variation is always the same world, also beside other
    episodes in the process; the first observation comes before time passes; no step computes what nobody reads.

    The expert reads the engine's solution, so it knows what is hidden.
    """

    inline = False
    expert_peeks = True
    shared = WorldEnv.shared | {"_types"}

    type: TaskType
    variation: int

    def __init__(
        self,
        *,
        tasks: str | Sequence[str] = "All",
        split: str = "train",
        simplifications: str | Sequence[str] = "",
        max_turns: int | None = None,
        prepare_next: bool = True,
        **options: Unpack[WorldOptions],
    ) -> None:
        self._types = types_of(tasks if isinstance(tasks, str) else tuple(tasks))
        longest = max(task.turns for task in self._types)
        super().__init__(max_turns=longest if max_turns is None else max_turns, **options)
        self.reward_range = (min(-1.0, self.error_reward), max(1.0, self.error_reward))
        self.split = split
        for task in self._types:
            task.split(split)  # refuses an unknown one now
        given = simplifications if isinstance(simplifications, str) else tuple(simplifications)
        self.simplifications = simplifications_of(given, self._types)
        self._budget = max_turns
        self._prepares = bool(prepare_next)
        self._foresight = Foresight()
        self._guesses = False  # whether the episode after this one is still to be guessed
        self._world: World | None = None
        check_installed()

    # The episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        prompt, info = super().reset(seed, options)
        self._foresight.note(self.seed, given=seed is not None)
        self._guesses = self._prepares and not options
        return prompt, info

    def step(self, action: str) -> Step:
        step = super().step(action)
        if self._guesses:  # not before: who plays may tell what comes next
            self._guesses = False
            pool.prepare(self.episode_of(self._foresight.next_seed()))
        return step

    def prepare(self, seed: int) -> None:
        """Build the episode of `seed` in the background, for the next `reset` with it, of any env of this process.

        Who says so is expected to go on saying so: this env does not guess any more which episode comes next.
        """
        self._prepares = self._guesses = False
        pool.prepare(self.episode_of(seed))

    def episode_of(self, seed: int) -> Key:
        """The task, variation and simplifications that `reset(seed)` draws."""
        task, variation = self._drawn(Rng(check_seed(seed)))
        return Key(task.name, variation, self.simplifications)

    def begin(self, options: dict[str, Any]) -> None:
        self.type, self.variation = self._drawn(self.rng)
        if "task" in options:
            [self.type, *more] = types_of(options.pop("task"))
            if more or self.type not in self._types:
                raise BadValue(f"task names one of this env's types: {', '.join(task.name for task in self._types)}")
            self.variation = self.rng.choice(self.type.split(self.split))
        if "variation" in options:
            self.variation = options.pop("variation")
            if self.variation not in range(self.type.variations):
                last = self.type.variations - 1
                raise BadValue(f"{self.type.name} has variations 0 to {last}, got {self.variation!r}")
        self.max_turns = self.type.turns if self._budget is None else self._budget
        key = Key(self.type.name, self.variation, self.simplifications)
        if self._world is None or self._world.key != key or not self._world.begin_again():
            self.close()
            self._world = pool.world(key)
        self._opening = self._world.opening()
        self._choices: tuple[str, ...] = ()  # numbers, where the engine asks which of several things was meant
        self.score = 0.0

    def _drawn(self, rng: Random) -> tuple[TaskType, int]:
        task = rng.choice(self._types)
        return task, rng.choice(task.split(self.split))

    def told(self) -> dict[str, Any]:
        return {"task": self.type.name, "variation": self.variation, "split": self.split, "goal": self._opening.task}

    def prompt(self) -> str:
        told = (f"{form}: {_MEANING[form]}" if form in _MEANING else form for form in self._opening.forms)
        forms = "\n".join(f"- {form}" for form in told)
        return (
            "You are in a house with a workshop, a kitchen, a greenhouse and more, to carry out an experiment.\n"
            f"{self._opening.task}\n\n"
            f"A command is one of these, with things you can see or carry in place of OBJ:\n{forms}\n"
            "- help: list these; objects: list what can be named here\n"
            "Where a command could mean several things you are asked for a number; then the number is the command.\n\n"
            f"Write one command a turn, for example: {EXAMPLE}\nYou may think first: then the command stands last, "
            "alone in its line, or behind `Action:`. Parts of the task are scored as they are done, 1 in all. "
            f"You have {self.max_turns} turns.\n\n{self._opening.look}"
        )

    def act(self, action: str) -> Outcome:
        command = read_command(action)
        if len(command) > LONGEST:
            return self._refused(f"{clip(command)!r} is no command: it has {len(command)} characters.", "format")
        try:
            text, score, completed = self._running().step(command)
        except Thrown as err:
            text = f"The world cannot do that ({clip(str(err), 120)}); nothing has changed."
            return self._refused(text, "rule")
        self._choices = tuple(_CHOICES.findall(text)) if text.startswith(AMBIGUOUS) else ()
        if text.startswith(UNREAD):
            return self._refused(text, "format")
        gained = max(0.0, score) - self.score
        self.score = max(0.0, score)
        ending = None
        if score < 0:
            ending, text = "lost", f"{text}\nThat was not what the task asked for: it has failed."
        elif completed:
            ending = "solved" if score >= 1 else "lost"
            text = f"{text}\nThe task is {'done' if ending == 'solved' else 'over'}."
        return Outcome(text, gained, ending, info={"score": self.score})

    def _refused(self, text: str, invalid: str) -> Outcome:
        forms = ", ".join(self._opening.forms)
        hint = f"{text} Commands are: {forms}, help, objects. OBJ is a thing you can see or carry."
        return Outcome(hint, invalid=invalid, info={"score": self.score})

    def _running(self) -> World:
        if self._world is None:  # closed in mid-episode
            raise BadValue("this env was closed; call reset() for the next episode")
        return self._world

    def close(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.release()

    # Looking

    def valid_actions(self) -> tuple[str, ...]:
        """Every command that would do something now: hundreds or thousands, in a tenth of a second."""
        return self._running().listed("getValidActionObjectCombinations")

    def render(self, mode: str = "text") -> str | None:
        """What there is to see, what is carried and how far the task is, without using time; there is no image."""
        if mode != "text":
            return None
        world = self._running()
        return f"{world.asked('freeActionLook')}\n{world.asked('freeActionInventory')}\nScore: {self.score:.2f}"

    # The players

    def example_action(self) -> str:
        return EXAMPLE

    def sample_random_action(self) -> str:
        rng = self.player_rng
        if self._choices:
            return rng.choice(self._choices)
        form = rng.choice([form for form in self._opening.forms if form != "reset task"])
        things = self._running().listed("getPossibleObjects") if "OBJ" in form else ()
        while "OBJ" in form:
            form = form.replace("OBJ", rng.choice(things), 1)
        return form

    def expert_action(self) -> str:
        """The next action of the engine's solution that was not taken yet; after the last, time passes."""
        path = pool.gold(self._running().key)
        at = 0
        for taken in self._running().actions:
            if at < len(path) and taken == path[at]:
                at += 1
        return path[at] if at < len(path) else "wait1"


def read_command(reply: str) -> str:
    """The command in a reply: behind the last `Action:`, else the last line that is not empty."""
    reply = after_thinking(reply[-20_000:]) if "</think>" in reply else reply[-20_000:]
    found = react_action(reply) or reply
    lines = found.strip().splitlines()
    return " ".join(lines[-1].split()) if lines else ""
