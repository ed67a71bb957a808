"""Compiled loops over networks of integer costs, for bounds on optima."""
