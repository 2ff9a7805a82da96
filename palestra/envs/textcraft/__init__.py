"""TextCraft: craft an item of Minecraft from its recipes."""
