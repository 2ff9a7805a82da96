"""Environments for all datasets in the reasoning-gym package."""
