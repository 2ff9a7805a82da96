"""A shop: search, look, choose options, buy what was asked for."""
