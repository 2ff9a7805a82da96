"""Worker processes shared by vectors, rollouts and the environment server: executor, wire format, replay."""
