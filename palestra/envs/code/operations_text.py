"""Operations on strings and on lists of words. Operations with a return statement can only end a program."""

from __future__ import annotations

from palestra.envs.code.operation import Operation, filter_by, map_to

OPERATIONS = (
    Operation("words", "words", "Keep only the words with at least {k} letters", filter_by("len(x) >= {k}"), 5),
    Operation("words", "words", "Remove the words that have more than {k} letters", filter_by("len(x) <= {k}"), 5),
    Operation(
        "words", "words", "Keep only the words that start with a vowel (a, e, i, o, u)", filter_by('x[0] in "aeiou"')
    ),
    Operation("words", "words", "Keep only the words that contain the letter {c}", filter_by('"{c}" in x')),
    Operation(
        "words", "words", "Remove the words in which a letter occurs more than once", filter_by("len(set(x)) == len(x)")
    ),
    Operation("words", "words", "Reverse the letters of every word", map_to("x[::-1]")),
    Operation("words", "words", "Truncate every word to its first {k} letters", map_to("x[:{k}]"), 4),
    Operation("words", "words", "Write every word twice, with nothing in between", map_to("x + x")),
    Operation("words", "words", "Sort the letters of every word alphabetically", map_to('"".join(sorted(x))')),
    Operation("words", "words", "Replace every letter {c} with the letter {d}", map_to('x.replace("{c}", "{d}")')),
    Operation(
        "words", "words", "Remove the words that contain both {c} and {d}", filter_by('not ("{c}" in x and "{d}" in x)')
    ),
    Operation("words", "words", "Keep only the words that come after {c} alphabetically", filter_by('x > "{c}"')),
    Operation(
        "words",
        "words",
        "Put the letter {c} at the end of every word that has fewer than {k} letters",
        map_to('x + "{c}" if len(x) < {k} else x'),
    ),
    Operation("words", "words", "Move the first letter of every word to its end", map_to("x[1:] + x[0]")),
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
    Operation("words", "words", "Keep every second word, starting with the first", ("value = value[::2]",)),
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
    Operation("text", "text", "Change all letters to uppercase", ("value = value.upper()",)),
    Operation("text", "text", "Change all letters to lowercase", ("value = value.lower()",)),
    Operation("text", "text", "Swap uppercase and lowercase letters", ("value = value.swapcase()",)),
    Operation("text", "text", "Reverse the string", ("value = value[::-1]",)),
    Operation("text", "text", "Remove all digits", ('value = "".join(c for c in value if not c.isdigit())',)),
    Operation(
        "text",
        "text",
        "Remove every lowercase {c} and every lowercase {d}",
        ('value = value.replace("{c}", "").replace("{d}", "")',),
    ),
    Operation("text", "text", "Replace every lowercase {c} with {d}", ('value = value.replace("{c}", "{d}")',)),
    Operation(
        "text",
        "text",
        "Put the letter {c} in front of every character that is a digit",
        ('value = "".join("{c}" + x if x.isdigit() else x for x in value)',),
    ),
    Operation("text", "text", "Prepend {c}{d} to the string", ('value = "{c}{d}" + value',)),
    Operation("text", "text", "Truncate the string to its first {k} characters", ("value = value[:{k}]",), 30),
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
        "Move the first {k} characters to the end (a string of {k} or fewer characters stays unchanged)",
        ("value = value[{k}:] + value[:{k}]",),
        4,
    ),
    Operation("text", "text", "Sort the characters by their character codes", ('value = "".join(sorted(value))',)),
    Operation("text", "text", "Append the reverse of the string to the string", ("value = value + value[::-1]",)),
    Operation(
        "text",
        "text",
        "Replace each run of equal characters with a single one",
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
        "Shift every lowercase letter {k} places forward in the alphabet, wrapping around from z to a",
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
    Operation("words", "words", "Return the resulting list", ("return value",)),
    Operation(
        "words", "text", "Return the words as one string, separated by single spaces", ('return " ".join(value)',)
    ),
    Operation("words", "number", "Return the number of words", ("return len(value)",)),
    Operation(
        "words",
        "number",
        "Return the total number of occurrences of the letter {c} in all words",
        ('return sum(x.count("{c}") for x in value)',),
    ),
    Operation(
        "words", "number", "Return the total number of letters of all words", ("return sum(len(x) for x in value)",)
    ),
    Operation(
        "words",
        "text",
        "Return the longest word (the first one if there is a tie), or an empty string if there are no words",
        ('return max(value, key=len) if value else ""',),
    ),
    Operation(
        "words",
        "text",
        "Return the word that comes first alphabetically, or an empty string if there are no words",
        ('return min(value) if value else ""',),
    ),
    Operation(
        "words", "text", "Return the first letters of all words as one string", ('return "".join(x[0] for x in value)',)
    ),
    Operation(
        "words",
        "number",
        "Return the number of words that are palindromes",
        ("return sum(1 for x in value if x == x[::-1])",),
    ),
    Operation("text", "text", "Return the resulting string", ("return value",)),
    Operation("text", "number", "Return its length", ("return len(value)",)),
    Operation(
        "text",
        "number",
        "Return the number of characters before its first lowercase {c}, or -1 if there is none",
        ('return value.find("{c}")',),
    ),
    Operation("text", "number", "Return the number of distinct characters", ("return len(set(value))",)),
    Operation(
        "text",
        "number",
        "Return the number of vowels in it (a, e, i, o, u in either case)",
        ('return sum(1 for c in value if c in "aeiouAEIOU")',),
    ),
    Operation(
        "text",
        "number",
        "Return the sum of all digits in it, each taken as a single-digit number (0 if there are none)",
        ("return sum(int(c) for c in value if c.isdigit())",),
    ),
    Operation(
        "text",
        "text",
        "Return the run-length encoding of the string: for each run of equal characters, the character followed by the "
        "length of the run",
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
)
