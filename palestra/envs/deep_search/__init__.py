"""Deep search: answer a question by searching and reading pages within a budget of searches."""
