"""Worker processes of vectors, rollouts and the environment server: executor, wire format, replay log."""
