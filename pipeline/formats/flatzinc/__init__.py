"""FlatZinc, which MiniZinc compiles its models to: syntax, constraints, and the model that they make."""
