"""Matrix-like launches: their tiles, what they take, and copies of their tables in another order. Pure."""
