"""BabyAI: follow an instruction in a grid of rooms, simulated by minigrid."""
