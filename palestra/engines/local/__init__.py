"""The in-process engine: scheduler, KV cache, prefix cache and model runners."""
