"""What single-question environments share: the episode, the data behind it."""
