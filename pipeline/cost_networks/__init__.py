"""Rules that make a network of integer costs smaller and keep an optimum, or only its totals."""
