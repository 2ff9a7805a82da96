"""Programs to write, judged by hidden tests."""
