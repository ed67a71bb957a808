"""Sums and counts without a sweep: models as clauses, and products of factors on decision diagrams."""
