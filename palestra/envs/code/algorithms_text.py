"""Algorithmic problems on strings: alignment, palindromes, segmentation and parsing."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, letters
from palestra.envs.code.programs import Args

_TEXT = (("text", "a string of lowercase letters"),)
_TWO = (("a", "a string of lowercase letters"), ("b", "a string of lowercase letters"))


def alignment(rng: Random) -> Algorithm:
    goal = rng.choice(("edit", "common", "block", "super", "embeddings"))
    p, q = rng.randint(1, 4), rng.randint(1, 6)
    intro = "A subsequence of a string consists of characters in their original order, which need not be adjacent."
    if goal == "edit":
        intro = f"Inserting or deleting a character costs {p}, and replacing a character by another one costs {q}."
        result = "the smallest total cost to turn `a` into `b`"
        cell = f"min(t[i - 1][j] + {p}, t[i][j - 1] + {p}, t[i - 1][j - 1] + (0 if a[i - 1] == b[j - 1] else {q}))"
        borders, last = (f"i * {p}", f"j * {p}"), "t[-1][-1]"
    elif goal == "common":
        result = "the length of the longest string that is a subsequence of both `a` and `b`"
        cell = "t[i - 1][j - 1] + 1 if a[i - 1] == b[j - 1] else max(t[i - 1][j], t[i][j - 1])"
        borders, last = ("0", "0"), "t[-1][-1]"
    elif goal == "block":
        intro = ""
        result = "the length of the longest string that occurs without gaps in both `a` and `b`"
        cell = "t[i - 1][j - 1] + 1 if a[i - 1] == b[j - 1] else 0"
        borders, last = ("0", "0"), "max(map(max, t))"
    elif goal == "super":
        result = "the length of the shortest string of which both `a` and `b` are subsequences"
        cell = "t[i - 1][j - 1] + 1 if a[i - 1] == b[j - 1] else min(t[i - 1][j], t[i][j - 1]) + 1"
        borders, last = ("i", "j"), "t[-1][-1]"
    else:
        result = (
            "the number of ways to choose positions in `a` whose characters, in order, spell `b` (1 if `b` is empty)"
        )
        cell = "t[i - 1][j] + (t[i - 1][j - 1] if a[i - 1] == b[j - 1] else 0)"
        borders, last = ("1", "0 if j else 1"), "t[-1][-1]"

    def sample(rng: Random) -> Args:
        size = 4 if goal == "embeddings" else 7
        return letters(rng, rng.randint(0, 7), "abc"), letters(rng, rng.randint(0, size), "abc")

    def large(rng: Random) -> Args:
        return letters(rng, rng.randint(45, 60), "abcd"), letters(
            rng, rng.randint(45, 60) // (3 if goal == "embeddings" else 1)
        )

    return Algorithm(
        kind="alignment",
        takes=_TWO,
        intro=intro,
        result=result,
        code=f"""
t = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
for i in range(len(a) + 1):
    t[i][0] = {borders[0]}
for j in range(len(b) + 1):
    t[0][j] = {borders[1]}
for i in range(1, len(a) + 1):
    for j in range(1, len(b) + 1):
        t[i][j] = {cell}
return {last}
""",
        gives="natural",
        edges=(("", ""), ("a", ""), ("", "ab"), ("abc", "abc"), ("abc", "cba"), ("aaa", "aa")),
        small=sample,
        large=large,
        choices={"goal": goal, "p": p, "q": q},
    )


def palindromes(rng: Random) -> Algorithm:
    goal = rng.choice(("subsequence", "insertions", "count", "pieces", "longest"))
    odd = goal in ("count", "pieces", "longest") and rng.random() < 0.5
    kind = "palindrome of odd length" if odd else "palindrome"
    test = " and (j - i) % 2 == 1" if odd else ""
    result = {
        "subsequence": "the length of the longest palindrome that can be obtained by deleting characters (0 if "
        "`text` is empty)",
        "insertions": "the smallest number of characters that must be inserted, at any positions, to turn `text` "
        "into a palindrome",
        "count": "the number of pairs of positions i <= j such that the characters from i to j, both included, form "
        f"a {kind}",
        "pieces": f"the smallest number of consecutive pieces, each a {kind}, into which `text` can be split (0 if it "
        "is empty)",
        "longest": f"the length of the longest {kind} that occurs in `text` without gaps (0 if `text` is empty)",
    }[goal]
    if goal in ("subsequence", "insertions"):
        code = f"""
