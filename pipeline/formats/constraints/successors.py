"""Circuits: every node has a successor, and the nodes that are not their own successors form one circuit.

Up to a dozen nodes, a machine reads one successor after another. Its state is the first node of the path that ends in
each node whose successor is not read yet (Held and Karp, 1962, keep the same paths). Beyond, each node has a hidden
variable for its position in the circuit (Miller, Tucker and Zemlin, 1960), which the successors decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, factorial

import numpy as np

from ...models.model import FORBIDDEN
from ..flatzinc.flatzinc_functions import FlatZincFunctions
from ..flatzinc.flatzinc_syntax import Operand
from ..format_policy import FormatPolicy
from ..global_functions.machine import State
from ..text.tables import tuple_table
from ..xcsp3.xcsp3_machines import Condition
from .operand_machines import add_weighted_sum, read_operands, values_of

_CLOSED = "closed"


def add_circuit(
    functions: FlatZincFunctions,
    successors: Sequence[Operand],
    start: int,
    *,
    loops: bool,
    empty: bool = False,
    size: Operand | None = None,
) -> None:
    """Let successors form one circuit.

    Parameters
    ----------
    functions : FlatZincFunctions
    successors : sequence of operand
        The successor of each node.
    start : int
        The number of the first node.
    loops : bool
        Whether nodes may be their own successors, and are then not part of the circuit.
    empty : bool
        With loops, whether all nodes may be their own successors.
    size : operand, optional
        How many nodes are part of the circuit.

    Raises
    ------
    BudgetError
        If the tables of positions take too much memory.
    """
    count = len(successors)
    if size is not None:
        terms = [
            (each[0], [int(value != k) for value in functions.values[each[0]]])
            for k, each in enumerate(successors, start)
            if isinstance(each, tuple)
        ]
        constant = sum(each != k for k, each in enumerate(successors, start) if not isinstance(each, tuple))
        add_weighted_sum(functions, terms, constant, Condition("eq", size))
    if _paths(count) <= FormatPolicy.current().machine_states:
        _add_machine(functions, successors, start, loops, empty)
    else:
        _add_positions(functions, successors, start, loops, empty)


def _paths(count: int) -> int:
    """Return the most states that the machine has between two nodes."""
    ways = [
        sum(comb(count - k, j) * comb(k, j) * factorial(j) for j in range(min(k, count - k) + 1)) for k in range(count)
    ]
    return max(ways, default=1)


def _add_machine(
    functions: FlatZincFunctions, successors: Sequence[Operand], start: int, loops: bool, empty: bool
) -> None:
    count = len(successors)

    def step(heads: State, place: int, value: int) -> State | None:
        """Read the successor of a node; ``heads`` has the first node of the path to each node from there on."""
        to = value - start
        if heads == _CLOSED:
            return heads if to == place else None
        head, *behind = heads
        if to == place and (loops or count == 1):
            return tuple(behind) if head == place else None
        if to == head:  # the path becomes a circuit, and no other path may be begun
            alone = all(own == k for k, own in enumerate(behind, place + 1))
            return _CLOSED if alone and (loops or not behind) else None
        if to not in behind:
            return None
        behind[behind.index(to)] = head
        return tuple(behind)

    def end(heads: State) -> bool:
        return heads == _CLOSED or empty or (count == 1 and not loops)

    read_operands(functions, successors, tuple(range(count)), step, end)


def _add_positions(
    functions: FlatZincFunctions, successors: Sequence[Operand], start: int, loops: bool, empty: bool
) -> None:
    """Give the first node of the circuit position 1, each other node one more than its predecessor, and nodes outside
    position 0.

    Parameters
    ----------
    functions : FlatZincFunctions
    successors : sequence of operand
    start : int
        Number of the first node.
    loops : bool
        Whether a node may be its own successor, and so outside the circuit.
    empty : bool
        Whether the circuit may be empty.
    """
    count = len(successors)
    nodes = range(start, start + count)
    for k, each in zip(nodes, successors, strict=True):
        functions.relation([each], lambda to, k=k: (to >= nodes.start) & (to < nodes.stop) & (loops | (to != k)))
    functions.among_different(successors, frozenset())
    positions = [functions.hidden(range(count + 1)) for _ in nodes]
    first: Operand = start
    if loops:
        first = functions.hidden(nodes if not empty else range(start, start + count + 1))

        def step(found: int, place: int, value: int) -> int | None:
            if place == count:
                return found if value == found else None
            return start + place if found == nodes.stop and value != start + place else found

        read_operands(functions, [*successors, first], nodes.stop, step, lambda _: True)
    ends = np.indices((count + 1, count + 1)).reshape(2, -1).T
    # only an edge back to the first node breaks the count
    wrong = ends[(ends[:, 1] != ends[:, 0] + 1) & (ends[:, 1] != 1)]
    for k, x, position in zip(nodes, successors, positions, strict=True):
        functions.relation([x, position], lambda to, own, k=k: (to == k) == (own == 0))
        functions.relation([first, position], lambda one, own, k=k: (one == k) == (own == 1))
        for to in {*nodes}.intersection(values_of(functions, x)) - {k}:
            other = positions[to - start]
            if isinstance(x, tuple):
                state = functions.values[x[0]].index(to)
                rows = np.column_stack([np.full(len(wrong), state), wrong]).astype(np.int32)
                scope = [x[0], position[0], other[0]]
            else:
                rows, scope = wrong.astype(np.int32), [position[0], other[0]]
            functions.parts.add(tuple_table(scope, functions.parts.dims, rows, np.full(len(rows), FORBIDDEN), 0))
