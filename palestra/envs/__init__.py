"""Environments, a folder a family; each has a catalog (data only) and a file per environment."""