n = len(text)
best = [[0] * (n + 1) for _ in range(n + 1)]
for i in range(n - 1, -1, -1):
    for j in range(i + 1, n + 1):
        if text[i] == text[j - 1]:
            best[i][j] = best[i + 1][j - 1] + 2 if j - i > 1 else 1
        else:
            best[i][j] = max(best[i + 1][j], best[i][j - 1])
return {"best[0][n]" if goal == "subsequence" else "n - best[0][n]"}
"""
    else:
        last = {
            "count": f"return sum(1 for i in range(n) for j in range(i + 1, n + 1) if mirror[i][j]{test})",
            "longest": f"return max((j - i for i in range(n) for j in range(i + 1, n + 1) if mirror[i][j]{test}), "
            "default=0)",
            "pieces": f"""best = [0]
for j in range(1, n + 1):
    best.append(min(best[i] + 1 for i in range(j) if mirror[i][j]{test}))
return best[n]""",
        }[goal]
        code = f"""
n = len(text)
mirror = [[True] * (n + 1) for _ in range(n + 1)]
for size in range(2, n + 1):
    for i in range(n - size + 1):
        mirror[i][i + size] = text[i] == text[i + size - 1] and mirror[i + 1][i + size - 1]
{last}
"""
    return Algorithm(
        kind="palindromes",
        takes=_TEXT,
        intro="A palindrome is a string that reads the same backward.",
        result=result,
        code=code,
        gives="natural",
        edges=(("",), ("a",), ("ab",), ("aa",), ("abcba",), ("abba",), ("aabaa",)),
        small=lambda rng: (letters(rng, rng.randint(1, 8), "ab" if rng.random() < 0.5 else "abc"),),
        large=lambda rng: (letters(rng, rng.randint(45, 60), "abc"),),
        choices={"goal": goal, "odd": odd},
    )


def segmentation(rng: Random) -> Algorithm:
    goal, start, none = rng.choice((("ways", "1", "0"), ("fewest", "0", "-1"), ("most", "0", "-1")))
    longest = rng.randint(2, 4)
    limited = rng.random() < 0.4
    rule = f" Use only words with at most {longest} letters." if limited else ""
    result = {
        "ways": "the number of different ways to do this, or 0 if there is none",
        "fewest": "the smallest number of words with which this is possible, or -1 if it is not possible",
        "most": "the largest number of words with which this is possible, or -1 if it is not possible",
    }[goal]
    update = "best[j] += best[i]"
    if goal != "ways":
        sign = "<" if goal == "fewest" else ">"
        update = (
            f"if best[i] >= 0 and (best[j] < 0 or best[i] + 1 {sign} best[j]):\n                best[j] = best[i] + 1"
        )

    def sample(rng: Random, size: int = 7) -> Args:
        words = sorted({letters(rng, rng.randint(1, 4), "ab") for _ in range(rng.randint(1, 6))})
        rng.shuffle(words)
        return letters(rng, rng.randint(1, size), "ab"), words

    def large(rng: Random) -> Args:
        words = ["a", "b", "ab", "ba", "aab", "abab", "bbb"]
        rng.shuffle(words)
        return letters(rng, rng.randint(50, 70), "ab"), words

    return Algorithm(
        kind="segmentation",
        takes=(*_TEXT, ("words", "a list of different non-empty strings")),
        intro="Write `text` as a sequence of words from `words` without spaces. Each word may be used any number of "
        f"times.{rule} An empty text needs no words{', which is one way' if goal == 'ways' else ''}.",
        result=result,
        code=f"""
best = [{start}] + [{none}] * len(text)
for j in range(1, len(text) + 1):
    for word in words:
        i = j - len(word)
        if {f"len(word) <= {longest} and " if limited else ""}i >= 0 and text[i:j] == word:
            {update}
return best[len(text)]
""",
        gives="natural" if goal == "ways" else "number",
        edges=(("", ["a"]), ("a", ["a"]), ("ab", ["a"]), ("aaaa", ["a", "aa"]), ("aaaaa", ["aa", "aaaaa"])),
        small=sample,
        large=large,
        choices={"goal": goal, "longest": longest if limited else 99},
    )


def digit_split(rng: Random) -> Algorithm:
    low, high = rng.randint(0, 9), rng.randint(20, 150)
    goal, start = rng.choice((("ways", "1"), ("fewest", "0"), ("sum", "0")))
    result = {
        "ways": "the number of different ways to do this (0 if there is none)",
        "fewest": "the smallest possible number of numbers, or -1 if it is not possible",
        "sum": "the largest possible sum of these numbers, or -1 if it is not possible",
    }[goal]
    step = "1" if goal == "fewest" else "int(part)"
    update = "best[j] += best[i]"
    if goal != "ways":
        sign = "<" if goal == "fewest" else ">"
        update = f"if best[i] >= 0 and (best[j] < 0 or best[i] + {step} {sign} best[j]):"
        update += f"\n                best[j] = best[i] + {step}"
    return Algorithm(
        kind="digit_split",
        takes=(("digits", "a non-empty string of decimal digits"),),
        intro=f"Split `digits` into consecutive pieces so that each piece is a number from {low} to {high} without "
        "leading zeros (the number 0 itself is written as a single 0).",
        result=result,
        code=f"""
