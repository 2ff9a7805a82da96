"""Operations on numbers and on lists of numbers. Operations with a return statement can only end a program."""

from __future__ import annotations

from palestra.envs.code.operation import Operation, filter_by, map_to

OPERATIONS = (
    Operation("numbers", "numbers", "Keep only the even numbers", filter_by("x % 2 == 0")),
    Operation("numbers", "numbers", "Keep only the odd numbers", filter_by("x % 2 == 1")),
    Operation("numbers", "numbers", "Keep only the numbers greater than {k}", filter_by("x > {k}")),
    Operation("numbers", "numbers", "Keep only the numbers less than or equal to {k}", filter_by("x <= {k}"), 20),
    Operation("numbers", "numbers", "Remove every number that is divisible by {k}", filter_by("x % {k} != 0"), 5),
    Operation("numbers", "numbers", "Remove all negative numbers", filter_by("x >= 0")),
    Operation("numbers", "numbers", "Multiply every number by {k}", map_to("x * {k}"), 30),
    Operation("numbers", "numbers", "Add {k} to every number", map_to("x + {k}"), 50),
    Operation("numbers", "numbers", "Subtract {k} from every number", map_to("x - {k}"), 50),
    Operation("numbers", "numbers", "Replace every number with its square", map_to("x * x")),
    Operation("numbers", "numbers", "Replace every number with its absolute value", map_to("abs(x)")),
    Operation(
        "numbers",
        "numbers",
        "Replace every number with its remainder when divided by {k} (at least 0 and less than {k})",
        map_to("x % {k}"),
    ),
    Operation("numbers", "numbers", "Halve every number, rounding down", map_to("x // 2")),
    Operation(
        "numbers",
        "numbers",
        "Double every negative number and leave the others unchanged",
        map_to("x * 2 if x < 0 else x"),
    ),
    Operation("numbers", "numbers", "Change the sign of every odd number", map_to("-x if x % 2 == 1 else x")),
    Operation("numbers", "numbers", "Replace every number greater than {k} with {k}", map_to("min(x, {k})"), 20),
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
        "Keep every second element, starting with the first",
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
        "Replace the list with its running totals (the sum of all elements up to and including each position)",
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
        "Replace the list with the differences of adjacent elements (each element except the first, minus the previous "
        "one)",
        ("value = [value[i] - value[i - 1] for i in range(1, len(value))]",),
    ),
    Operation(
        "numbers",
        "numbers",
        "Replace every element with the sum of itself and the next element; the last element stays unchanged",
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
        "Move the first {k} elements to the end, in the same order (if there are {k} or fewer, change nothing)",
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
        "(a last element without a partner stays in place)",
        (
            "swapped = value[:]",
            "for i in range(0, len(value) - 1, 2):",
            "    swapped[i] = value[i + 1]",
            "    swapped[i + 1] = value[i]",
            "value = swapped",
        ),
    ),
    Operation("number", "number", "Multiply it by {k}", ("value = value * {k}",), 99),
    Operation("number", "number", "Add {k} to it", ("value = value + {k}",), 999),
    Operation("number", "number", "Divide it by {k} and round down", ("value = value // {k}",), 40),
    Operation(
        "number",
        "number",
        "Replace it with the sum of its decimal digits",
        ("value = sum(int(digit) for digit in str(value))",),
    ),
    Operation(
        "number",
        "number",
        "Reverse the order of its decimal digits (drop leading zeros)",
        ("value = int(str(value)[::-1])",),
    ),
    Operation(
        "number",
        "number",
        "Replace it with the sum of the squares of its decimal digits",
        ("value = sum(int(digit) ** 2 for digit in str(value))",),
    ),
    Operation(
        "number",
        "number",
        "If it is even, halve it; otherwise multiply it by 3 and add {k}",
        ("if value % 2 == 0:", "    value = value // 2", "else:", "    value = value * 3 + {k}"),
        99,
    ),
    Operation("number", "number", "Replace it with its remainder when divided by {k}", ("value = value % {k}",), 999),
    Operation(
        "number",
        "number",
        "Sort its decimal digits in increasing order and read them as a number",
        ('value = int("".join(sorted(str(value))))',),
    ),
    Operation(
        "number",
        "number",
        "Add to it the number formed by its decimal digits in reverse order",
        ("value = value + int(str(value)[::-1])",),
    ),
    Operation("numbers", "number", "Return the sum of the numbers (0 for an empty list)", ("return sum(value)",)),
    Operation("numbers", "number", "Return the number of elements", ("return len(value)",)),
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
    Operation("numbers", "number", "Return the number of distinct elements", ("return len(set(value))",)),
    Operation(
        "numbers",
        "number",
        "Return the number of elements greater than {k}",
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
        "Return the length of the longest run of consecutive elements in which each is greater than the previous one "
        "(0 for an empty list)",
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
        "Return the numbers as a string, in this order, separated by commas without spaces",
        ('return ",".join(str(x) for x in value)',),
    ),
    Operation("number", "number", "Return the result", ("return value",)),
    Operation(
        "number", "text", "Return the result in binary, as a string without a prefix", ('return format(value, "b")',)
    ),
    Operation("number", "number", "Return the number of decimal digits of the result", ("return len(str(value))",)),
    Operation(
        "number",
        "number",
        "Divide the result by 1000 and return the number of positive divisors of the remainder, or 0 if the remainder "
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
