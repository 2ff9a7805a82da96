"""BabyAI environment, in which the agent follows an instruction in partially observable rooms.

The agent uses single moves or actions on named objects.
"""

from __future__ import annotations

from typing import Any, Self, Unpack

from palestra.envs.babyai.actions import Refusal, available, open_floor, plan
from palestra.envs.babyai.expert import Intent, next_intent
from palestra.envs.babyai.fast_levels import DIRECTIONS
from palestra.envs.babyai.level import DROP, FORWARD, LEFT, PICKUP, TOGGLE, Level
from palestra.envs.babyai.levels import GROUPS, LEVELS
from palestra.envs.babyai.pathfinding import Knowledge
from palestra.envs.babyai.view import LEGEND, View, describe, view_of
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome, parse_command
from palestra.errors import BadValue, not_running
from palestra.parsing import clip

CHECK = "check available actions"


class BabyAI(MultiTurnEnv):
    """Complete a mission such as "put a ball next to the red door, then open the blue door".

    `level` is one of AgentGym's forty levels or a group of them. The seed of a single level is passed to minigrid. In a
    group of n levels, seed s selects level s mod n with minigrid seed s // n; for the "All" group, s equals AgentGym's
    task index. `max_turns=None` uses the level's default turn budget. `show_map=False` and `show_actions=False` omit
    parts of the observation. With `discounted=True`, a success earns minigrid's reward, which decreases with the number
    of moves, instead of 1; `info["discounted"]` always contains that value.

    Differences from AgentGym: the mission keeps words such as "then" and "after", and its parts must be completed in
    that order; the episode fails if minigrid reports a failure; every observation lists the available actions and shows
    a map. The docstring of level.py lists the differences from minigrid.
    """

    shared = MultiTurnEnv.shared | {"view"}

    current: Level | None = None
    view: View  # the view in the last observation
    seen: bytearray  # cells shown in any observation so far

    def __init__(
        self,
        *,
        level: str,
        max_turns: int | None = None,
        show_map: bool = True,
        show_actions: bool = True,
        discounted: bool = False,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        levels = GROUPS.get(level) or ((level,) if level in LEVELS else None)
        if levels is None:
            raise BadValue(f"unknown level {level!r}; `level` must be one of {', '.join([*GROUPS, *LEVELS])}")
        super().__init__(max_turns=LEVELS[levels[0]] if max_turns is None else max_turns, **options)
        self._max_turns_override = max_turns
        self.levels = levels
        self.show_map = bool(show_map)
        self.show_actions = bool(show_actions)
        self.discounted = bool(discounted)
        self._levels: dict[str, Level] = {}  # levels in a group, reused by later episodes

    def setup(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # this environment has no reset options
        level = self.levels[self.task_seed % len(self.levels)]
        if self._max_turns_override is None:
            self.max_turns = LEVELS[level]
        current = self._levels.get(level)
        if current is None:
            current = self._levels[level] = Level(level)
        self.current = current
        current.start(self.task_seed // len(self.levels))
        self.seen = bytearray(current.width * current.height)
        self._held = 0
        self._drops: dict[int, int] = {}
        self._first_facing: int = current.facing
        self._update_view()

    def reset_info(self) -> dict[str, Any]:
        current = self._current_level()
        return {"level": current.name, "goal": current.mission}

    def prompt(self) -> str:
        current = self._current_level()
        legend = f"\nMap symbols: {LEGEND}." if self.show_map else ""
        return (
            "You are in a grid of rooms with walls, doors, keys, balls and boxes. You see up to six cells ahead and "
            f"three to each side, but not through walls or closed doors.\nYour goal: {current.mission}.\n"
            "If the goal specifies an order, complete its parts in that order. Left, right, in front and behind in "
            "the goal refer to your position and direction at the start, within the starting room. Going to an object "
            f"means standing next to it and facing it.\n{_rules(current.engine.instrs)}"
            "Actions: turn left; turn right; move forward (or move forward 3); go to OBJECT; pick up OBJECT; drop "
            "(onto the empty cell ahead); toggle (open or close the door ahead; a box opens and disappears); "
            f"go through DOOR; toggle and go through DOOR; {CHECK}. Name objects as listed, for example red ball 1; "
            "the nearest of its kind is number 1. You can carry one object at a time, and a locked door opens only "
            "while you carry a key of its color.\n"
            f"Answer with one action, for example: {self.example_action()}\nYou may think first; "
            'the last line of your reply, or the text after "Action:", is the action. '
            f"You have {self.max_turns} turns.{legend}\n\n{self._observation()}"
        )

    def act(self, action: str) -> Outcome:
        words = parse_command(action)
        current = self._current_level()
        if words == CHECK:
            return Outcome(f"You can: {', '.join(available(current, self.view))}.")
        moves = Refusal("", recognized=False) if not words else plan(words, current, self.view)
        if isinstance(moves, Refusal):
            return self._refusal(words, moves)
        ending = None
        carried = current.carrying
        for number, move in enumerate(moves):
            if number and move == FORWARD and not self._free_ahead():
                break  # "move forward 9" stops at the wall
            ending = current.move(move)
            if ending is not None:
                break
        self._update_view()
        self._remember(carried)
        if ending is None:
            return Outcome(self._observation(), info=self._counters())
        reward = 0.0 if ending == "lost" else current.discounted if self.discounted else 1.0
        last = "Mission completed." if ending == "solved" else "You broke a rule of the mission, so it has failed."
        return Outcome(f"{last}\n{self._observation(actions=False)}", reward, ending, info=self._counters())

    def example_action(self) -> str:
        return "turn left"

    def sample_random_action(self) -> str:
        return self.player_rng.choice(available(self._current_level(), self.view))

    def expert_action(self) -> str:
        current = self._current_level()
        intent = next_intent(self._knowledge(), current.engine.instrs)
        return "turn left" if intent is None else self._phrase(intent)

    def render(self, mode: str = "text") -> str | bytes | None:
        """Render the whole grid, including unseen cells, as text or as a PNG image (`mode="image"`)."""
        if self.current is None or self.ending == "reset":
            return None
        from palestra.envs.babyai.render import as_png, as_text

        return as_text(self.current) if mode == "text" else as_png(self.current)

    def _copy(self, memo: dict[int, Any]) -> Self:
        levels, self._levels = self._levels, {}  # a fork needs only the current level
        try:
            clone = super()._copy(memo)
        finally:
            self._levels = levels
        if clone.current is not None:
            clone.view = view_of(clone.current)  # the view must refer to the clone's objects
        return clone

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_levels": {}}

    # Expert

    def _phrase(self, intent: Intent) -> str:
        moves, act = intent.moves, intent.act
        thing = next((thing for thing in self.view.things if thing.pos == intent.target), None)
        if thing is not None and act != DROP and (moves or act is not None):
            if act == PICKUP:
                words = f"pick up {thing.name}"
            elif act == TOGGLE:
                words = f"{'toggle and go through' if intent.through else 'toggle'} {thing.name}"
            else:
                words = f"go to {thing.name}"
            if not isinstance(plan(words, self._current_level(), self.view), Refusal):
                return words
        if not moves:
            return "drop" if act == DROP else "pick up" if act == PICKUP else "toggle" if act == TOGGLE else "turn left"
        if moves[0] != FORWARD:
            return "turn left" if moves[0] == LEFT else "turn right"
        steps = next((n for n, move in enumerate(moves) if move != FORWARD), len(moves))
        return "move forward" if steps == 1 else f"move forward {steps}"

    def _knowledge(self) -> Knowledge:
        current = self._current_level()
        return Knowledge(
            width=current.width,
            height=current.height,
            cells=current.cells,
            seen=self.seen,
            pos=current.pos,
            facing=current.facing,
            hand=current.carrying,
            held=self._held,
            drops=self._drops,
            first_facing=self._first_facing,
        )

    def _remember(self, carried: Any) -> None:
        """Record the number of turns since the last pickup and the cells on which objects were dropped.

        The expert needs these numbers and cannot read them from the map.
        """
        current = self._current_level()
        self._held = self._held + 1 if current.carrying is carried else 0
        if carried is not None and current.carrying is None:
            dx, dy = DIRECTIONS[current.facing]
            cell = (current.pos[1] + dy) * current.width + current.pos[0] + dx
            self._drops[cell] = self._drops.get(cell, 0) + 1

    # Observations

    def _update_view(self) -> None:
        current = self._current_level()
        self.view = view_of(current)
        width = current.width
        for x, y in self.view.visible:
            self.seen[y * width + x] = 1

    def _observation(self, *, actions: bool = True) -> str:
        current = self._current_level()
        shown = describe(self.view, current.carrying, with_map=self.show_map)
        if self.show_actions and actions:
            shown = f"{shown}\nYou can: {', '.join(available(current, self.view))}."
        return shown

    def _refusal(self, words: str | None, refusal: Refusal) -> Outcome:
        possible = ", ".join(available(self._current_level(), self.view))
        if not words:
            why = "No action found; write the action on the last line of your reply."
        elif not refusal.recognized:
            why = f'There is no action "{clip(words)}".'
        else:
            why = clip(refusal.why, 200)
        kind = "rule" if words and refusal.recognized else "format"
        return Outcome(f"{why} You can: {possible}.", invalid=kind, info=self._counters())

    def _counters(self) -> dict[str, Any]:
        current = self._current_level()
        return {"moves": current.moves, "discounted": current.discounted}

    def _free_ahead(self) -> bool:
        current = self._current_level()
        dx, dy = DIRECTIONS[current.facing]
        return open_floor(current.cells, current.width, (current.pos[0] + dx, current.pos[1] + dy))

    def _current_level(self) -> Level:
        if self.current is None:
            raise not_running(self.ending)
        return self.current


def _rules(instruction: Any) -> str:
    """Return the rules that follow from strict clauses, as text. Breaking one of these rules ends the episode."""
    clauses = [instruction]
    strict = set()
    while clauses:
        clause = clauses.pop()
        clauses += [part for part in (getattr(clause, "instr_a", None), getattr(clause, "instr_b", None)) if part]
        if getattr(clause, "strict", False):
            strict.add(type(clause).__name__)
    rules = ""
    if "OpenInstr" in strict:
        rules += "Opening or closing any door other than the next one to open fails the mission immediately.\n"
    if "PickupInstr" in strict:
        rules += "Picking up anything other than the requested object fails the mission immediately.\n"
    return rules
