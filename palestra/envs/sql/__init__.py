"""Text-to-SQL environments, in which the agent answers a question about an SQLite database with a query."""
