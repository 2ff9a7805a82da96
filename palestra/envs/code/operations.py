"""The grammar of small programs: operations that turn one kind of value into another, in English and in Python.

Python lines work on the variable `value`. In both, `{k}` stands for a number that is drawn, from 2 up, `{c}` and
`{d}` for two different letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Operation:
    takes: str
    gives: str
    say: str  # an imperative sentence without its full stop
    code: tuple[str, ...]
    most: int = 9  # the largest {k}


@dataclass(frozen=True, slots=True)
class Drawn:
    gives: str
    say: str
    code: tuple[str, ...]


def drawn(rng: Random, takes: str, *, ending: bool = False, signed: bool = False) -> Drawn:
    """An operation for a value of this kind; an `ending` returns, the others keep the kind.

    `signed`: a number may be negative, so that its digits say nothing.
    """
    fitting = (_ENDINGS if ending else _STEPS)[takes]
    if signed:
        fitting = [operation for operation in fitting if "str(value)" not in " ".join(operation.code)]
    operation = rng.choice(fitting)
    k = str(rng.randint(2, operation.most))
    c, d = rng.sample("aabcdeeghiilmnooprstu", 2)
    if c == d:
        d = "x"

    def filled(text: str) -> str:
        return text.replace("{k}", k).replace("{c}", c).replace("{d}", d)

    return Drawn(operation.gives, filled(operation.say), tuple(map(filled, operation.code)))


def _filter(test: str) -> tuple[str, ...]:
    return (f"value = [x for x in value if {test}]",)


def _map(expression: str) -> tuple[str, ...]:
    return (f"value = [{expression} for x in value]",)


_OPERATIONS = (
    # lists of numbers -> lists of numbers
    Operation("numbers", "numbers", "Keep only the even numbers", _filter("x % 2 == 0")),
    Operation("numbers", "numbers", "Keep only the odd numbers", _filter("x % 2 == 1")),
    Operation("numbers", "numbers", "Keep only the numbers greater than {k}", _filter("x > {k}")),
    Operation("numbers", "numbers", "Keep only the numbers less than or equal to {k}", _filter("x <= {k}"), 20),
    Operation("numbers", "numbers", "Remove every number that is divisible by {k}", _filter("x % {k} != 0"), 5),
    Operation("numbers", "numbers", "Remove all negative numbers", _filter("x >= 0")),
    Operation("numbers", "numbers", "Multiply every number by {k}", _map("x * {k}"), 30),
    Operation("numbers", "numbers", "Add {k} to every number", _map("x + {k}"), 50),
    Operation("numbers", "numbers", "Subtract {k} from every number", _map("x - {k}"), 50),
    Operation("numbers", "numbers", "Replace every number by its square", _map("x * x")),
    Operation("numbers", "numbers", "Replace every number by its absolute value", _map("abs(x)")),
    Operation(
        "numbers", "numbers", "Replace every number by its remainder when divided by {k} (from 0 up)", _map("x % {k}")
    ),
    Operation("numbers", "numbers", "Replace every number by its half, rounded down", _map("x // 2")),
    Operation(
        "numbers",
        "numbers",
        "Double every negative number and leave the others as they are",
        _map("x * 2 if x < 0 else x"),
    ),
    Operation("numbers", "numbers", "Change the sign of every odd number", _map("-x if x % 2 == 1 else x")),
    Operation("numbers", "numbers", "Replace every number greater than {k} by {k}", _map("min(x, {k})"), 20),
    Operation("numbers", "numbers", "Sort the numbers in increasing order", ("value = sorted(value)",)),
    Operation("numbers", "numbers", "Sort the numbers in decreasing order", ("value = sorted(value, reverse=True)",)),
    Operation("numbers", "numbers", "Reverse the order of the list", ("value = value[::-1]",)),
    Operation(
        "numbers", "numbers", "Keep only the first {k} elements, or all if there are fewer", ("value = value[:{k}]",)
    ),
    Operation(
        "numbers", "numbers", "Drop the first {k} elements, or all if there are fewer", ("value = value[{k}:]",), 3
    ),
    Operation(
        "numbers",
        "numbers",
        "Keep every second element, beginning with the first",
        ("value = value[::2]",),
    ),
    Operation(
        "numbers",
        "numbers",
        "Remove duplicates: keep the first occurrence of each number, in the original order",
        (
            "kept = []",
            "for x in value:",
            "    if x not in kept:",
            "        kept.append(x)",
            "value = kept",
        ),
    ),
    Operation(
        "numbers",
        "numbers",
        "Replace the list by its running totals (the sum of all elements up to and including each position)",
        (
            "total = 0",
            "sums = []",
            "for x in value:",
            "    total += x",
            "    sums.append(total)",
            "value = sums",
        ),
    ),
    Operation(
        "numbers",
        "numbers",
        "Replace the list by the differences of neighbours (each element but the first, minus the one before it)",
        ("value = [value[i] - value[i - 1] for i in range(1, len(value))]",),
    ),
    Operation(
        "numbers",
        "numbers",
        "Replace every element by the sum of itself and the element after it; the last element stays as it is",
        (
            "sums = []",
            "for i in range(len(value)):",
            "    if i + 1 < len(value):",
            "        sums.append(value[i] + value[i + 1])",
            "    else:",
            "        sums.append(value[i])",
            "value = sums",
        ),
    ),
    Operation(
        "numbers",
        "numbers",
        "Multiply every element by its position, counted from 1",
        ("value = [(i + 1) * x for i, x in enumerate(value)]",),
    ),
    Operation(
        "numbers",
        "numbers",
        "Move the first {k} elements to the end, in the same order (nothing changes if there are not more than {k})",
        ("if len(value) > {k}:", "    value = value[{k}:] + value[:{k}]"),
        3,
    ),
    Operation(
        "numbers",
        "numbers",
        "Keep only the elements that are greater than all elements before them (the first one always stays)",
        (
            "kept = []",
            "for x in value:",
            "    if not kept or x > kept[-1]:",
            "        kept.append(x)",
            "value = kept",
        ),
    ),
    Operation(
        "numbers",
        "numbers",
        "Swap the elements of each pair: the first with the second, the third with the fourth, and so on "
        "(a last one without a partner stays)",
        (
            "swapped = value[:]",
            "for i in range(0, len(value) - 1, 2):",
            "    swapped[i] = value[i + 1]",
            "    swapped[i + 1] = value[i]",
            "value = swapped",
        ),
    ),
    # words -> words
    Operation("words", "words", "Keep only the words with at least {k} letters", _filter("len(x) >= {k}"), 5),
    Operation("words", "words", "Remove the words that have more than {k} letters", _filter("len(x) <= {k}"), 5),
    Operation(
        "words", "words", "Keep only the words that begin with a vowel (a, e, i, o, u)", _filter('x[0] in "aeiou"')
    ),
    Operation("words", "words", "Keep only the words that contain the letter {c}", _filter('"{c}" in x')),
    Operation("words", "words", "Remove the words in which some letter occurs twice", _filter("len(set(x)) == len(x)")),
    Operation("words", "words", "Reverse the letters of every word", _map("x[::-1]")),
    Operation("words", "words", "Cut every word after its first {k} letters", _map("x[:{k}]"), 4),
    Operation("words", "words", "Write every word twice, with nothing in between", _map("x + x")),
    Operation("words", "words", "Sort the letters of every word alphabetically", _map('"".join(sorted(x))')),
    Operation("words", "words", "Replace every letter {c} by the letter {d}", _map('x.replace("{c}", "{d}")')),
    Operation(
        "words", "words", "Remove the words that contain both {c} and {d}", _filter('not ("{c}" in x and "{d}" in x)')
    ),
    Operation("words", "words", "Keep only the words that come after {c} alphabetically", _filter('x > "{c}"')),
    Operation(
        "words",
        "words",
        "Put the letter {c} at the end of every word that has fewer than {k} letters",
        _map('x + "{c}" if len(x) < {k} else x'),
    ),
    Operation("words", "words", "Move the first letter of every word to its end", _map("x[1:] + x[0]")),
    Operation("words", "words", "Sort the words alphabetically", ("value = sorted(value)",)),
    Operation(
        "words",
        "words",
        "Sort the words by length, the shortest first; words of the same length keep their order",
        ("value = sorted(value, key=len)",),
    ),
    Operation("words", "words", "Reverse the order of the words", ("value = value[::-1]",)),
    Operation(
        "words", "words", "Keep only the first {k} words, or all if there are fewer", ("value = value[:{k}]",), 6
    ),
    Operation("words", "words", "Keep every second word, beginning with the first", ("value = value[::2]",)),
    Operation(
        "words",
        "words",
        "Remove duplicates: keep the first occurrence of each word, in the original order",
        (
            "kept = []",
            "for x in value:",
            "    if x not in kept:",
            "        kept.append(x)",
            "value = kept",
        ),
    ),
    # text -> text
    Operation("text", "text", "Change all letters to upper case", ("value = value.upper()",)),
    Operation("text", "text", "Change all letters to lower case", ("value = value.lower()",)),
    Operation("text", "text", "Swap upper case and lower case", ("value = value.swapcase()",)),
    Operation("text", "text", "Reverse the string", ("value = value[::-1]",)),
    Operation("text", "text", "Remove all digits", ('value = "".join(c for c in value if not c.isdigit())',)),
    Operation(
        "text",
        "text",
        "Remove every {c} and every {d} (in lower case)",
        ('value = value.replace("{c}", "").replace("{d}", "")',),
    ),
    Operation("text", "text", "Replace every {c} (in lower case) by {d}", ('value = value.replace("{c}", "{d}")',)),
    Operation(
        "text",
        "text",
        "Put the letter {c} in front of every character that is a digit",
        ('value = "".join("{c}" + x if x.isdigit() else x for x in value)',),
    ),
    Operation("text", "text", "Put {c}{d} at the beginning", ('value = "{c}{d}" + value',)),
    Operation("text", "text", "Cut the string after its first {k} characters", ("value = value[:{k}]",), 30),
    Operation("text", "text", "Remove all spaces", ('value = value.replace(" ", "")',)),
    Operation(
        "text",
        "text",
        "Remove all vowels (a, e, i, o, u in either case)",
        ('value = "".join(c for c in value if c not in "aeiouAEIOU")',),
    ),
    Operation(
        "text", "text", "Remove everything that is not a letter", ('value = "".join(c for c in value if c.isalpha())',)
    ),
    Operation("text", "text", "Write every character twice", ('value = "".join(c + c for c in value)',)),
    Operation(
        "text",
        "text",
        "Keep only the characters at positions that are multiples of {k}, counted from 0",
        ("value = value[::{k}]",),
        4,
    ),
    Operation(
        "text",
        "text",
        "Move the first {k} characters to the end (they change nothing in a shorter string)",
        ("value = value[{k}:] + value[:{k}]",),
        4,
    ),
    Operation("text", "text", "Sort the characters by their character codes", ('value = "".join(sorted(value))',)),
    Operation("text", "text", "Append the reverse of the string to the string", ("value = value + value[::-1]",)),
    Operation(
        "text",
        "text",
        "Replace each run of one and the same character by a single one",
        (
            'kept = ""',
            "for c in value:",
            "    if not kept or kept[-1] != c:",
            "        kept += c",
            "value = kept",
        ),
    ),
    Operation(
        "text",
        "text",
        "Move every lower-case letter {k} places on in the alphabet, from z on to a again",
        (
            'moved = ""',
            "for c in value:",
            '    if "a" <= c <= "z":',
            '        moved += chr((ord(c) - ord("a") + {k}) % 26 + ord("a"))',
            "    else:",
            "        moved += c",
            "value = moved",
        ),
        20,
    ),
    # numbers (one) -> numbers (one)
    Operation("number", "number", "Multiply it by {k}", ("value = value * {k}",), 99),
    Operation("number", "number", "Add {k} to it", ("value = value + {k}",), 999),
    Operation("number", "number", "Divide it by {k} and round down", ("value = value // {k}",), 40),
    Operation(
        "number",
        "number",
        "Replace it by the sum of its decimal digits",
        ("value = sum(int(digit) for digit in str(value))",),
    ),
    Operation(
        "number",
        "number",
        "Reverse the order of its decimal digits (leading zeros vanish)",
        ("value = int(str(value)[::-1])",),
    ),
    Operation(
        "number",
        "number",
        "Replace it by the sum of the squares of its decimal digits",
        ("value = sum(int(digit) ** 2 for digit in str(value))",),
    ),
    Operation(
        "number",
        "number",
        "If it is even, halve it; otherwise multiply it by 3 and add {k}",
        ("if value % 2 == 0:", "    value = value // 2", "else:", "    value = value * 3 + {k}"),
        99,
    ),
    Operation("number", "number", "Replace it by its remainder when divided by {k}", ("value = value % {k}",), 999),
    Operation(
        "number",
        "number",
        "Sort its decimal digits in increasing order and read them as a number",
        ('value = int("".join(sorted(str(value))))',),
    ),
    Operation(
        "number",
        "number",
        "Add the number to itself with its decimal digits reversed",
        ("value = value + int(str(value)[::-1])",),
    ),
    # endings
    Operation("numbers", "number", "Return the sum of the numbers (0 for an empty list)", ("return sum(value)",)),
    Operation("numbers", "number", "Return how many numbers there are", ("return len(value)",)),
    Operation(
        "numbers",
        "number",
        "Return the largest number, or -1 if the list is empty",
        ("return max(value) if value else -1",),
    ),
    Operation(
        "numbers",
        "number",
        "Return the smallest number, or -1 if the list is empty",
        ("return min(value) if value else -1",),
    ),
    Operation(
        "numbers",
        "number",
        "Return the difference between the largest and the smallest number (0 for an empty list)",
        ("return max(value) - min(value) if value else 0",),
    ),
    Operation("numbers", "number", "Return how many different numbers there are", ("return len(set(value))",)),
    Operation(
        "numbers",
        "number",
        "Return how many of the numbers are greater than {k}",
        ("return sum(1 for x in value if x > {k})",),
    ),
    Operation(
        "numbers", "number", "Return the last number, or 0 if the list is empty", ("return value[-1] if value else 0",)
    ),
    Operation(
        "numbers",
        "number",
        "Return the sum with alternating signs: the first number, minus the second, plus the third, and so on "
        "(0 for an empty list)",
        (
            "total = 0",
            "for i, x in enumerate(value):",
            "    if i % 2 == 0:",
            "        total += x",
            "    else:",
            "        total -= x",
            "return total",
        ),
    ),
    Operation(
        "numbers",
        "number",
        "Return the length of the longest stretch of neighbouring elements in which each is greater than the one "
        "before "
        "it (0 for an empty list)",
        (
            "best = run = 0",
            "for i, x in enumerate(value):",
            "    if i > 0 and x > value[i - 1]:",
            "        run += 1",
            "    else:",
            "        run = 1",
            "    best = max(best, run)",
            "return best",
        ),
    ),
    Operation("numbers", "numbers", "Return the resulting list", ("return value",)),
    Operation(
        "numbers",
        "text",
        "Return the numbers as a string, in this order, with commas and no spaces between them",
        ('return ",".join(str(x) for x in value)',),
    ),
    Operation("words", "words", "Return the resulting list", ("return value",)),
    Operation(
        "words", "text", "Return the words as one string, with single spaces between them", ('return " ".join(value)',)
    ),
    Operation("words", "number", "Return how many words there are", ("return len(value)",)),
    Operation(
        "words",
        "number",
        "Return how often the letter {c} occurs in the words together",
        ('return sum(x.count("{c}") for x in value)',),
    ),
    Operation(
        "words", "number", "Return how many letters the words have together", ("return sum(len(x) for x in value)",)
    ),
    Operation(
        "words",
        "text",
        "Return the longest word, the first of them if several are equally long, or an empty string if there is none",
        ('return max(value, key=len) if value else ""',),
    ),
    Operation(
        "words",
        "text",
        "Return the word that comes first alphabetically, or an empty string if there is none",
        ('return min(value) if value else ""',),
    ),
    Operation(
        "words", "text", "Return the string of the first letters of all words", ('return "".join(x[0] for x in value)',)
    ),
    Operation(
        "words",
        "number",
        "Return how many of the words read the same backwards",
        ("return sum(1 for x in value if x == x[::-1])",),
    ),
    Operation("text", "text", "Return the resulting string", ("return value",)),
    Operation("text", "number", "Return its length", ("return len(value)",)),
    Operation(
        "text",
        "number",
        "Return how many characters it has before its first {c} (in lower case), or -1 if there is none",
        ('return value.find("{c}")',),
    ),
    Operation("text", "number", "Return how many different characters it has", ("return len(set(value))",)),
    Operation(
        "text",
        "number",
        "Return how many of its characters are vowels (a, e, i, o, u in either case)",
        ('return sum(1 for c in value if c in "aeiouAEIOU")',),
    ),
    Operation(
        "text",
        "number",
        "Return the sum of all digits in it, each taken alone (0 if there is none)",
        ("return sum(int(c) for c in value if c.isdigit())",),
    ),
    Operation(
        "text",
        "text",
        "Return the run-length code of the string: for each run of one and the same character, the character and then "
        "the length of the run",
        (
            'code = ""',
            "i = 0",
            "while i < len(value):",
            "    j = i",
            "    while j < len(value) and value[j] == value[i]:",
            "        j += 1",
            "    code += value[i] + str(j - i)",
            "    i = j",
            "return code",
        ),
    ),
    Operation("number", "number", "Return the result", ("return value",)),
    Operation(
        "number", "text", "Return the result in binary, as a string without a prefix", ('return format(value, "b")',)
    ),
    Operation("number", "number", "Return how many decimal digits the result has", ("return len(str(value))",)),
    Operation(
        "number",
        "number",
        "Return how many positive divisors the remainder of the result when divided by 1000 has, or 0 if the remainder "
        "is 0",
        (
            "rest = value % 1000",
            "count = 0",
            "for d in range(1, rest + 1):",
            "    if rest % d == 0:",
            "        count += 1",
            "return count",
        ),
    ),
)


def _by_kind(*, ending: bool) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for operation in _OPERATIONS:
        if operation.say.startswith("Return") == ending:
            found.setdefault(operation.takes, []).append(operation)
    return found


_STEPS, _ENDINGS = _by_kind(ending=False), _by_kind(ending=True)
KINDS = tuple(_STEPS)
