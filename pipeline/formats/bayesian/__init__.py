"""Formats of Bayesian networks: BIF, Hugin, and those in XML."""
