"""Exact inference on discrete graphical models by bucket elimination."""
