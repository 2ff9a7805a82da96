"""TextCraft environments, in which the agent crafts Minecraft items from recipes."""
