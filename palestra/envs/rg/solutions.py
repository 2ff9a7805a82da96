"""Find an answer that the scorer accepts: the answer in the item or, if it has none, a computed answer."""

from __future__ import annotations

import importlib
import json
from collections import deque
from collections.abc import Callable
from typing import Any


def solution(name: str, dataset: Any, entry: dict[str, Any]) -> str | None:
    """Return a correct answer to an item, or None if no answer is known."""
    if name == "intermediate_integration" and "Integral(" in entry["answer"]:
        return _integrate(entry["metadata"])
    if entry["answer"] is not None:
        return str(entry["answer"])
    if name == "propositional_logic":
        return _conclusion(dataset, entry)
    solve = _SOLVERS.get(name)
    return None if solve is None else solve(entry["metadata"])


def _integrate(metadata: dict[str, Any]) -> str:
    """Solve an integral that the package left unsolved."""
    sympy: Any = importlib.import_module("sympy")
    x = sympy.Symbol(metadata["variable"])
    integrand = sympy.parse_expr(metadata["integrand"], local_dict={metadata["variable"]: x})
    return f"{sympy.integrate(integrand, x)} + C"


def _conclusion(dataset: Any, entry: dict[str, Any]) -> str:
    """Return the example answer if the scorer accepts it, else a premise or a disjunction of two literals."""
    metadata = entry["metadata"]
    literals = [sign + letter for letter in metadata["variables"] for sign in ("", "\u00ac")]
    either = (f"({one} \u2228 {other})" for one in literals for other in literals if one[-1] < other[-1])
    for candidate in (metadata["example_answer"], *metadata["premises"], *either):
        if dataset.score_answer(answer=candidate, entry=entry) >= 1.0:
            return str(candidate)
    return str(metadata["example_answer"])


def _colour_graph(metadata: dict[str, Any]) -> str:
    return json.dumps({str(vertex): colour for vertex, colour in metadata["possible_answer"].items()})


def _unscramble(metadata: dict[str, Any]) -> str:
    """Return the moves that reverse a cube's scramble."""
    turns = reversed(metadata["scramble_moves"].split())
    return " ".join(turn[:-1] if turn.endswith("'") else f"{turn}'" for turn in turns)


def _move_boxes(metadata: dict[str, Any]) -> str:
    """Return plans that move one box after another to a target of its color, with one move per plan."""
    state: dict[str, list[str]] = metadata["initial_state"]
    places = {place: tuple(float(part) for part in place.split("_")) for place in state}
    free = [(item[7:], where) for place, where in places.items() for item in state[place] if item.startswith("target_")]
    plans = []
    for place, (row, column) in places.items():
        for box in (item for item in state[place] if item.startswith("box_")):
            goal = next(where for colour, where in free if colour == box[4:])
            free.remove((box[4:], goal))
            at = [row, column]
            while tuple(at) != goal:
                axis = 0 if at[0] != goal[0] else 1
                before = f"Agent[{at[0]}, {at[1]}]"
                at[axis] += 1 if goal[axis] > at[axis] else -1
                plans.append({before: f"move({box}, square[{at[0]}, {at[1]}])"})
            plans.append({f"Agent[{at[0]}, {at[1]}]": f"move({box}, target_{box[4:]})"})
    return json.dumps(plans)


def _free_red_car(metadata: dict[str, Any]) -> str | None:
    """Return a shortest sequence of moves that brings the red car to the exit, or None if there is none.

    The board has 6 x 6 cells, and the exit is at the right end of the third row.
    """
    board: str = metadata["board_config"]
    cells: dict[str, list[int]] = {}
    for place, label in enumerate(board):
        if label not in "ox":
            cells.setdefault(label, []).append(place)
    walls = frozenset(place for place, label in enumerate(board) if label == "x")
    labels = sorted(cells)
    stride = {label: cells[label][1] - cells[label][0] for label in labels}
    start = tuple(cells[label][0] for label in labels)
    previous: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[0] == 16:  # left end of the red car when its right end is at the exit
            moves = []
            step = previous[state]
            while step is not None:
                state, move = step
                moves.append(move)
                step = previous[state]
            return " ".join(reversed(moves))
        taken = set(walls)
        for label, at in zip(labels, state, strict=True):
            taken.update(at + stride[label] * k for k in range(len(cells[label])))
        for i, label in enumerate(labels):
            for sign in (1, -1):
                for count in range(1, 6):
                    ahead = state[i] + stride[label] * (count + len(cells[label]) - 1 if sign > 0 else -count)
                    inside = ahead // 6 == state[i] // 6 if stride[label] == 1 else 0 <= ahead < 36
                    if not inside or ahead in taken:
                        break
                    after = (*state[:i], state[i] + sign * count * stride[label], *state[i + 1 :])
                    if after not in previous:
                        previous[after] = (state, f"{chr(ord('A') + i)}{'+' if sign > 0 else '-'}{count}")
                        queue.append(after)
    return None


_SOLVERS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "boxnet": _move_boxes,
    "graph_color": _colour_graph,
    "rubiks_cube": _unscramble,
    "rush_hour": _free_red_car,
}
