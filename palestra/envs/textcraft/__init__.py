"""TextCraft: craft Minecraft items from recipes."""
