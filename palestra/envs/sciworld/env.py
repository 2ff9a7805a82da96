"""SciWorld environment, in which the agent carries out science experiments in a simulated house with text commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, Unpack

from palestra.core import Reset
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.envs.sciworld.java import JavaError, java_command
from palestra.envs.sciworld.pool import AMBIGUOUS, UNPARSED, Simulation, pool
from palestra.envs.sciworld.simulator import TaskKey
from palestra.envs.sciworld.tasks import TYPES, TaskType, agentgym_variations, simplifications_of, types_of
from palestra.errors import BadValue
from palestra.parsing import clip, read_command
from palestra.seeding import Random, Rng, check_seed, nth_seed
from palestra.types import Step

MAX_COMMAND_CHARS = 200  # the longest command in ScienceWorld's own solutions has 90 characters
EXAMPLE = "look around"
_CHOICES = re.compile(r"^\d+(?=:\t)", re.M)
_MEANING = {  # command forms that need an explanation
    "focus on OBJ": "select OBJ as the object that the task asks for; a wrong object fails the task",
    "look at OBJ": "describe OBJ",
    "move OBJ to OBJ": "put the first object into the second",
    "use OBJ on OBJ": "use a tool or an instrument",
    "connect OBJ to OBJ": "connect electrical terminals, for example: connect battery anode to red wire terminal 1",
    "dunk OBJ in OBJ": "fill a container by dipping it into a liquid",
    "eat OBJ": "eat an edible object",
    "go OBJ": "go through an open door, for example: go to kitchen",
    "mix OBJ": "mix the contents of a container",
    "reset task": "discard all progress, including what you focused on",
    "teleport OBJ": "move to a room immediately",
    "wait": "let ten time steps pass",
    "wait1": "let one time step pass",
    "task": "read the task again",
}


class SeedPredictor:
    """Predict the next reset's seed from the seeds of earlier resets.

    It recognizes three patterns. In unseeded resets, an episode's seed is derived from the previous seed. In
    evaluations, seeds increase by one. Vectorized envs derive seeds from a root seed and an episode number.
    """

    def __init__(self) -> None:
        self._root = 0
        self._last: int | None = None
        self._episodes = 0  # number of episodes derived from the root seed
        self._next = 0

    def record(self, seed: int, *, explicit: bool) -> None:
        """Record an episode's seed. `explicit` states whether the seed was passed to `reset`."""
        follows = nth_seed(self._root, self._episodes) == seed if self._last is not None else False
        if not explicit:
            self._next = nth_seed(seed, 0)
        elif follows:
            self._episodes += 1
            self._next = nth_seed(self._root, self._episodes)
        else:
            counts_up = self._last is not None and seed == self._last + 1
            self._root, self._episodes = seed, 1
            self._next = seed + 1 if counts_up else nth_seed(seed, 1)
        self._last = seed

    def next_seed(self) -> int:
        return self._next


