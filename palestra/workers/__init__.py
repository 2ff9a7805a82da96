"""Worker processes shared by vectors and the environment server: executors, wire format, env runners, replay logs."""
