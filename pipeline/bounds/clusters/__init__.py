"""Clusters of variables that have to agree: bounds where short cycles make those of single variables weak."""