n = len(digits)
best = [{start}] + [{0 if goal == "ways" else -1}] * n
for j in range(1, n + 1):
    for i in range(max(0, j - {len(str(high))}), j):
        part = digits[i:j]
        if {low} <= int(part) <= {high} and (part == "0" or part[0] != "0"):
            {update}
return best[n]
""",
        gives="natural" if goal == "ways" else "number",
        edges=(("0",), ("7",), (str(high),), (str(high + 1),), (str(low),), ("100",), ("0000",), ("1111",)),
        small=lambda rng: (letters(rng, rng.randint(1, 8), "0123456789" if rng.random() < 0.5 else "0112"),),
        large=lambda rng: (letters(rng, rng.randint(60, 80), "111222345679"),),
        choices={"goal": goal, "low": low, "high": high},
    )


def expression(rng: Random) -> Algorithm:
    order = rng.choice(("usual", "equal", "reversed"))
    modulus = rng.randint(50, 999)
    power = rng.choice(("", "max", "min"))
    third = {"": "", "max": " `^` gives the larger of two numbers.", "min": " `^` gives the smaller of two numbers."}[
        power
    ]
    levels = {"usual": ["+-", "*"], "equal": ["+-*"], "reversed": ["*", "+-"]}[order]
    if power:
        levels = [*levels, "^"]
    rules = {
        "usual": "`*` is evaluated before `+` and `-`.",
        "equal": "`+`, `-` and `*` have the same precedence.",
        "reversed": "`+` and `-` are evaluated before `*`.",
    }[order]
    rules += f"{third} `^` is evaluated before all other operators." if power else ""
    symbols = "+-*^" if power else "+-*"
    branches = "else:\n            value *= right"
    if power:
        branches = 'elif operator == "*":\n            value *= right\n        else:\n            '
        branches += f"value = {power}(value, right)"

    def sample(rng: Random, depth: int = 3) -> str:
        if depth == 0 or rng.random() < 0.25:
            return str(rng.randint(0, 30))
        text = sample(rng, depth - 1)
        for _ in range(rng.randint(1, 2)):
            text += rng.choice(symbols) + sample(rng, depth - 1)
        return f"({text})" if rng.random() < 0.4 else text

    return Algorithm(
        kind="expression",
        takes=(("text", f"an expression of non-negative integers, the operators {' '.join(symbols)} and parentheses"),),
        intro=f"Evaluate the expression from left to right. Parentheses come first. {rules}",
        result=f"the remainder (0 to {modulus - 1}) when the value of the expression is divided by {modulus}",
        code=f"""
levels = {levels}
at = 0

def parse(level):
    nonlocal at
    if level == len(levels):
        if text[at] == "(":
            at += 1
            value = parse(0)
            at += 1
            return value
        start = at
        while at < len(text) and text[at].isdigit():
            at += 1
        return int(text[start:at])
    value = parse(level + 1)
    while at < len(text) and text[at] in levels[level]:
        operator = text[at]
        at += 1
        right = parse(level + 1)
        if operator == "+":
            value += right
        elif operator == "-":
            value -= right
        {branches}
    return value

