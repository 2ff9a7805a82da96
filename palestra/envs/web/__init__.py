"""Web environments on real sites and applications, graded from answers, addresses, pages and databases."""
