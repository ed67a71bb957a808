"""Figures from plain numbers, for pages and notebooks; they need bokeh."""