return parse(0) % {modulus}
""",
        gives="natural",
        edges=(("7",), ("(7)",), ("1+2*3",), ("2*3+1",), ("9-3-2",), ("2*(3-5)*4",), (f"2*3{symbols[-1]}4+1",)),
        small=lambda rng: (sample(rng),),
        large=lambda rng: ("(" * 60 + "+".join(f"{rng.randint(1, 9)}*{rng.randint(1, 9)})" for _ in range(60)),),
        choices={"order": order, "modulus": modulus, "power": power},
    )


def repetition(rng: Random) -> Algorithm:
    goal = rng.choice(("length", "count", "character"))
    letter = rng.choice("abc")
    result = {
        "length": "the length of the decoded string",
        "count": f"the number of occurrences of the letter {letter} in the decoded string",
        "character": "the number of the letter (a is 1, b is 2, c is 3) at the middle of the decoded string, at "
        "index n // 2 for a string of n letters",
    }[goal]
    one = f'(1 if c == "{letter}" else 0)' if goal == "count" else "1"

    def sample(rng: Random, depth: int = 3) -> str:
        parts = []
        for _ in range(rng.randint(1, 3)):
            if depth and rng.random() < 0.6:
                parts.append(f"{rng.randint(1, 12 if depth == 1 else 4)}[{sample(rng, depth - 1)}]")
            else:
                parts.append(letters(rng, rng.randint(1, 3), "abc"))
        return "".join(parts)

    def large(rng: Random) -> str:
        text = "ab"
        for _ in range(rng.randint(24, 30)):
            text = f"{rng.randint(5, 40)}[{letters(rng, 1)}{text}]{letters(rng, 2)}"
        return text

    if goal == "character":
        code = """
at = 0

def parse():
    nonlocal at
    parts = []
    while at < len(text) and text[at] != "]":
        if text[at].isdigit():
            start = at
            while text[at] != "[":
                at += 1
            times = int(text[start:at])
            at += 1
            inner = parse()
            parts.append((times * sum(size for size, _ in inner), inner))
        else:
            parts.append((1, text[at]))
        at += 1
    return parts

parts = parse()
index = sum(size for size, _ in parts) // 2
while True:
    for size, inner in parts:
        if index < size:
            break
        index -= size
    if isinstance(inner, str):
        return ord(inner) - ord("a") + 1
    index %= sum(size for size, _ in inner)
    parts = inner
"""
    else:
        code = f"""
stack = []
total = times = 0
for c in text:
    if c.isdigit():
        times = times * 10 + int(c)
    elif c == "[":
        stack.append((total, times))
        total = times = 0
    elif c == "]":
        before, repeat = stack.pop()
        total = before + repeat * total
    else:
        total += {one}
return total
"""
    return Algorithm(
        kind="repetition",
        takes=(("text", "an encoded string, in which every pair of brackets contains at least one letter"),),
        intro="In an encoded string, `3[ab]` stands for `ababab`. Such parts can be nested and can stand next to "
        "letters: `2[a2[b]]c` stands for `abbabbc`. The decoded string consists of the letters a, b and c and may be "
        "far too long to be stored.",
        result=result,
        code=code,
        gives="natural",
        edges=(("a",), ("1[a]",), ("10[ab]c",), ("2[a2[b]]c",), ("abc2[c]",)),
        small=lambda rng: (sample(rng),),
        large=lambda rng: (large(rng),),
        choices={"goal": goal, "letter": letter},
    )


def bracket_repair(rng: Random) -> Algorithm:
    goal = rng.choice(("deletions", "longest", "unmatched", "cost"))
    p, q = rng.randint(1, 5), rng.randint(1, 5)
    result = {
        "deletions": "the smallest number of characters that must be deleted so that the rest is balanced",
        "longest": "the length of the longest balanced part of `text` without gaps (0 if there is none)",
        "unmatched": "the indices, counted from 0, of all brackets without a partner, in increasing order",
        "cost": f"the smallest total cost to turn `text` into a balanced string if inserting `(` costs {p} and "
        f"inserting `)` costs {q}, and nothing else is allowed",
    }[goal]
    last = {
        "deletions": "return len(opened) + len(closed)",
        "unmatched": "return sorted(opened + closed)",
        "cost": f"return {q} * len(opened) + {p} * len(closed)",
        "longest": """alone = [-1, *sorted(opened + closed), len(text)]
return max(b - a - 1 for a, b in zip(alone, alone[1:]))""",
    }[goal]
    return Algorithm(
        kind="bracket_repair",
        takes=(("text", "a string of the characters ( and )"),),
        intro="A string is balanced if every `(` has a partner `)` to its right, and every `)` has a partner `(` to "
        "its left, with the usual rules of nesting. The empty string is balanced.",
        result=result,
        code=f"""
opened, closed = [], []
for i, c in enumerate(text):
    if c == "(":
        opened.append(i)
    elif opened:
        opened.pop()
    else:
        closed.append(i)
{last}
""",
        gives="numbers" if goal == "unmatched" else "natural",
        edges=(("",), ("(",), (")",), (")(",), ("()()",), ("(()",), ("())",), ("()(()",)),
        small=lambda rng: (letters(rng, rng.randint(1, 9), "()"),),
        large=lambda rng: (letters(rng, rng.randint(300, 400), "()"),),
        choices={"goal": goal, "p": p, "q": q},
    )
