"""Bounds on optima, and exact optima where bounds leave little to search."""
