"""Counting models of clauses: depth-first, components apart and cached, compiled."""
