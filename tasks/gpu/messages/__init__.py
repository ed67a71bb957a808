"""Whole propagations in one launch."""
