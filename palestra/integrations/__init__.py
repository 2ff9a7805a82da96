"""Adapters that make Palestra environments available in other frameworks, each with an optional extra of its name."""
