"""Optima that are proved by bounds, alone or with workers, watched while they close."""
