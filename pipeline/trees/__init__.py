"""Contraction trees, the layouts of their tables, and what they cost. Pure."""
