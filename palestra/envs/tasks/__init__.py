"""Base classes and data loading of single-question environments."""
