"""Measured success rates of the expert and the random player on every data set and level of reasoning-gym (data only).

Each data set has one pair of rates for its default settings and one for each level of its curriculum. A dash marks a
level that is not available, because the package rejects its settings or (for jugs) takes minutes to generate an item.
An expert rate below 1 means that the scorer accepts no answer to some items, such as jugs that cannot be filled as
requested or an integral that the package left unsolved.
"""

from __future__ import annotations

# Success rates as expert/random, first with the default settings and then for levels 0, 1, 2, ...
_TABLE = {
    "ab": "1/0 1/0 1/0 1/0 1/0",
    "acre": "1/0.31",
    "advanced_geometry": "1/0 1/0 1/0 1/0 1/0",
    "aiw": "1/0.17 1/0.3 1/0.17 1/0.17 1/0.1 1/0.1 1/0.07 1/0.11 1/0.11 1/0.11",
    "arc_1d": "1/0 1/0 1/0 1/0 1/0",
    "arc_agi": "1/0 1/0 1/0 1/0 1/0",
    "base_conversion": "1/0 1/0 1/0 1/0 1/0 1/0",
    "basic_arithmetic": "1/0 1/0.03 1/0.01 1/0 1/0 1/0",
    "bf": "1/0 1/0 1/0.04 1/0",
    "binary_alternation": "1/0.14 1/0.1 1/0.06 1/0.07 1/0.07",
    "binary_matrix": "1/0 1/0 1/0 1/0 1/0",
    "bitwise_arithmetic": "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0",
    "boxnet": "1/0 1/0.13 1/0.03 1/0.01 1/0.01 1/0 1/0 1/0 1/0 1/0",
    "caesar_cipher": "1/0.01 1/0.01 1/0.02 - -",
    "calendar_arithmetic": "1/0.04 1/0.16 1/0.09 1/0.06 1/0.04",
    "chain_sum": "1/0.01 1/0.06 1/0.01 1/0.01 1/0.01 1/0.01 1/0 1/0 1/0 1/0 1/0 1/0",
    "circuit_logic": "1/0.52 1/0.53 1/0.51 1/0.48 1/0.45 1/0.43",
    "codeio": "1/0 1/0 1/0 1/0 0.98/0",
    "coin_flip": "1/0.03 1/0.22 1/0.17 1/0.12 1/0.05 1/0.05 1/0.03 1/0.05 1/0.02 1/0.02 1/0.02 1/0.01 1/0.01 1/0.03",
    "color_cube_rotation": "1/0.07 1/0.05 1/0.09 1/0.05 1/0.06 1/0.06",
    "complex_arithmetic": "1/0 1/0.01 1/0 1/0 1/0",
    "count_bits": "1/0.07 1/0.19 1/0.07 1/0.12 1/0.11 1/0.11",
    "count_primes": "1/0 1/0.02 1/0 1/0 1/0 1/0",
    "countdown": "1/0 1/0 1/0 1/0 1/0 1/0",
    "course_schedule": "1/0.51 1/0.51 1/0.44 1/0.39 1/0.43 1/0.43",
    "cryptarithm": "1/0 1/0 1/0 1/0 1/0",
    "decimal_arithmetic": "1/0 1/0 1/0 1/0 1/0",
    "decimal_chain_sum": "1/0 1/0 1/0 1/0 1/0 1/0",
    "dice": "1/0 1/0 1/0 1/0 1/0",
    "emoji_mystery": "1/0 1/0 1/0.01 1/0 1/0 1/0 1/0",
    "family_relationships": "1/0.12 1/0.18 1/0.13 1/0.13 1/0.19 1/0.16 1/0.14 1/0.15 1/0.11 1/0.11",
    "figlet_font": "1/0 1/0 1/0 1/0 1/0 1/0 1/0",
    "fraction_simplification": "1/0 1/0 1/0 1/0 1/0",
    "futoshiki": "1/0 1/0 1/0 1/0 1/0",
    "game_of_life": "1/0.02 1/0 1/1 1/1 1/1",
    "game_of_life_halting": "1/0.48 1/0.45 1/0.52 1/0.48 1/0.48",
    "gcd": "1/0.2 1/0.16 1/0.21 1/0.17 1/0.29",
    "graph_color": "1/0.06 1/0.12 1/0.09 1/0.08 1/0.08",
    "group_anagrams": "1/0 1/0 1/0 1/0 1/0",
    "gsm_symbolic": "0.995/0",
    "intermediate_integration": "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0",
    "isomorphic_strings": "1/0.49 1/0.51 1/0.48 1/0.51 1/0.57",
    "jugs": "1/0.01 1/0.08 0.83/0 0.67/0 -",
    "kakurasu": "1/0 1/0 1/0 1/0 1/0",
    "knight_swap": "1/0 - - - - -",
    "knights_knaves": "1/0 1/0 1/0 1/0 1/0",
    "largest_island": "1/0.11 1/0.35 1/0.05 1/0.04 1/0.01",
    "lcm": "1/0.01 1/0 1/0 1/0 1/0",
    "leg_counting": (
        "1/0 1/0.05 1/0.02 1/0 1/0.01 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 "
        "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0"
    ),
    "letter_counting": "1/0.28 1/0.45 1/0.2 1/0.24 1/0.27 1/0.28 1/0.29 1/0.2 1/0.27",
    "letter_jumble": "1/0 1/0 1/0 1/0 1/0 1/0",
    "list_functions": "1/0.03",
    "mahjong_puzzle": "1/0.33 1/0.33 1/0.29 1/0.28 1/0.33",
    "manipulate_matrix": "1/0 1/0 1/0 1/0 1/0 1/0",
    "maze": "1/0.21 1/0.15 1/0.11 1/0.09 1/0.09",
    "mini_sudoku": "1/0 1/0 1/0 1/0 1/0 1/0",
    "modulo_grid": "1/0 1/0.11 - 1/0.03 1/0.02 1/0.01 1/0",
    "n_queens": "1/0.03 1/0.64 1/0.33 1/0.15 1/0 1/0",
    "needle_haystack": "1/0 1/0 1/0 1/0 1/0",
    "number_filtering": "1/0 1/0 1/0 1/0 1/0",
    "number_format": "1/0 1/0 1/0 1/0 1/0",
    "number_sequence": "1/0.02 1/0.01 1/0.04 1/0 1/0",
    "number_sorting": "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0",
    "palindrome_generation": "1/0 1/0 1/0 1/0 1/0",
    "palindrome_partitioning": "1/0 1/0 1/0 1/0 1/0",
    "path_star": "1/0 1/0 1/0 1/0 1/0",
    "polynomial_equations": "1/0.03 1/0.22 1/0.09 1/0.04 1/0.17",
    "polynomial_multiplication": "1/0 1/0 1/0 1/0 1/0",
    "pool_matrix": "1/0 1/0 1/0 1/0 1/0",
    "power_function": "1/0.01 1/0 1/0 1/0 1/0 1/0",
    "prime_factorization": "1/0 1/0 1/0 1/0 1/0",
    "products": "1/0 1/0.13 1/0.01 1/0.01 1/0 1/0.01 1/0.01 1/0 1/0 1/0 1/0 1/0",
    "propositional_logic": "0.98/0.55 1/0.91 0.99/0.46 0.99/0.41 0.99/0.35 1/0.5",
    "puzzle24": "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0",
    "quantum_lock": "1/0.01 1/0.01 1/0.01 1/0.01 1/0.01 1/0.01 1/0.01 1/0.01 1/0.01 1/0.02 1/0.02",
    "ransom_note": "1/0.47 1/0.45 1/0.44 1/0.47 1/0.42",
    "rearc": "1/0.02 1/0.03 1/0 1/0 1/0 1/0 1/0 1/0",
    "rectangle_count": "1/0.05 1/0.2 1/0.1 1/0.08 1/0.06 1/0.05",
    "rotate_matrix": "1/0 1/0 1/0 1/0 1/0 1/0",
    "rotten_oranges": "1/0.12 1/0.11 1/0.11 1/0.29 1/0.59",
    "rubiks_cube": "1/0 1/0 1/0 1/0 1/0 -",
    "rush_hour": "1/0 1/0 1/0 1/0 1/0",
    "self_reference": "1/0.25 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22 1/0.22",
    "sentence_reordering": "1/0.01 1/0.02 1/0 1/0 1/0",
    "shortest_path": "1/0.04 1/0.16 1/0.31 1/0.31 1/0.61",
    "simple_equations": "1/0.01 1/0.02 1/0 1/0 1/0",
    "simple_geometry": "1/0 1/0 1/0 1/0.01 1/0.01",
    "simple_integration": "1/0 1/0 1/0 1/0 1/0",
    "sokoban": "1/0 1/0 1/0.04 1/0.02 1/0 1/0 1/0 1/0 1/0.04 1/0 1/0 1/0 1/0 1/0 1/0",
    "spell_backward": "1/0 1/0 1/0 1/0 1/0 1/0",
    "spiral_matrix": "1/0 1/0 1/0 1/0 1/0",
    "string_insertion": "1/0 1/0 1/0 1/0 1/0",
    "string_manipulation": "1/0 1/0 1/0 1/0 1/0 1/0",
    "string_splitting": "1/0.01 1/0 1/0 1/0 1/0",
    "string_synthesis": "1/0 1/0 1/0 1/0 1/0",
    "sudoku": "1/0 1/0 1/0 1/0 1/0 1/0",
    "survo": "1/0 1/0 1/0 - -",
    "syllogism": "1/0.68 1/0.96 1/0.72 1/0.69 1/0.72",
    "time_intervals": "1/0 1/0.04 1/0.01 1/0 1/0 1/0 1/0 1/0",
    "tower_of_hanoi": "1/0.01 1/0.21 1/0.03 1/0 0.88/0",
    "tsumego": "1/0.01 1/0.03 1/0.03 1/0 1/0.02",
    "word_ladder": "1/0 1/0 1/0 1/0",
    "word_sequence_reversal": "1/0 1/0 1/0 1/0 1/0",
    "word_sorting": "1/0 1/0 1/0 1/0 1/0 1/0",
    "zebra_puzzles": "1/0.17 1/0.46 1/0.38 1/0.17 1/0.17 1/0.17 1/0",
}


def _parse(pair: str) -> tuple[float, float] | None:
    if pair == "-":
        return None
    expert, random = pair.split("/")
    return float(expert), float(random)


RATES: dict[str, tuple[tuple[float, float] | None, ...]] = {
    name: tuple(_parse(pair) for pair in line.split()) for name, line in _TABLE.items()
}
