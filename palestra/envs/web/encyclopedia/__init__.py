"""An encyclopedia of a generated world, with talk pages, revisions, a watchlist and preferences."""
