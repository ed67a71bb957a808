"""Depth-first branch and bound on cost functions, in compiled loops."""
