"""Generate classic simulation problems: grids, automata, a robot, brackets, intervals, words and a stack machine."""

from __future__ import annotations

from random import Random
from typing import Any

from palestra.envs.code.boundaries import Hints
from palestra.envs.code.programs import COUNT, Args, Program, ordinal, word


def paths(rng: Random) -> Program:
    def sample(rng: Random, _: Hints | None = None, *, smallest: int = 1) -> Args:
        rows, columns = rng.randint(smallest, 6), rng.randint(smallest, 6)
        return ([[int(rng.random() < 0.2) for _ in range(columns)] for _ in range(rows)],)

    inputs = [([[0]],), ([[1]],), ([[0, 0], [0, 0]],), ([[0, 1], [1, 0]],)]
    inputs += [sample(rng, smallest=2) for _ in range(COUNT - 4)]
    diagonal = rng.random() < 0.5
    modulus = rng.randint(5, 97)
    code = [
        "rows, columns = len(grid), len(grid[0])",
        "ways = [[0] * columns for _ in range(rows)]",
        "for r in range(rows):",
        "    for c in range(columns):",
        "        if grid[r][c] == 1:",
        "            continue",
        "        if r == 0 and c == 0:",
        "            ways[r][c] = 1",
        "            continue",
        "        total = 0",
        "        if r > 0:",
        "            total += ways[r - 1][c]",
        "        if c > 0:",
        "            total += ways[r][c - 1]",
    ]
    if diagonal:
        code += ["        if r > 0 and c > 0:", "            total += ways[r - 1][c - 1]"]
    code += [f"        ways[r][c] = total % {modulus}", "return ways[-1][-1]"]
    steps = "right, down, or diagonally right and down" if diagonal else "right or down"
    return Program(
        takes=(("grid", "a list of rows of equal length, each a list of 0s and 1s, with at least one cell"),),
        task=f"Each step moves one cell {steps}. Cells with a 1 are blocked. Return the number of paths from the top "
        f"left cell to the bottom right cell, modulo {modulus}. If the first or the last cell is blocked, the number "
        "is 0.",
        code=tuple(code),
        inputs=tuple(inputs),
        gives="number",
        sample=sample,
    )


def matrix(rng: Random) -> Program:
    k = rng.randint(2, 6)

    def sample(rng: Random, _: Hints | None = None) -> Args:
        columns, highest = rng.randint(1, 5), rng.choice((5, 20))
        return ([[rng.randint(-9, highest) for _ in range(columns)] for _ in range(rng.randint(1, 5))],)

    inputs = [([[7]],), ([[1, 2, 3]],), ([[1], [2], [3]],), *(sample(rng) for _ in range(COUNT - 3))]
    task, gives, code = rng.choice(
        (
            (
                f"Return a list with the sum of each column, each as the remainder (0 to {k - 1}) when divided by {k}.",
                "numbers",
                (f"return [sum(row[c] for row in grid) % {k} for c in range(len(grid[0]))]",),
            ),
            (
                f"Return the number of cells whose value exceeds the average of their row by at least {k}.",
                "number",
                (
                    "count = 0",
                    "for row in grid:",
                    "    for x in row:",
                    f"        if (x - {k}) * len(row) >= sum(row):",
                    "            count += 1",
                    "return count",
                ),
            ),
            (
                f"Rotate the grid by 90 degrees clockwise, multiply all numbers by {k}, and return them row by row.",
                "numbers",
                (
                    "turned = []",
                    "for c in range(len(grid[0])):",
                    "    for row in reversed(grid):",
                    f"        turned.append({k} * row[c])",
                    "return turned",
                ),
            ),
            (
                (
                    "Read the grid row by row, every second row (the second, the fourth, ...) from right to left, and "
                    f"return every {ordinal(k)} number, starting with the first, as a list."
                ),
                "numbers",
                (
                    "seen = []",
                    "for i, row in enumerate(grid):",
                    "    if i % 2 == 0:",
                    "        seen += row",
                    "    else:",
                    "        seen += row[::-1]",
                    f"return seen[::{k}]",
                ),
            ),
        )
    )
    return Program(
        takes=(("grid", "a non-empty list of rows of equal length, each a non-empty list of integers"),),
        task=task,
        code=code,
        inputs=tuple(inputs),
        gives=gives,
        sample=sample,
    )


