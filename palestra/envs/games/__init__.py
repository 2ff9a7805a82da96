"""Multi-turn text games, each with an expert and a random player."""
