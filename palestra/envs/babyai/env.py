"""BabyAI: a mission in words, rooms seen from inside, moves and longer errands by name."""

from __future__ import annotations

from typing import Any, Self, Unpack

from palestra.envs.babyai.engine import DROP, FORWARD, LEFT, PICKUP, TOGGLE, World
from palestra.envs.babyai.expert import Intent, next_intent
from palestra.envs.babyai.levels import GROUPS, LEVELS
from palestra.envs.babyai.moves import Refused, available, open_floor, plan
from palestra.envs.babyai.quick import STEPS
from palestra.envs.babyai.search import Known
from palestra.envs.babyai.view import LEGEND, View, describe, look
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions, spoken
from palestra.errors import BadValue
from palestra.parsing import clip

CHECK = "check available actions"


class BabyAI(WorldEnv):
    """Fulfil a mission such as "put a ball next to the red door, then open the blue door".

    `level` is one of the forty levels AgentGym plays, or a group of them; a level's seed is minigrid's seed, and in a
    group of n the seed s plays level s mod n with seed s // n, which for "All" is AgentGym's index. `max_turns=None`:
    the level's own budget. `show_map` and `show_actions` leave out parts of the observation; `discounted=True` pays
    minigrid's reward for a success, which shrinks with the moves made, instead of 1. It is in `info["discounted"]`
    in any case.

    Differs from AgentGym: the mission keeps its order words and the order counts, a mission fails where minigrid says
    so, and the available actions stand in every observation, as does a map. Differs from minigrid: see engine.py.
    """

    shared = WorldEnv.shared | {"view"}

    world: World | None = None
    view: View  # what the last observation showed
    seen: bytearray  # cells that observations have shown

    def __init__(
        self,
        *,
        level: str,
        max_turns: int | None = None,
        show_map: bool = True,
        show_actions: bool = True,
        discounted: bool = False,
        **options: Unpack[WorldOptions],
    ) -> None:
        levels = GROUPS.get(level) or ((level,) if level in LEVELS else None)
        if levels is None:
            raise BadValue(f"no level {level!r}. There are {', '.join([*GROUPS, *LEVELS])}.")
        super().__init__(max_turns=LEVELS[levels[0]] if max_turns is None else max_turns, **options)
        self._given_turns = max_turns
        self.levels = levels
        self.show_map = bool(show_map)
        self.show_actions = bool(show_actions)
        self.discounted = bool(discounted)
        self._worlds: dict[str, World] = {}  # of a group's levels, to be begun anew

    def begin(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # it knows none
        level = self.levels[self.seed % len(self.levels)]
        if self._given_turns is None:
            self.max_turns = LEVELS[level]
        world = self._worlds.get(level)
        if world is None:
            world = self._worlds[level] = World(level)
        self.world = world
        world.start(self.seed // len(self.levels))
        self.seen = bytearray(world.width * world.height)
        self._held = 0
        self._drops: dict[int, int] = {}
        self._look()

    def told(self) -> dict[str, Any]:
        world = self._world()
        return {"level": world.level, "goal": world.mission}

    def prompt(self) -> str:
        world = self._world()
        legend = f"\nSigns of the map: {LEGEND}." if self.show_map else ""
        return (
            "You are in a grid of rooms with walls, doors, keys, balls and boxes. You see up to six cells ahead and "
            f"three to each side, not through walls and shut doors.\nYour goal: {world.mission}.\n"
            "What has to be done first counts only if it is done first. Left, right, front and behind in the goal are "
            "meant as you stand at the start, within the room you start in. To go to something is to stand before it "
            f"and face it.\n{_rules(world.engine.instrs)}"
            "Actions: turn left; turn right; move forward (or move forward 3); go to THING; pick up THING; drop (onto "
            "the free cell ahead); toggle (open or close the door ahead; a box opens and is gone); go through DOOR; "
            f"toggle and go through DOOR; {CHECK}. Things are named as you see them, such as red ball 1, the nearest "
            "of its kind being number 1. You carry one thing at a time, and a locked door opens while you carry the "
            f"key of its colour.\nAnswer with one action, for example: {self.example_action()}\nYou may think first; "
            f'the last line of your reply, or what follows "Action:", is the action. You have {self.max_turns} turns.'
            f"{legend}\n\n{self._shown()}"
        )

    def act(self, action: str) -> Outcome:
        words = spoken(action)
        world = self._world()
        if words == CHECK:
            return Outcome(f"You can: {', '.join(available(world, self.view))}.")
        moves = Refused("", known=False) if not words else plan(words, world, self.view)
        if isinstance(moves, Refused):
            return self._refused(words, moves)
        ending = None
        carried = world.carrying
        for number, move in enumerate(moves):
            if number and move == FORWARD and not self._free_ahead():
                break  # "move forward 9" ends at the wall
            ending = world.move(move)
            if ending is not None:
                break
        self._look()
        self._remember(carried)
        if ending is None:
            return Outcome(self._shown(), info=self._numbers())
        reward = 0.0 if ending == "lost" else world.discounted if self.discounted else 1.0
        last = "The mission is fulfilled." if ending == "solved" else "That was against the mission, which has failed."
        return Outcome(f"{last}\n{self._shown(actions=False)}", reward, ending, info=self._numbers())

    def example_action(self) -> str:
        return "turn left"

    def sample_random_action(self) -> str:
        return self.player_rng.choice(available(self._world(), self.view))

    def expert_action(self) -> str:
        world = self._world()
        intent = next_intent(self._known(), world.engine.instrs)
        return "turn left" if intent is None else self._said(intent)

    def render(self, mode: str = "text") -> str | bytes | None:
        """The whole grid, also what the agent has not seen: as text, or as a PNG picture (`mode="image"`)."""
        if self.world is None or self.ending == "reset":
            return None
        from palestra.envs.babyai.picture import as_png, as_text

        return as_text(self.world) if mode == "text" else as_png(self.world)

    def _copy(self, memo: dict[int, Any]) -> Self:
        worlds, self._worlds = self._worlds, {}  # a fork needs the running one alone
        try:
            twin = super()._copy(memo)
        finally:
            self._worlds = worlds
        if twin.world is not None:
            twin.view = look(twin.world)  # of its own things
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worlds": {}}

    # How the expert says what it wants

    def _said(self, intent: Intent) -> str:
        moves, act = intent.moves, intent.act
        thing = next((thing for thing in self.view.things if thing.pos == intent.target), None)
        if thing is not None and act != DROP and (moves or act is not None):
            if act == PICKUP:
                words = f"pick up {thing.name}"
            elif act == TOGGLE:
                words = f"{'toggle and go through' if intent.through else 'toggle'} {thing.name}"
            else:
                words = f"go to {thing.name}"
            if not isinstance(plan(words, self._world(), self.view), Refused):
                return words
        if not moves:
            return "drop" if act == DROP else "pick up" if act == PICKUP else "toggle" if act == TOGGLE else "turn left"
        if moves[0] != FORWARD:
            return "turn left" if moves[0] == LEFT else "turn right"
        steps = next((n for n, move in enumerate(moves) if move != FORWARD), len(moves))
        return "move forward" if steps == 1 else f"move forward {steps}"

    def _known(self) -> Known:
        world = self._world()
        hand, held, drops = world.carrying, self._held, self._drops
        return Known(world.width, world.height, world.cells, self.seen, world.pos, world.facing, hand, held, drops)

    def _remember(self, carried: Any) -> None:
        """What the expert goes by besides the map: how long it has held something, where it put things down."""
        world = self._world()
        self._held = self._held + 1 if world.carrying is carried else 0
        if carried is not None and world.carrying is None:
            dx, dy = STEPS[world.facing]
            cell = (world.pos[1] + dy) * world.width + world.pos[0] + dx
            self._drops[cell] = self._drops.get(cell, 0) + 1

    # What is shown

    def _look(self) -> None:
        world = self._world()
        self.view = look(world)
        width = world.width
        for x, y in self.view.visible:
            self.seen[y * width + x] = 1

    def _shown(self, *, actions: bool = True) -> str:
        world = self._world()
        shown = describe(self.view, world.carrying, with_map=self.show_map)
        if self.show_actions and actions:
            shown = f"{shown}\nYou can: {', '.join(available(world, self.view))}."
        return shown

    def _refused(self, words: str | None, refused: Refused) -> Outcome:
        possible = ", ".join(available(self._world(), self.view))
        if not words:
            why = "No action could be read: write it on the last line of your reply."
        elif not refused.known:
            why = f'There is no action "{clip(words)}".'
        else:
            why = clip(refused.why, 200)
        kind = "rule" if words and refused.known else "format"
        return Outcome(f"{why} You can: {possible}.", invalid=kind, info=self._numbers())

    def _numbers(self) -> dict[str, Any]:
        world = self._world()
        return {"moves": world.moves, "discounted": world.discounted}

    def _free_ahead(self) -> bool:
        world = self._world()
        dx, dy = STEPS[world.facing]
        return open_floor(world.cells, world.width, (world.pos[0] + dx, world.pos[1] + dy))

    def _world(self) -> World:
        if self.world is None:
            self._refuse()
        return self.world


def _rules(instruction: Any) -> str:
    """What ends the episode in levels that forgive nothing."""
    clauses = [instruction]
    found = set()
    while clauses:
        clause = clauses.pop()
        clauses += [part for part in (getattr(clause, "instr_a", None), getattr(clause, "instr_b", None)) if part]
        if getattr(clause, "strict", False):
            found.add(type(clause).__name__)
    told = ""
    if "OpenInstr" in found:
        told += "Opening or closing another door than the one to be opened now fails the mission at once.\n"
    if "PickupInstr" in found:
        told += "Picking up anything else than what is asked for fails the mission at once.\n"
    return told
