"""MiniWoB++ environments: short tasks on generated web pages, played in a real browser."""
