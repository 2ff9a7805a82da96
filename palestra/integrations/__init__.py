"""Palestra's environments in other frameworks; one file or package per framework, each with an extra of its name."""
