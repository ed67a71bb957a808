"""Runs that a cluster drives by itself: handed over, watched, cancelled, resumed."""
