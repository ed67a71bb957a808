"""Sweeps over tables: programs of steps, and the algebras that run them."""
