"""Random distributed problems, as the literature has them."""
