"""A shop with a dashboard for its staff: products, reviews, orders, customers and coupons."""
