"""BabyAI: instructions in a grid of rooms, on the package minigrid."""
