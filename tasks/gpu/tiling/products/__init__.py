"""Matrix-like launches: their tiles, their predicted time, and copies of their tables in another axis order. Pure."""
