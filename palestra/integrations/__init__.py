"""Adapters to other frameworks. Each adapter requires the optional extra of the same name."""
