"""Statements to prove or to refute from rules."""
