"""WebShop: search a shop, choose options, and buy the product that an instruction describes."""
