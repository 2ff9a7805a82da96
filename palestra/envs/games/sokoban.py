"""Sokoban: push every box onto a goal."""

from __future__ import annotations

from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.sokoban_rooms import MOST_LIVE, Room, deal, solve
from palestra.errors import BadValue

SMALLEST, LARGEST = 5, 20  # sides of a room, walls included

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "#_OX√PS"
_LEFT_BEHIND = {PLAYER: FLOOR, PLAYER_ON_GOAL: GOAL, BOX: FLOOR, BOX_ON_GOAL: GOAL}
_ENTERED = {FLOOR: PLAYER, GOAL: PLAYER_ON_GOAL}
_FILLED = {FLOOR: BOX, GOAL: BOX_ON_GOAL}
_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_WORDS = {move[0]: move for move in _MOVES}


class Sokoban(LanguageGame):
    """A room of `dim_room` (rows, columns; outer walls included) with `num_boxes` boxes and as many goals.

    Differs from GEM: every room can be solved within the budget (a few of GEM's cannot), no box starts on a goal, and a
    player who stands on a goal is shown as S, where GEM hides the goal.
    Rooms are dealt by pulling the boxes backwards off their goals, and are small enough to be searched whole: the
    expert plays a shortest plan, found from what the player sees.
    """

    title = "Sokoban"
    levels = (
        {"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20},
        {"dim_room": (7, 7), "num_boxes": 3, "max_turns": 35},
        {"dim_room": (8, 8), "num_boxes": 4, "max_turns": 50},
        {"dim_room": (8, 8), "num_boxes": 5, "max_turns": 50},
    )
    shared = LanguageGame.shared | {"_plan"}

    dim_room: tuple[int, int]
    num_boxes: int
    max_turns: int

    def __init__(
        self,
        *,
        dim_room: tuple[int, int] | None = (6, 6),
        num_boxes: int | None = 3,
        max_turns: int | None = 100,
        **options: Unpack[GameOptions],
    ) -> None:
        if dim_room is not None:
            dim_room = _check_sides(dim_room)
        if num_boxes is not None:
            _check_boxes(num_boxes, dim_room, max_turns)
        super().__init__({"dim_room": dim_room, "num_boxes": num_boxes, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        rows, cols = self.dim_room
        room = deal(self.rng, rows, cols, self.num_boxes, self.max_turns)
        self.room = _show(room, rows)  # what the player sees, and all there is
        self.player = 2 * room.player.bit_length() - 2  # where in the text
        self._plan: dict[str, str] = {}  # room -> the expert's move, along its last plan; replaced, never changed
        self._lost = False  # the expert has seen that there is no way any more

    def rules(self) -> str:
        return (
            f"You are in a room with {self.num_boxes} box{'es' * (self.num_boxes > 1)} and as many goals. Push every "
            "box onto a goal; which box goes to which goal does not matter.\n"
            "You move one cell up, down, left or right. Moving into a box pushes it one cell further, if the cell "
            "behind it holds neither a wall nor another box. You cannot pull boxes. A move that is not possible costs "
            "a turn and changes nothing.\n"
            f"{PLAYER}: you; {PLAYER_ON_GOAL}: you, standing on a goal; {WALL}: wall; {FLOOR}: free floor; "
            f"{GOAL}: goal; {BOX}: box; {BOX_ON_GOAL}: box on a goal.\n"
            "A move is one word: up, down, left or right."
        )

    def example_move(self) -> str:
        return "up"

    def parse(self, text: str) -> str | None:
        if text in _MOVES:
            return text
        text = text.strip(" \t\r\n'\"`.,[]()").lower()
        return text if text in _MOVES else None

    def play(self, move: str) -> tuple[int, str]:
        to = self.player + self._shift(move)
        ahead = self.room[to]
        after = self._after(move)
        if after is None:
            if ahead == WALL:
                return INVALID, f"you cannot move {move}: there is a wall."
            return INVALID, f"you cannot push the box {move}: there is a wall or another box behind it."
        self.room, self.player = after, to
        if ahead in _ENTERED:
            return ONGOING, f"you moved {move}."
        if BOX not in after:
            return WON, f"you pushed the last box {move} onto a goal. You win!"
        return ONGOING, f"you pushed a box {move}; {after.count(BOX_ON_GOAL)} of {self.num_boxes} are on goals."

    def _shift(self, move: str) -> int:
        rows, cols = _MOVES[move]
        return 2 * (rows * self.dim_room[1] + cols)

    def _after(self, move: str) -> str | None:
        return _moved(self.room, self.player, self._shift(move))

    def board(self) -> str:
        return self.room

    def progress(self) -> float:
        return self.room.count(BOX_ON_GOAL) / self.num_boxes

    def random_move(self) -> str:
        possible = [move for move in _MOVES if self._after(move) is not None]
        return self.player_rng.choice(possible or list(_MOVES))

    def expert_move(self) -> str:
        if self.room not in self._plan and not self._lost:
            way, self._lost = solve(_read(self.room, self.dim_room[1]))
            self._plan = self._along(way or "")
        move = self._plan.get(self.room)
        if move is None:  # no way is left, or none was found: any move that is possible, rather without a push
            walks = [move for move in _MOVES if self.room[self.player + self._shift(move)] in _ENTERED]
            move = next((move for move in [*walks, *_MOVES] if self._after(move) is not None), "up")
        return move

    def _along(self, way: str) -> dict[str, str]:
        room, player = self.room, self.player
        plan: dict[str, str] = {}
        for move in map(_WORDS.__getitem__, way):
            plan[room] = move
            room = _moved(room, player, self._shift(move)) or room  # every move of a plan is possible
            player += self._shift(move)
        return plan


def _moved(room: str, player: int, shift: int) -> str | None:
    """The room after a move, or None where it is not possible."""
    to = player + shift
    ahead = room[to]
    if ahead == WALL:
        return None
    if ahead not in _ENTERED:
        behind = room[to + shift]
        if behind not in _FILLED:
            return None
        room = _put(room, to + shift, _FILLED[behind])
        ahead = _LEFT_BEHIND[ahead]
    return _put(_put(room, to, _ENTERED[ahead]), player, _LEFT_BEHIND[room[player]])


def _put(room: str, at: int, symbol: str) -> str:
    return room[:at] + symbol + room[at + 1 :]


def _show(room: Room, rows: int) -> str:
    """The room as text: the cell of bit i stands at 2 * i."""
    cells = [WALL] * (rows * room.cols)
    for i in range(len(cells)):
        if room.floor >> i & 1:
            goal = room.goals >> i & 1
            if room.boxes >> i & 1:
                cells[i] = BOX_ON_GOAL if goal else BOX
            elif room.player >> i & 1:
                cells[i] = PLAYER_ON_GOAL if goal else PLAYER
            else:
                cells[i] = GOAL if goal else FLOOR
    return "\n".join(" ".join(cells[start : start + room.cols]) for start in range(0, len(cells), room.cols))


def _read(text: str, cols: int) -> Room:
    """`_show` backwards."""
    cells = text[::2]

    def having(symbols: str) -> int:
        return sum(1 << i for i, cell in enumerate(cells) if cell in symbols)

    return Room(
        cols=cols,
        floor=having(FLOOR + GOAL + BOX + BOX_ON_GOAL + PLAYER + PLAYER_ON_GOAL),
        goals=having(GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL),
        boxes=having(BOX + BOX_ON_GOAL),
        player=having(PLAYER + PLAYER_ON_GOAL),
    )


def _check_sides(sides: object) -> tuple[int, int]:
    if isinstance(sides, tuple | list) and len(sides) == 2:
        rows, cols = sides
        if all(isinstance(side, int) and SMALLEST <= side <= LARGEST for side in (rows, cols)):
            return rows, cols
    raise BadValue(f"dim_room is (rows, columns), each from {SMALLEST} to {LARGEST} with the walls, got {sides!r}")


def _check_boxes(boxes: object, sides: tuple[int, int] | None, turns: int | None) -> None:
    most = max(MOST_LIVE) if sides is None else min(max(MOST_LIVE), (sides[0] - 2) * (sides[1] - 2) // 5)
    if not (isinstance(boxes, int) and 1 <= boxes <= most):
        place = "" if sides is None else f" in a room of {sides[0]} x {sides[1]}"
        raise BadValue(f"num_boxes is a whole number from 1 to {most}{place}, got {boxes!r}")
    if turns is not None and turns < 6 * boxes:
        raise BadValue(f"{boxes} boxes need max_turns of at least {6 * boxes}, got {turns}")
