"""Sweeps by rows whose tables do not fit memory: on disk, step by step and box by box."""
