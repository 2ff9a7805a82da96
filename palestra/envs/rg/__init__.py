"""Environments for every data set of the package reasoning-gym."""
