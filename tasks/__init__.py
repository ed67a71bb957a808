"""Computing with tables: semirings, steps, kernels, sweeps, boxes."""
