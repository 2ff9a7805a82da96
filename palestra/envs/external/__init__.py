"""Adapters that turn environments of other libraries into Palestra environments, with one file per library."""
