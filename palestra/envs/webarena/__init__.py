"""WebArena's tasks, on the sites that the user runs."""