def automaton(rng: Random) -> Program:
    rule, steps = rng.randrange(1, 255), rng.randint(1, 5)

    def sample(rng: Random, _: Hints | None = None) -> Args:
        return ("".join(rng.choice("01") for _ in range(rng.randint(3, 16))),)

    inputs: list[Any] = [("0",), ("1",), ("010",), ("1111",), *(sample(rng) for _ in range(COUNT - 4))]
    table = ", ".join(f"{i:03b} gives {rule >> i & 1}" for i in range(8))
    return Program(
        takes=(("cells", "a non-empty string of the characters 0 and 1"),),
        task="In each step, every character is replaced depending on three characters: its left neighbor, itself and "
        f"its right neighbor, all as they were before the step. Beyond the ends of the string, there are zeros. The "
        f"rules are: {table}. Return the string after {steps} step{'s' if steps > 1 else ''}.",
        code=(
            f"rule = {[rule >> i & 1 for i in range(8)]}",
            f"for _ in range({steps}):",
            '    padded = "0" + cells + "0"',
            '    after = ""',
            "    for i in range(1, len(padded) - 1):",
            "        after += str(rule[int(padded[i - 1:i + 2], 2)])",
            "    cells = after",
            "return cells",
        ),
        inputs=tuple(inputs),
        gives="text",
        sample=sample,
    )


def robot(rng: Random) -> Program:
    stride, x, y = rng.randint(1, 5), rng.randint(-5, 5), rng.randint(-5, 5)

    def sample(rng: Random, _: Hints | None = None) -> Args:
        return ("".join(rng.choice("FFFLRB") for _ in range(rng.randint(3, 20))),)

    inputs: list[Any] = [("",), ("F",), ("LLLL",), ("FRFRFRFR",), *(sample(rng) for _ in range(COUNT - 4))]
    distance = rng.random() < 0.5
    result = (
        "its distance from (0, 0), the sum of the absolute values of its coordinates,"
        if distance
        else "its position as a list [x, y]"
    )
    return Program(
        takes=(("moves", "a string of the letters F, B, L and R"),),
        task=f"A robot starts at x = {x}, y = {y} and faces north, the direction in which y increases; x increases to "
        f"the east. F moves it forward by {stride}, B moves it back by 1 without turning, L turns it left by 90 "
        f"degrees, and R turns it right by 90 degrees. Return {result} after all moves.",
        code=(
            f"x, y = {x}, {y}",
            "dx, dy = 0, 1",
            "for move in moves:",
            '    if move == "F":',
            f"        x, y = x + {stride} * dx, y + {stride} * dy",
            '    elif move == "B":',
            "        x, y = x - dx, y - dy",
            '    elif move == "L":',
            "        dx, dy = -dy, dx",
            "    else:",
            "        dx, dy = dy, -dx",
            "return abs(x) + abs(y)" if distance else "return [x, y]",
        ),
        inputs=tuple(inputs),
        gives="number" if distance else "numbers",
        sample=sample,
    )


