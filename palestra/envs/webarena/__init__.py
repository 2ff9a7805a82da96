"""WebArena's tasks, on sites that the user runs."""
