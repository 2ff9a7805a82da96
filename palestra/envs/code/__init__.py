"""Programming tasks, graded by hidden tests."""