def intervals(rng: Random) -> Program:
    gap = rng.randint(0, 4)

    def sample(rng: Random, _: Hints | None = None) -> Args:
        starts = [rng.randint(-10, 30) for _ in range(rng.randint(1, 7))]
        return ([[start, start + rng.randint(1, 9)] for start in starts],)

    inputs: list[Any] = [([],), ([[2, 5]],), ([[0, 3], [3, 4]],), ([[5, 9], [0, 1]],)]
    inputs += [sample(rng) for _ in range(COUNT - 4)]
    which = rng.choice(("count", "length", "list"))
    result = {
        "count": "Return the number of intervals that remain.",
        "length": "Return the sum of the lengths (end minus start) of the intervals that remain.",
        "list": "Return the intervals that remain, sorted by start, as one flat list: start, end, start, end, and so "
        "on.",
    }[which]
    condition = "touch or overlap" if gap == 0 else f"overlap or have a gap of at most {gap} between them"
    last = {
        "count": "return len(merged)",
        "length": "return sum(end - start for start, end in merged)",
        "list": "return [bound for span in merged for bound in span]",
    }[which]
    return Program(
        takes=(("spans", "a list of [start, end] with start < end, in any order"),),
        task=f"Merge intervals that {condition} into one interval from the smallest start to the largest end, until no "
        f"two such intervals are left. {result}",
        code=(
            "merged = []",
            "for start, end in sorted(spans):",
            f"    if merged and start - merged[-1][1] <= {gap}:",
            "        merged[-1][1] = max(merged[-1][1], end)",
            "    else:",
            "        merged.append([start, end])",
            last,
        ),
        inputs=tuple(inputs),
        gives="numbers" if which == "list" else "number",
        sample=sample,
    )


def brackets(rng: Random) -> Program:
    kinds = rng.sample(("()", "[]", "{}", "<>"), rng.randint(2, 3))
    openers, closers = "".join(kind[0] for kind in kinds), "".join(kind[1] for kind in kinds)
    wrong = rng.choice((-1, -2, -99))

    def nested(rng: Random, depth: int) -> str:
        if depth == 0:
            return rng.choice(("", "x", "ab"))
        kind = rng.choice(kinds)
        return kind[0] + nested(rng, depth - 1) + kind[1] + nested(rng, rng.randrange(depth))

    def sample(rng: Random, _: Hints) -> Args:
        good = nested(rng, rng.randint(1, 4))
        if rng.random() < 0.5:
            return (good,)
        at = rng.randrange(len(good))  # insert, remove or replace one character
        return (good[:at] + rng.choice(("", *openers, *closers)) + good[at + rng.randint(0, 1) :],)

    good = [nested(rng, rng.randint(1, 4)) for _ in range(6)]
    bad = [text.replace(rng.choice(openers + closers), "", 1) + rng.choice(closers) for text in good[:4]]
    inputs = ("", "x", openers[0], closers[0] + openers[0], openers[0] + closers[1], *good, *bad)
    pairs = ", ".join(f"{kind[0]} with {kind[1]}" for kind in kinds)
    return Program(
        takes=(("text", "a string"),),
        task=f"The string contains brackets, which match like this: {pairs}. Ignore all other characters. Return the "
        f"maximum nesting depth of the brackets (0 if there are none), or {wrong} if they are not balanced, that is, "
        "if there is a closing bracket without an opening one, a mismatched pair, or a bracket that is never closed.",
        code=(
            f"partner = {dict(zip(closers, openers, strict=True))}",
            "stack = []",
            "deepest = 0",
            "for c in text:",
            "    if c in partner.values():",
            "        stack.append(c)",
            "        deepest = max(deepest, len(stack))",
            "    elif c in partner:",
            "        if not stack or stack[-1] != partner[c]:",
            f"            return {wrong}",
            "        stack.pop()",
            f"return deepest if not stack else {wrong}",
        ),
        inputs=tuple((text,) for text in inputs),
        gives="number",
        sample=sample,
    )


