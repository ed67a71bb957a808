"""Answers as values, and the files they are written to."""
