"""Adapters to other frameworks, a file each; each needs the extra of its own name."""
