"""Worker processes that run environments for vector environments, rollouts and the environment server."""
