"""Environments for all data sets of the package reasoning-gym."""
