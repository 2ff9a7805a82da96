"""Logic: decide whether statements follow from rules."""
