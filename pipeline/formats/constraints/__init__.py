"""Constraints of scheduling, packing, order and circuits, decomposed alike for XCSP3, FlatZinc and CPMpy."""
