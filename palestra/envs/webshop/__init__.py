"""WebShop: search a shop, choose options, and buy the product an instruction describes."""
