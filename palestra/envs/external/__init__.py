"""Wrappers that turn environments of other libraries into Palestra environments; one file per library."""
