"""Kernels for NumPy and compiled loops."""
