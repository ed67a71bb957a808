"""Bricks of a join: their shapes, where their slices lie in shared memory, which inputs are joined before. Pure."""
