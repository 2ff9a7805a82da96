"""Databases with randomly generated schemas, and questions that are composed from them."""
