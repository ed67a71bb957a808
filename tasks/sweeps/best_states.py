"""The best joint state of a sum of tables, without its join: variable elimination as far as it is cheap.

Bucket elimination with value assignment (Dechter 1999 §3) of the variables that one step of a sweep eliminated,
once those above are fixed: the variable with the smallest join goes first; where all joins are large, the tables
are minimised as a whole down to some of their variables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiler.code_cache import compiler_pays
from ..cpu.dense import run
from ..gpu.arrays import on_host
from ..steps.lowering import lower
from ..steps.policy import SweepPolicy
from ..steps.semiring import Semiring
from ..steps.step import Step
from ..steps.views import TableSlice, slice_of

Array = NDArray[Any]

JOINT_STATES: Final = SweepPolicy().joint_states
"""Joint states on which plans are based, independent of the policy in force."""

JOINED_CELLS: Final = SweepPolicy().joined_cells
"""Cells of a table that is read as a whole, independent of the policy in force."""


class JointStates(NamedTuple):
    """Variables that are chosen together, and what each of their joint states is worth at best.

    Attributes
    ----------
    scope, sizes : tuple of int
        The variables, and states of each.
    worth : ndarray, flat in C order
        The least sum that each joint state leaves, less what is the same for all of them.
    """

    scope: tuple[int, ...]
    sizes: tuple[int, ...]
    worth: Array

    def states(self, code: int) -> dict[int, int]:
        """Return the joint state that is at a place."""
        states = {}
        for v, size in zip(reversed(self.scope), reversed(self.sizes), strict=True):
            code, states[v] = divmod(code, size)
        return states

    @property
    def best(self) -> dict[int, int]:
        """The joint state of the least worth, the first of equals."""
        return self.states(int(self.worth.argmin()))


def best_states(
    slices: Iterable[TableSlice], sizes: Sequence[int], semiring: Semiring, compiled: bool = True
) -> dict[int, int]:
    """Return a state of every variable of ``slices``, jointly of the least sum; see :func:`joint_choices`."""
    states: dict[int, int] = {}
    for choice in joint_choices(slices, sizes, semiring, states, compiled):
        states |= choice.best
    return states


def joint_choices(
    slices: Iterable[TableSlice],
    sizes: Sequence[int],
    semiring: Semiring,
    states: Mapping[int, int],
    compiled: bool = True,
    first: list[Array] | None = None,
) -> Iterator[JointStates]:
    """Yield the variables of ``slices`` in groups, with the values of their states, given all chosen states.

    Parameters
    ----------
    slices : iterable of Slice
        Slices of tables of the semiring's dtype, on the host or on a device.
    sizes : sequence of int
        Domain sizes, by variable.
    semiring : Semiring
        Min-plus.
    states : mapping of int to int
        Chosen states. The caller adds the states of a group before it requests the next group.
    compiled : bool
        Whether large tables may be swept by compiled kernels.
    first : list of ndarray, optional
        A cache for the values of the first group if its join is large. If the caller passes it again with the same
        slices, the join is not swept again.
    """
    left = [s for s in slices if s.scope]
    joins: list[TableSlice] = []
    known = iter(first or ())
    while left:
        left = _eliminated(_near(left), sizes, semiring, joins)
        chosen = _every(left)
        if few := _cells(chosen, sizes) <= SweepPolicy.current().joint_states:
            totals = _joined(left, chosen, sizes, semiring).reshape(-1)
        else:
            chosen = _last_axes(left, sizes)
            if (found := next(known, None)) is None:
                found = minimised(left, chosen, sizes, semiring, compiled)
                if first is not None and not first:
                    first.append(found)
            totals = found
        yield JointStates(chosen, tuple([sizes[v] for v in chosen]), totals)
        left = [] if few else [s for s in (s.fixed(states) for s in left) if s.scope]
    for join in reversed(joins):
        yield JointStates(join.scope[-1:], join.shape[-1:], join.fixed(states).view())


def joint_worth(
    step: Step, tables: Mapping[int, Any], sizes: Sequence[int], semiring: Semiring, states: Mapping[int, int]
) -> JointStates | None:
    """Return the worth of all states that a step eliminated, given some states; None if there are too many joint
    states.

    Most steps have dozens of tables of a few cells, so that what is done for each table is what takes time.

    Parameters
    ----------
    step : Step
        Min-plus.
    tables : mapping of int to array
        The step's inputs, flat and C-ordered; at an input on a device the function stops.
    sizes : sequence of int
        Domain sizes, by variable.
    states : mapping of int to int
        Variables that are fixed.

    Returns
    -------
    JointStates or None
        Of the other variables.
    """
    left = [v for v in dict.fromkeys(chain.from_iterable(step.input_axes)) if v not in states]
    if _cells(left, sizes) > SweepPolicy.current().joint_states:
        return None
    shape = [sizes[v] for v in left]
    total: Array = np.zeros(shape, semiring.dtype)
    places, size, dtype = {v: i for i, v in enumerate(left)}, total.itemsize, total.dtype
    most, zero, added = semiring.max_inputs - 1 if semiring.saturates else 0, dtype.type(semiring.zero), 0
    for node, axes in zip(step.inputs, step.input_axes, strict=True):
        table = tables[node]
        if type(table) is not np.ndarray:
            return None
        offset, stride, strides = 0, size, [0] * len(shape)
        for v in reversed(axes):
            n = sizes[v]
            if v in places:
                strides[places[v]] = stride
            elif n > 1:
                offset += states[v] * stride
            stride *= n
        if not any(strides):
            continue
        np.add(total, np.ndarray(shape, dtype, table, offset, strides), out=total)
        added += 1
        # saturating costs are clipped before they could overflow
        if added == most:
            np.minimum(total, zero, out=total)
            added = 0
    if added and most:
        np.minimum(total, zero, out=total)
    return JointStates(tuple(left), tuple(shape), total.reshape(-1))


def _near(slices: list[TableSlice]) -> list[TableSlice]:
    """Bring the small slices of device tables to the host, all at once."""
    most = SweepPolicy.current().joined_cells
    far = [s for s in slices if not s.here and s.cells <= most]
    if not far:
        return slices
    from ..gpu.gather import fetched

    return [s for s in slices if s.here or s.cells > most] + fetched(far)


def _eliminated(
    left: list[TableSlice], sizes: Sequence[int], semiring: Semiring, joins: list[TableSlice]
) -> list[TableSlice]:
    """Eliminate variables while more than a few joint states are left and a join is small; ``joins`` gets the joins.

    The variable of the smallest join goes first (min-weight order; Dechter 1999, section 3).

    Parameters
    ----------
    left : list of TableSlice
        All on the host, of the semiring's dtype.
    sizes : sequence of int
        Domain sizes, by variable.
    joins : list of TableSlice
        Each gets the eliminated variable as its last axis: read from the last to the first, they give its states.

    Returns
    -------
    list of TableSlice
        What is left; its variables have more than ``SweepPolicy.joint_states`` joint states only if every join that
        would eliminate one has more than ``SweepPolicy.joined_cells`` cells.
    """
    near: dict[int, set[int]] = {v: set() for v in _every(left)}
    policy = SweepPolicy.current()
    few = policy.joint_states
    if _cells(near, sizes) <= few:
        return left
    for s in left:
        for v in s.scope:
            near[v].update(s.scope)
    cells = {v: _cells(around, sizes) for v, around in near.items()}
    while _cells(near, sizes) > few:
        v = min(cells, key=cells.__getitem__)
        if cells[v] > policy.joined_cells:
            break
        around = near.pop(v) - {v}
        scope = (*around, v)
        bucket = [s for s in left if v in s.scope]
        # tables over the same variables are added first, so that the large join has fewer inputs
        if cells.pop(v) > few:
            bucket = _merged(bucket, sizes, semiring)
        join = _joined(bucket, scope, sizes, semiring)
        joins.append(slice_of(join, scope, sizes, {}))
        left = [s for s in left if v not in s.scope]
        if around:
            left.append(slice_of(join.min(axis=-1), scope[:-1], sizes, {}))
        for u in around:
            near[u] |= around
            near[u].discard(v)
            cells[u] = _cells(near[u], sizes)
    return left


def minimised(
    left: Sequence[TableSlice], chosen: tuple[int, ...], sizes: Sequence[int], semiring: Semiring, compiled: bool
) -> Array:
    """Return the least sum at each joint state of ``chosen``, flat."""
    tables = _merged(left, sizes, semiring)
    lowered = lower([s.scope for s in tables], chosen, dict(enumerate(sizes)), semiring.dtype, semiring)
    # a list reads the same step again and again
    compiled = compiled or compiler_pays(_cells(_every(tables), sizes))
    return on_host(run(lowered, [_contiguous(s) for s in tables], compiled=compiled))


def _last_axes(left: Iterable[TableSlice], sizes: Sequence[int]) -> tuple[int, ...]:
    """Choose the last axes of the largest table, along which it is swept fastest."""
    largest = max(left, key=lambda s: s.cells).scope
    start, most = len(largest) - 1, SweepPolicy.current().joint_states
    while start > 0 and _cells(largest[start - 1 :], sizes) <= most:
        start -= 1
    return largest[start:]


def _merged(left: Iterable[TableSlice], sizes: Sequence[int], semiring: Semiring) -> list[TableSlice]:
    """Join small tables into fewer: a large join is the slower the more inputs it has."""
    large: list[TableSlice] = []
    groups: list[tuple[set[int], list[TableSlice]]] = []
    most = SweepPolicy.current().joint_states
    for s in sorted(left, key=lambda s: -s.cells):
        if s.cells > most:
            large.append(s)
            continue
        for scope, members in groups:
            if _cells(scope.union(s.scope), sizes) <= most:
                scope.update(s.scope)
                members.append(s)
                break
        else:
            groups.append((set(s.scope), [s]))
    joined = ((_joined(members, tuple(scope), sizes, semiring), tuple(scope)) for scope, members in groups)
    return large + [slice_of(join, scope, sizes, {}) for join, scope in joined]


def _joined(slices: Iterable[TableSlice], scope: Sequence[int], sizes: Sequence[int], semiring: Semiring) -> Array:
    """Sum tables over the joint states of ``scope``, saturating like the sweep."""
    total: Array = np.zeros([sizes[v] for v in scope], dtype=semiring.dtype)
    places = {v: i for i, v in enumerate(scope)}
    for s in slices:
        np.add(total, s.spread(places, total.shape), out=total)
        if semiring.saturates:
            np.minimum(total, semiring.zero, out=total)
    return total


def _contiguous(s: TableSlice) -> Any:
    """Return the cells of a slice in C order, copied only where they lie apart."""
    if s.here:
        return np.ascontiguousarray(s.view())
    from ..gpu.gather import packed

    return packed(s)


def _every(slices: Iterable[TableSlice]) -> tuple[int, ...]:
    return tuple(dict.fromkeys([v for s in slices for v in s.scope]))


def _cells(scope: Collection[int], sizes: Sequence[int]) -> int:
    return prod([sizes[v] for v in scope])
