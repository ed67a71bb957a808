"""Circuits as arrays of gates: how they are stored, evaluated, and made from the trace of a search.

A circuit is smooth, deterministic and decomposable (Darwiche and Marquis, JAIR 2002; Darwiche, JACM 2003).
"""
