"""vLLM servers as the policy engine: `VLLMEngine` starts them, updates their weights and checks every update."""
