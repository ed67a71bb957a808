"""The loops over a network of costs, by whatever is quicker: compiled, or in NumPy while there is little to do."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from ..compiler.code_cache import Patience
from ..compiler.compile_limits import compiled_or
from . import dead_ends
from .flat import Costs, Flags, Flat, Integers, NetworkPolicy
from .srmp_numpy import Level, decode, forbid_tuples, level_numbers, levels_of, shift_back, sweep

# Seconds of NumPy for a level of a sweep, for a cell, for a variable, and for a value of a table.
_LEVEL_SECONDS: Final = 8e-5
_VARIABLE_SECONDS: Final = 2e-5
_EDGE_SECONDS: Final = 3e-5
# Tables with more cells, counted once an axis, are not taken apart in NumPy.
_LARGEST_CELLS: Final = 1 << 21
# Sweeps until the bound stalls: seldom fewer.
_LIKELY_SWEEPS: Final = 300

_PATIENCE = Patience("tasks.networks.srmp", "sweep", compiling=6.0)


def remove_dominated(flat: Flat, pending: Flags, most_work: int) -> tuple[int, int, int, int]:
    """Remove values without support and values that are never better; see :func:`.dead_end_loops.remove_dominated`."""
    work = int(np.diff(flat.cells)[flat.function] @ flat.dims[flat.scope])
    policy = NetworkPolicy.current()
    if _PATIENCE.ends(_EDGE_SECONDS * len(flat.scope) + policy.cell_seconds * work):
        from . import dead_end_loops

        found: tuple[int, int, int, int] = compiled_or(
            lambda: dead_end_loops.remove_dominated(flat, pending, most_work),
            lambda: dead_ends.remove_dominated(flat, pending, most_work),
        )
        return found
    return dead_ends.remove_dominated(flat, pending, most_work)


class Loops:
    """Sweeps over the functions of one structure, for any costs.

    Parameters
    ----------
    flat : Flat
    order, ends, shift : NDArray
        See :func:`.srmp.sweep`.
    """

    def __init__(self, flat: Flat, order: Integers, ends: Flags, shift: Integers) -> None:
        self._flat, self._order, self._ends, self._shift = flat, order, ends, shift
        self._cells = int(np.diff(flat.cells) @ np.diff(flat.edges))

    @cached_property
    def _numbers(self) -> Integers:
        return level_numbers(self._flat, self._order)

    @cached_property
    def _levels(self) -> tuple[Level, ...]:
        return levels_of(self._flat, self._numbers, self._ends, self._shift)

    def _compiled(self, rounds: int) -> bool:
        """Whether rounds over all levels had better be compiled."""
        policy = NetworkPolicy.current()
        if self._cells > _LARGEST_CELLS:
            return _PATIENCE.ends(np.inf)
        levels = int(self._numbers.max(initial=0))
        of_round = _LEVEL_SECONDS * levels + policy.cell_seconds * self._cells
        return _PATIENCE.ends(rounds * of_round, _LIKELY_SWEEPS * of_round)

    def sweep(
        self, flat: Flat, shifts: Costs, grain: float, constant: float, limit: float, count: int
    ) -> tuple[float, int, int]:
        """See :func:`.srmp.sweep`."""
        if not self._compiled(count):
            return sweep(flat, self._levels, shifts, grain, constant, limit, count)
        from . import srmp

        limits = float(grain), float(constant), float(limit), count  # of one type, so that the loop is compiled once
        found: tuple[float, int, int] = compiled_or(
            lambda: srmp.sweep(flat, self._order, self._ends, shifts, self._shift, *limits),
            lambda: sweep(flat, self._levels, shifts, *limits),
        )
        return found

    def forbid_tuples(self, flat: Flat, room: float) -> int:
        """See :func:`.srmp.forbid_tuples`."""
        if not self._compiled(1):
            return forbid_tuples(flat, self._levels, room)
        from . import srmp

        found: int = compiled_or(
            lambda: srmp.forbid_tuples(flat, room), lambda: forbid_tuples(flat, self._levels, room)
        )
        return found

    def shift_back(self, flat: Flat, shifts: Costs) -> None:
        """See :func:`.srmp.shift_back`."""
        if not self._compiled(1):
            shift_back(flat, self._levels, shifts)
            return
        from . import srmp

        compiled_or(lambda: srmp.shift_back(flat, shifts, self._shift), lambda: shift_back(flat, self._levels, shifts))

    def decode(self, flat: Flat, order: Integers, states: Integers) -> None:
        """See :func:`.srmp.decode`."""
        edges = len(flat.scope) if (states < 0).any() else 0
        if not _PATIENCE.ends(_VARIABLE_SECONDS * (len(states) + edges)):
            decode(flat, order, states)
            return
        from . import srmp

        compiled_or(lambda: srmp.decode(flat, np.ascontiguousarray(order), states), lambda: decode(flat, order, states))
