"""Propagations that keep all messages and compute again only what new evidence changes."""
