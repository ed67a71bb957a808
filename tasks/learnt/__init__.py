"""Launches that were learnt on this machine: what they follow from, and how stored numbers are evaluated."""
