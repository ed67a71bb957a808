"""Formats of linear and pseudo-Boolean problems, and of problems that toulbar2 has formats of its own for."""
