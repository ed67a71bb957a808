"""Launches of kernels: which kernel a pass takes, and its arguments."""
