"""The loops of a step, as values: fused axes, blocks for NumPy, nests of streaming steps, matrix-like steps. Pure."""
