"""Environments of other libraries as Palestra environments; one file per library."""
