"""Functions that users call (load, plan, solve, marginals, bound, resume), with their queries and run directories."""
