"""Adapters that turn environments from other libraries into Palestra environments, with one file per library."""
