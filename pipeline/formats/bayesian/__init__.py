"""Formats of Bayesian networks, and what their readers share."""
