"""Posteriors of cases that observe states, one at a time, over a junction tree of the variables that it leaves open.

Beside tables with an axis of cases (:mod:`.case_batches`), over one tree for all cases, a case takes far fewer cells:
observed variables are cut out, and do not join others any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.threads import share, split
from ..steps.number_limits import ordered_sum
from .observed_loops import FINE, IMPOSSIBLE, LEFT, CaseFunctions, CaseRoom, answer_cases
from .scaled import Scaled

Array = NDArray[Any]

# Into how many parts the cases are cut for each thread, so that none is at work for long while others have ended.
_PARTS = 8
# Axes of all cliques together, by variable, at most.
_AXES = 24


class ObservedCases:
    """Functions of a model, ready for cases of observed states.

    Parameters
    ----------
    dims : tuple of int
        States of each variable.
    layouts : sequence of tuple of int
        Variables of each function, in the order of its axes.
    leaves : mapping of int to Scaled
        The functions, in natural values.
    targets : sequence of tuple of int
        Requested sets of variables, each inside one function; their posteriors stand one after another in an answer.
    cells : int
        Most entries of a case's tables; cases that take more are left to be answered alone.
    """

    def __init__(
        self,
        dims: tuple[int, ...],
        layouts: Sequence[tuple[int, ...]],
        leaves: Mapping[int, Scaled],
        targets: Sequence[tuple[int, ...]],
        cells: int,
    ) -> None:
        """Lay the functions out as words and numbers that the compiled loops read.

        Parameters
        ----------
        dims : tuple of int
            Number of states of each variable.
        layouts : sequence of tuple of int
            Variables of each function, in the order of its axes.
        leaves : mapping of int to Scaled
            Table of each function.
        targets : sequence of int
            Variables whose posteriors are computed.
        cells : int
            Room for cliques and messages of one case, in numbers.
        """
        self.ends = [0, *accumulate(prod(dims[v] for v in target) for target in targets)]
        self.cells = cells
        tables = [leaves[leaf].values for leaf in range(len(layouts))]
        tops = [float(table.max()) for table in tables]
        # functions are scaled to a maximum of 1, so that products of many do not overflow
        scaled = [table / top if top > 0.0 else table for table, top in zip(tables, tops, strict=True)]
        self.possible = all(top > 0.0 for top in tops)
        self._log_scale = ordered_sum(leaves[leaf].log_scale for leaf in range(len(layouts)))
        self._log_scale += float(np.log([top for top in tops if top > 0.0]).sum())
        places = np.full(len(dims), -1, np.int64)
        placed = list(zip(targets, self.ends, strict=False))
        for (v,), place in [each for each in placed if len(each[0]) == 1]:
            places[v] = place
        joints = [each for each in placed if len(each[0]) > 1]
        self._words = [
            _words(dims),
            places,
            *_axes_of(layouts, dims),
            _words([0, *accumulate(table.size for table in tables)][:-1]),
            *_axes_of([target for target, _ in joints], dims),
            _words([place for _, place in joints]),
        ]
        self._numbers = [
            np.concatenate(scaled),
            np.array([np.min(table, where=table > 0.0, initial=np.inf) for table in scaled]),
        ]
        self._sizes = len(dims), len(layouts), len(joints)

    def answer(self, states: Array, threads: int) -> tuple[Array, Array, Array]:
        """Answer cases.

        Parameters
        ----------
        states : ndarray of int64, (cases, variables)
            -1 for a variable that is not observed, -2 for a state that preprocessing removed.
        threads : int

        Returns
        -------
        answers : ndarray, (cases, answer cells)
            Zeros where a case is impossible or left.
        totals : ndarray, (cases,)
            ln; -inf where a case is impossible.
        left : ndarray of bool, (cases,)
            Cases to be answered alone.
        """
        cases = len(states)
        answers, totals = np.zeros((cases, self.ends[-1])), np.zeros(cases)
        status = np.zeros(cases, np.int64)
        addresses = [array.ctypes.data for array in (*self._words, *self._numbers)]
        functions = CaseFunctions(*self._sizes, *addresses)
        out = answers.ctypes.data, self.ends[-1], totals.ctypes.data, status.ctypes.data
        waiting = iter(split(cases, _PARTS * threads))

        def work(_: int, _first: int, _stop: int) -> None:
            held, room = self._room()
            for first, stop in waiting:
                answer_cases(functions, room, states.ctypes.data, first, stop, *out)
            del held

        share(work, split(threads, threads))
        answers[status != FINE] = 0.0
        totals[status == IMPOSSIBLE] = -np.inf
        return answers, totals + self._log_scale, status == LEFT

    def _room(self) -> tuple[Any, CaseRoom]:
        """Return room for one thread, and the arrays that it lies in."""
        variables, functions, _ = self._sizes
        row = (variables + 63) >> 6
        lists = ["order", "position", "parent", "child", "sibling", "leaf", "clique", "message"]
        lists += ["found", "other", "size", "move", "indices", "strides"]
        sizes = dict.fromkeys(lists, variables) | {"starts": variables + 1, "after": functions}
        sizes |= {"near": row * variables, "axes": _AXES * variables}
        sizes |= dict.fromkeys(("weights", "joined", "low", "sent"), variables) | {"tables": self.cells}
        arrays = {name: np.empty(size, np.int64) for name, size in sizes.items()}
        arrays["strides"][:] = 0
        arrays["weights"].view(np.float64)[:] = np.log2(self._words[0])
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        return arrays, CaseRoom(**addresses, row=row, most_axes=_AXES * variables, cells=self.cells)


def _axes_of(scopes: Sequence[tuple[int, ...]], dims: Sequence[int]) -> list[Array]:
    """Return where the axes of each scope begin, their variables, and their strides."""
    return [
        _words([0, *accumulate(map(len, scopes))]),
        _words([v for axes in scopes for v in axes]),
        _words([prod(dims[v] for v in axes[k + 1 :]) for axes in scopes for k in range(len(axes))]),
    ]


def _words(values: Sequence[int]) -> Array:
    return np.array(values, np.int64)
