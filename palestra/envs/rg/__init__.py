"""Environments for all datasets of the package reasoning-gym."""
