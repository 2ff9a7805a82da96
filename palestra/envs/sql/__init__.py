"""Text to SQL: answer a question about an SQLite database with a query."""