def word_counts(rng: Random) -> Program:
    def sample(rng: Random, _: Hints | None = None) -> Args:
        pool = [word(rng) for _ in range(rng.randint(1, 5))]
        return ([rng.choice(pool) for _ in range(rng.randint(1, 14))],)

    k = rng.randint(2, 3)
    inputs: list[Any] = [([],), (["a"],), (["b", "a", "b", "a"],), (["x", "x", "x"],)]
    inputs += [sample(rng) for _ in range(COUNT - 4)]
    count = ("counts = {}", "for w in words:", "    counts[w] = counts.get(w, 0) + 1")
    task, gives, code = rng.choice(
        (
            (
                (
                    "Return the word that occurs most often, or the alphabetically first one if there is a tie; for an "
                    "empty list, return an empty string."
                ),
                "text",
                ('best = ""', "for w in sorted(counts):", "    if not best or counts[w] > counts[best]:",
                 "        best = w", "return best"),
            ),
            (
                f"Return the words that occur at least {k} times, each once, in alphabetical order.",
                "words",
                (f"return sorted(w for w in counts if counts[w] >= {k})",),
            ),
            (
                (
                    "Return a string with each distinct word followed by the number of its occurrences, such as "
                    "`ab3 c1`, separated by single spaces. Sort the words by decreasing number of occurrences, and "
                    "words with equal numbers alphabetically."
                ),
                "text",
                ('return " ".join(w + str(counts[w]) for w in sorted(counts, key=lambda w: (-counts[w], w)))',),
            ),
            (
                (f"Return the total number of letters of all words that occur fewer than {k} times. Count every "
                "occurrence of these words."),
                "number",
                ("total = 0", "for w in counts:", f"    if counts[w] < {k}:", "        total += len(w) * counts[w]",
                 "return total"),
            ),
        )
    )  # fmt: skip
    return Program(
        takes=(("words", "a list of words, which are strings of lowercase letters"),),
        task=task,
        code=(*count, *code),
        inputs=tuple(inputs),
        gives=gives,
        sample=sample,
    )


def calculator(rng: Random) -> Program:
    modulus = rng.randint(50, 999)
    signs = rng.sample(("+", "-", "*", "max", "min"), rng.randint(3, 4))
    expression = {"+": "a + b", "-": "a - b", "*": "a * b", "max": "max(a, b)", "min": "min(a, b)"}
    meaning = {
        "+": "their sum",
        "-": "the first minus the second",
        "*": "their product",
        "max": "the larger one",
        "min": "the smaller one",
    }

    def tokens(rng: Random, depth: int) -> list[str]:
        if depth == 0 or rng.random() < 0.2:
            return [str(rng.randint(0, 40))]
        return [*tokens(rng, depth - 1), *tokens(rng, depth - 1), rng.choice(signs)]

    def sample(rng: Random, _: Hints | None = None) -> Args:
        return (" ".join(tokens(rng, rng.randint(1, 3))),)

    inputs: list[Any] = [("7",), (f"3 4 {signs[0]}",), (f"9 2 {signs[1]}",), (f"5 8 {signs[2]}",)]
    inputs += [sample(rng) for _ in range(COUNT - 4)]
    meanings = "; ".join(f"`{sign}` pushes {meaning[sign]}" for sign in signs)
    branches: list[str] = []
    for i, sign in enumerate(signs):
        branches += [
            f"        {'if' if i == 0 else 'elif'} token == {sign!r}:",
            f"            result = {expression[sign]}",
        ]
    return Program(
        takes=(("program", "a string of tokens separated by single spaces"),),
        task="Process the tokens from left to right with a stack. A number is pushed onto the stack. Any other token "
        "pops the top two numbers and pushes a result; the number that was on top is the second of the two, and the "
        f"other is the first. {meanings}. Each result is replaced by its remainder (0 to {modulus - 1}) when divided "
        f"by {modulus} before it is pushed. Return the number that is left at the end. The program is always valid and "
        "leaves exactly one number.",
        code=(
            "stack = []",
            "for token in program.split():",
            "    if token.isdigit():",
            "        stack.append(int(token))",
            "    else:",
            "        b = stack.pop()",
            "        a = stack.pop()",
            *branches,
            f"        stack.append(result % {modulus})",
            "return stack[0]",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=sample,
    )
