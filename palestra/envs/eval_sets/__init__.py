"""Standard evaluation sets."""
