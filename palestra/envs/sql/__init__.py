"""Questions over SQLite databases: explore, query, hand in one query as the answer."""
