"""Local search for good assignments: annealing, and neighbourhoods that are solved exactly, in compiled loops."""
