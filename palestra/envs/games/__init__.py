"""Language games: short rules, many turns, an expert each."""
