"""Environments, one package per family: a data-only catalog and one file per environment."""