class SciWorld(MultiTurnEnv):
    """ScienceWorld (Wang et al. 2022) with experiments such as boiling, measuring, wiring circuits and growing plants.

    `tasks` is a task type ("find-plant", "4-3"), a group ("Find"), or a tuple of these; each episode samples a task
    type and a variation from ScienceWorld's split `data_split` ("train", "dev", "test" or "all"; by default the one
    selected by `split`, which is "train" or "test"). `reset(options={"task": "boil", "variation": 3})` selects both
    explicitly. `simplifications` is "easy" or any of openDoors, openContainers, teleportAction, selfWateringFlowerPots,
    noElectricalAction. `max_turns=None` uses the task type's budget, which is 1.5 times its longest solution. With
    `order="agentgym"`, seed s selects task s in AgentGym's list, which consists of all variations of 23 task types.
    With `prepare_next`, the episode that is predicted to come next is built in the background while the current one is
    played.

    The reward of a step is the change in score, so rewards sum to the final score in [0, 1]. Focusing on a wrong object
    resets the score to 0 and ends the episode. Differences from the package: a variation always has the same initial
    state and dynamics, even if other episodes run in the same process; the first observation is made before any
    simulated time passes; a step computes only the values that it returns.

    The expert follows ScienceWorld's own solution, which depends on state that is hidden from the agent.
    """

    inline = False
    filters_tasks = False  # `data_split` holds variations out
    expert_peeks = True
    shared = MultiTurnEnv.shared | {"_types"}

    type: TaskType
    variation: int

    def __init__(
        self,
        *,
        tasks: str | Sequence[str] = "All",
        data_split: str | None = None,
        simplifications: str | Sequence[str] = "",
        order: Literal["agentgym"] | None = None,
        max_turns: int | None = None,
        prepare_next: bool = True,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        self._types = types_of(tasks if isinstance(tasks, str) else tuple(tasks))
        longest = max(task.turns for task in self._types)
        super().__init__(max_turns=longest if max_turns is None else max_turns, **options)
        self.reward_range = (min(-1.0, self.error_reward), max(1.0, self.error_reward))
        self.data_split = data_split or self.split or "train"
        for task in self._types:
            task.split(self.data_split)  # raises an error for an unknown split
        chosen = simplifications if isinstance(simplifications, str) else tuple(simplifications)
        self.simplifications = simplifications_of(chosen, self._types)
        if order not in (None, "agentgym"):
            raise BadValue(f'`order` must be "agentgym", or None for random tasks; got {order!r}')
        self.num_tasks = None if order is None else len(agentgym_variations())
        self._max_turns_override = max_turns
        self._prepare_next = bool(prepare_next)
        self._seeds = SeedPredictor()
        self._prediction_due = False  # whether the next episode has yet to be predicted
        self._simulation: Simulation | None = None
        java_command()  # raises an error if Java or a package is missing

    # The episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        prompt, info = super().reset(seed, options)
        self._seeds.record(self.seed, explicit=seed is not None)
        self._prediction_due = self._prepare_next and not options
        return prompt, info

    def step(self, action: str) -> Step:
        step = super().step(action)
        if self._prediction_due:  # predict here and not in `reset`, because the caller may call `prepare` after `reset`
            self._prediction_due = False
            pool.prepare(self.episode_of(self._seeds.next_seed()))
        return step

    def prepare(self, seed: int) -> None:
        """Build the episode for `seed` in the background, for the next `reset(seed)` of any env in this process.

        After the first call, this env no longer predicts its next episode.
        """
        self._prepare_next = self._prediction_due = False
        pool.prepare(self.episode_of(seed))

    def episode_of(self, seed: int) -> TaskKey:
        """Return the task, variation and simplifications that `reset(seed)` selects."""
        task, variation = self._draw(Rng(check_seed(seed)), seed)
        return TaskKey(task.name, variation, self.simplifications)

    def setup(self, options: dict[str, Any]) -> None:
        self.type, self.variation = self._draw(self.rng, self.seed)
        if "task" in options:
            [self.type, *more] = types_of(options.pop("task"))
            if more or self.type not in self._types:
                names = ", ".join(task.name for task in self._types)
                raise BadValue(f"the reset option `task` must be one of this env's task types: {names}")
            self.variation = self.rng.choice(self.type.split(self.data_split))
        if "variation" in options:
            self.variation = options.pop("variation")
            if self.variation not in range(self.type.variations):
                last = self.type.variations - 1
                raise BadValue(f"`variation` of {self.type.name} must be from 0 to {last}, got {self.variation!r}")
        self.max_turns = self.type.turns if self._max_turns_override is None else self._max_turns_override
        key = TaskKey(self.type.name, self.variation, self.simplifications)
        if self._simulation is None or self._simulation.key != key or not self._simulation.restart():
            self.close()
            self._simulation = pool.simulation(key)
        self._intro = self._simulation.intro()
        self._choices: tuple[str, ...] = ()  # the numbers that ScienceWorld offers after an ambiguous command
        self.score = 0.0

    def _draw(self, rng: Random, seed: int) -> tuple[TaskType, int]:
        if self.num_tasks is not None:
            name, variation = agentgym_variations()[seed % self.num_tasks]
            return TYPES[name], variation
        task = rng.choice(self._types)
        return task, rng.choice(task.split(self.data_split))

    def task_key(self) -> object:
        return self.type.name, self.variation, self.simplifications

    def reset_info(self) -> dict[str, Any]:
        return {"task": self.type.name, "variation": self.variation, "split": self.data_split, "goal": self._intro.task}

    def prompt(self) -> str:
        explained = (f"{form}: {_MEANING[form]}" if form in _MEANING else form for form in self._intro.forms)
        forms = "\n".join(f"- {form}" for form in explained)
        return (
            "You carry out an experiment in a house with a workshop, a kitchen, a greenhouse and other rooms.\n"
            f"{self._intro.task}\n\n"
            f"Commands (replace OBJ with an object you can see or carry):\n{forms}\n"
            "- help: list the commands\n- objects: list the objects you can name here\n"
            "If a command is ambiguous, a numbered list of meanings is shown; then reply with one of the numbers.\n\n"
            f"Write one command per turn, for example: {EXAMPLE}\nYou may think first; write the command on the last "
            "line of your reply, or after `Action:`. Completed parts of the task earn partial scores that add up to 1. "
            f"You have {self.max_turns} turns.\n\n{self._intro.look}"
        )

    def act(self, action: str) -> Outcome:
        command = read_command(action, max_chars=20_000)
        if len(command) > MAX_COMMAND_CHARS:
            text = f"{clip(command)!r} is too long for a command: {len(command)} characters."
            return self._invalid(text, "format")
        try:
            text, score, completed = self._running().step(command)
        except JavaError as err:
            text = f"The simulation failed to execute this command ({clip(str(err), 120)}); nothing has changed."
            return self._invalid(text, "rule")
        self._choices = tuple(_CHOICES.findall(text)) if text.startswith(AMBIGUOUS) else ()
        if text.startswith(UNPARSED):
            return self._invalid(text, "format")
        gained = max(0.0, score) - self.score
        self.score = max(0.0, score)
        ending = None
        if score < 0:
            ending, text = "lost", f"{text}\nThis is not what the task asked for, so the task has failed."
        elif completed:
            ending = "solved" if score >= 1 else "lost"
            text = f"{text}\nThe task {'is completed' if ending == 'solved' else 'has ended'}."
        return Outcome(text, gained, ending, info={"score": self.score})

    def _invalid(self, text: str, invalid: str) -> Outcome:
        forms = ", ".join(self._intro.forms)
        hint = f"{text} Commands: {forms}, help, objects. Replace OBJ with an object you can see or carry."
        return Outcome(hint, invalid=invalid, info={"score": self.score})

    def _running(self) -> Simulation:
        if self._simulation is None:  # the env was closed during the episode
            raise BadValue("this env was closed; call reset() to start an episode")
        return self._simulation

    def close(self) -> None:
        simulation, self._simulation = self._simulation, None
        if simulation is not None:
            simulation.release()

    # Queries

    def valid_actions(self) -> tuple[str, ...]:
        """Return all commands that are valid now. There may be thousands, and the call takes about 0.1 seconds."""
        return self._running().query_list("getValidActionObjectCombinations")

    def render(self, mode: str = "text") -> str | None:
        """Return the surroundings, the inventory and the score as text, or None for other modes. This uses no turn."""
        if mode != "text":
            return None
        simulation = self._running()
        look, inventory = simulation.query("freeActionLook"), simulation.query("freeActionInventory")
        return f"{look}\n{inventory}\nScore: {self.score:.2f}"

    # Players

    def example_action(self) -> str:
        return EXAMPLE

    def sample_random_action(self) -> str:
        rng = self.player_rng
        if self._choices:
            return rng.choice(self._choices)
        form = rng.choice([form for form in self._intro.forms if form != "reset task"])
        things = self._running().query_list("getPossibleObjects") if "OBJ" in form else ()
        while "OBJ" in form:
            form = form.replace("OBJ", rng.choice(things), 1)
        return form

    def expert_action(self) -> str:
        """Return the next action in ScienceWorld's solution, or "wait1" after the last one."""
        path = pool.gold(self._running().key)
        at = 0
        for taken in self._running().actions:
            if at < len(path) and taken == path[at]:
                at += 1
        return path[at] if at < len(path) else "wait1"
