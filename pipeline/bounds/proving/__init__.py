"""Proving an optimum: the ways there are, the turns they have, and what is known so far."""
