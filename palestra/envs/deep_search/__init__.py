"""Deep search environments, in which the agent answers a question by searching and reading pages."""
