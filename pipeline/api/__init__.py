"""What users call: load, plan, solve, marginals, resume, and how a question becomes a run."""
