"""Bounds by parts of a network that are optimised apart: subtrees of an order's bucket tree, cut where it is narrow."""
