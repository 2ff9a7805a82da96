"""Multi-turn RL in the gym's environments."""
