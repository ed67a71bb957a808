"""Ways to prove an optimum or a bound, one module for each."""
