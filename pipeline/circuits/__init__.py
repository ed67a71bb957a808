"""Circuits: sums of products written out once, a node for each cell that is not zero, to be evaluated again and again.

A circuit is smooth, deterministic and decomposable (Darwiche and Marquis, JAIR 2002; Darwiche, JACM 2003). It comes
from the buckets that a sweep would go through, with numbers of nodes in place of values, or from the trace of a search.
"""
