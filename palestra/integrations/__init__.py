"""Adapters for other frameworks. Each adapter requires the optional extra with the same name."""
