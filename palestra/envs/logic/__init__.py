"""Logic tasks: decide whether statements follow from facts and rules."""
