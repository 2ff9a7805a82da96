"""BabyAI environments, in which the agent follows an instruction in a grid of rooms simulated by minigrid."""
