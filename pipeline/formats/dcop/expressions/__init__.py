"""Expressions that costs are given by, in Python and in functional notation, evaluated without running any code."""
