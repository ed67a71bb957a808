"""What users call (load, plan, solve, marginals, bound, resume), their questions and run directories."""
