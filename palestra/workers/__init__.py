"""Worker processes that run environments for vectors, rollouts and the environment server."""
