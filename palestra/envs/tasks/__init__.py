"""Base classes and data loading for environments with a single question."""
