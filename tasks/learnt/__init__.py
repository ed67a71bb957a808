"""Launches that were learnt on this machine: their features, and how stored numbers are evaluated."""
