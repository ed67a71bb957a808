"""Pure functions on tables: semirings and kernels."""
