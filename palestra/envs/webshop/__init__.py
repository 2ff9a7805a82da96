"""WebShop environments, in which the agent searches a shop and buys the product that an instruction describes."""
