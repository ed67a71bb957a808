"""Which two of several functions are added up first: those whose variables are fewest together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: Of more functions only the smallest are looked at.
_MOST = 12


class Spaces:
    """How many rows a set of variables has, by powers of two; sets are integers with a bit a variable."""

    def __init__(self, sizes: Sequence[int]) -> None:
        of_size: dict[int, int] = {}
        for v, d in enumerate(sizes):
            of_size[int(d)] = of_size.get(int(d), 0) | 1 << v
        self._classes = [(math.log2(d), members) for d, members in of_size.items()]

    def rows(self, variables: int) -> float:
        """Return log2 of how many rows the variables have."""
        return sum(weight * (variables & members).bit_count() for weight, members in self._classes)

    def closest(self, scopes: Sequence[int]) -> tuple[int, int]:
        """Return the two whose union has the fewest rows, the earliest of several; scopes by ascending size."""
        few = range(min(len(scopes), _MOST))
        _, b, a = min((self.rows(scopes[a] | scopes[b]), b, a) for b in few for a in range(b))
        return a, b


def as_bits(variables: Iterable[int]) -> int:
    """Return a set of variables as an integer with a bit each."""
    return sum(1 << int(v) for v in variables)
