"""Deep search: a question, a collection of pages, and a budget of searches."""
