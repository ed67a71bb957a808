"""Decomposition of functions: the file's own variables, hidden variables, and small functions over both.

A cost network nested in another one, with a total between two bounds, is decomposed in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import field
from itertools import accumulate, combinations, count, islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import CELL_BYTES
from ...errors import BudgetError
from ...models.function import FORBIDDEN, DeferredFunction, Function, dense_function, greatest_costs, least_costs
from ...models.model import Model
from ..format_policy import OBJECT_BYTES, FormatPolicy
from ..text.source import Allowance
from ..text.tables import tuple_table
from .machine import Layers, Machine, State, TooManyStatesError, layers_of, sizes_of


class GlobalFunctionError(Exception):
    """A global cost function that contradicts itself: the expected and the found property."""

    def __init__(self, expected: str, found: str):
        super().__init__(expected, found)
        self.expected: str = expected
        self.found: str = found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


@dataclass
class Decomposition:
    """The functions of a model that is being read.

    Parameters
    ----------
    dims : list of int
        Domain sizes of the model's own variables, and of the hidden ones behind them.
    limit : int
        Costs of at least this are forbidden.
    allowance : Allowance
        Counts memory.
    """

    dims: list[int]
    limit: int
    allowance: Allowance
    functions: list[Function] = field(default_factory=list)
    what: object = ""
    """The global cost function that is decomposed; messages show it as a text."""
    _equal: dict[tuple[int, int, int], Function] = field(default_factory=dict)
    _built: dict[Hashable, tuple[tuple[int, ...], range, list[Function]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own: int = len(self.dims)

    @property
    def hidden(self) -> int:
        """How many hidden variables there are."""
        return len(self.dims) - self.own

    def names(self, own: Sequence[str]) -> tuple[str, ...]:
        """Return the names of all variables; the names of hidden variables differ from all own names."""
        taken = {*own}
        unused = (name for name in (f"hidden{n}" for n in count()) if name not in taken)
        return (*own, *islice(unused, self.hidden))

    def model(self, own: Sequence[str], states: Sequence[tuple[str, ...] | None], **facts: Any) -> Model:
        """Return all functions as a cost network.

        Parameters
        ----------
        own : sequence of str
            Names of the variables that are not hidden.
        states : sequence
            Their labels. Hidden variables have none.
        **facts
            The other fields of the model, such as ``name`` and ``maximize``.
        """
        names, states = self.names(own), (*states, *[None] * self.hidden)
        return Model("cost", names, tuple(self.dims), states, tuple(self.functions), hidden=self.hidden, **facts)

    def variable(self, size: int) -> int:
        """Add a hidden variable and return its index; the functions that follow must tell its state."""
        self.allowance.take(size + OBJECT_BYTES, "hidden variables of global cost functions")
        self.dims.append(size)
        return len(self.dims) - 1

    def add(self, function: Function) -> None:
        """Add a function."""
        self.allowance.take(OBJECT_BYTES + function.values.nbytes, "functions of global cost functions")
        self.functions.append(function)

    def defer(self, scope: tuple[int, int], table: Callable[[], NDArray[np.int64]]) -> None:
        """Add a function of two variables whose table is built when it is first read; its memory is counted now."""
        x, y = scope
        cells = self.dims[x] * self.dims[y]
        if x == y:
            self.allowance.take(0, "a function of two variables", for_now=CELL_BYTES * cells)
            self.add(dense_function(scope, table()))
        else:
            self.allowance.take(OBJECT_BYTES + CELL_BYTES * cells, "functions of global cost functions")
            self.functions.append(DeferredFunction.of(scope, table))

    def again(self, function: Function, scope: tuple[int, ...]) -> None:
        """Add a function that was added before, over another scope of the same domain sizes; they share a table."""
        self.allowance.take(OBJECT_BYTES, "functions of global cost functions")
        self.functions.append(function.over(scope))

    def once(self, scope: tuple[int, ...], key: Hashable, build: Callable[[], None]) -> None:
        """Add what a function over different variables becomes, with the tables of an equal function before it.

        Parameters
        ----------
        scope : tuple of int
        key : hashable
            Equal for equal functions over domains of equal sizes.
        build : callable
            Adds functions of the scope and of new hidden variables.
        """
        key = key, tuple([self.dims[v] for v in scope])
        if key not in self._built:
            before, first_hidden = len(self.functions), len(self.dims)
            build()
            self._built[key] = scope, range(first_hidden, len(self.dims)), self.functions[before:]
            return
        own, hidden, functions = self._built[key]
        renamed = dict(zip(own, scope, strict=True)) | {v: self.variable(self.dims[v]) for v in hidden}
        for function in functions:
            self.again(function, tuple([renamed[v] for v in function.scope]))

    def forbid(self) -> None:
        """Forbid all assignments."""
        self.add(Function((), np.array(FORBIDDEN)))

    def table(self, scope: Sequence[int], costs: NDArray[np.int64]) -> None:
        """Add a function from its dense costs, with one axis for each variable of the scope.

        Costs of ``limit`` or more are forbidden.
        """
        self.add(dense_function(scope, np.where(costs >= self.limit, FORBIDDEN, costs)))

    def unequal(self, scope: Sequence[int], cost: int) -> None:
        """Charge a cost for every two variables of one state."""
        self._take_pairs(len(scope))
        for x, y in combinations(scope, 2):
            key = self.dims[x], self.dims[y], cost
            if x == y or key not in self._equal:
                self.table((x, y), np.where(np.eye(*key[:2], dtype=bool), cost, 0))
                if x != y:
                    self._equal[key] = self.functions[-1]
            else:
                self.functions.append(self._equal[key].changed(scope=(x, y)))

    def machine(self, scope: Sequence[int], machine: Machine) -> None:
        """Add what a machine charges for the states of a scope: a table where that is small, or a chain.

        Raises
        ------
        BudgetError
            If the machine has too many states.
        """
        try:
            self.layers(scope, self.minimal(scope, machine))
        except TooManyStatesError as error:
            raise BudgetError(
                f"{self.allowance.path}: {self.what} over {len(scope)} variables needs {error}, which are not made; "
                "give it as several functions of fewer variables"
            ) from None

    def _take_pairs(self, count: int) -> None:
        """Count the memory of functions over all pairs of ``count`` variables."""
        self.allowance.take(OBJECT_BYTES * count * (count - 1) // 2, f"functions of every two of {count} variables")

    def exclusive(self, scope: Sequence[int], sets: Sequence[Collection[int]]) -> None:
        """Forbid that two variables of a scope have states of their sets."""
        self._take_pairs(len(scope))
        for (x, first), (y, second) in combinations(zip(scope, sets, strict=True), 2):
            inside = [[s in own for s in range(self.dims[v])] for v, own in ((x, first), (y, second))]
            self.table((x, y), np.where(np.multiply.outer(*map(np.array, inside)), FORBIDDEN, 0))

    def minimal(self, scope: Sequence[int], machine: Machine, most: int | None = None) -> Layers:
        """Return the minimal deterministic machine over a scope with the same costs and at most ``most`` states.

        Raises
        ------
        TooManyStatesError
            If it has too many states.
        """
        sizes = [self.dims[v] for v in scope] or [1]
        if not scope:
            machine = Machine(machine.starts, lambda state, *_: ((state, 0),), machine.end)
        try:
            return layers_of(machine, sizes, self.limit, most)
        except OverflowError as error:
            raise GlobalFunctionError("costs of at most 18 digits", str(error)) from None

    def layers(self, scope: Sequence[int], layers: Layers) -> None:
        """Add a deterministic machine over a scope: a table where that is small, or a chain."""
        sizes = [self.dims[v] for v in scope]
        if layers.allows_nothing:
            self.forbid()
        elif not scope:
            self.add(Function((), layers.costs[0].reshape(-1)[0]))
        elif prod(sizes) <= FormatPolicy.current().global_table_cells:
            self.table(scope, layers.table(sizes))
        else:
            for function in self._chain(scope, layers):
                self.add(function)

    def _chain(self, scope: Sequence[int], layers: Layers) -> Iterator[Function]:
        """Yield a function for each reading, between the hidden states before and behind it."""
        before: int | None = None
        sizes = [*sizes_of(layers), 1]
        for variable, to, costs, size in zip(scope, layers.to, layers.costs, sizes, strict=True):
            behind = self.variable(size) if size > 1 else None
            states, values = np.nonzero(to >= 0)
            columns = [states] if before is not None else []
            columns += [values, *([to[states, values]] if behind is not None else [])]
            ends = [v for v in (before,) if v is not None], [v for v in (behind,) if v is not None]
            rows = np.stack(columns, axis=1)
            yield self._listed((*ends[0], variable, *ends[1]), rows, costs[states, values])
            before = behind

    def _listed(self, scope: tuple[int, ...], rows: NDArray[np.int64], costs: NDArray[np.int64]) -> Function:
        """Return a function that forbids what it does not list."""
        return tuple_table(scope, self.dims, rows.astype(np.int32), costs, FORBIDDEN)


COMPARATORS = ("==", "!=", "<", "<=", ">", ">=")


def priced(metric: str, cost: int, gap: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function from a number to the cost of its gap."""
    if metric == "hard":
        return lambda number: cost if gap(number) else 0
    if metric == "quad":
        return lambda number: cost * gap(number) ** 2
    return lambda number: cost * gap(number)


def gap_beyond(low: int, high: int) -> Callable[[int], int]:
    """Return how far a number is outside two bounds."""
    return lambda number: max(0, low - number, number - high)


def gap_of(comparator: str) -> Callable[[int], int]:
    """Return a function from a difference (left side minus right side) to its gap under a comparator.

    Raises
    ------
    GlobalFunctionError
        If it is none.
    """
    gaps: dict[str, Callable[[int], int]] = {
        "==": abs,
        "!=": lambda difference: int(difference == 0),
        "<": lambda difference: max(0, difference + 1),
        "<=": lambda difference: max(0, difference),
        ">": lambda difference: max(0, 1 - difference),
        ">=": lambda difference: max(0, -difference),
    }
    if comparator not in gaps:
        raise GlobalFunctionError(f"a comparator {', '.join(COMPARATORS)}", repr(comparator))
    return gaps[comparator]


@dataclass(frozen=True)
class NestedNetwork:
    """A network over the variables of a scope, in that order.

    Parameters
    ----------
    dims : tuple of int
    functions : tuple of Function
        In stored costs.
    top : int or None
        Totals of at least this are forbidden.
    low, high : int
        A total is at least ``low`` and less than ``high``.
    """

    dims: tuple[int, ...]
    functions: tuple[Function, ...]
    top: int | None
    low: int
    high: int


def add_nested(parts: Decomposition, scope: tuple[int, ...], nested: NestedNetwork, only_optimum: int) -> None:
    """Forbid what the nested network forbids, or where its total is not within the bounds.

    A state is the total of the functions that were read whole, and the states of variables that others still need.

    Raises
    ------
    GlobalFunctionError
        If the network is not over the scope, or only its optimum is meant.
    """
    dims = tuple(parts.dims[v] for v in scope)
    if nested.dims != dims:
        raise GlobalFunctionError(f"a nested network over domains {dims}", f"domains {nested.dims}")
    if only_optimum:
        raise GlobalFunctionError("a nested network without strong duality", "strongduality 1, which is not read")
    parts.machine(scope, _machine(nested))


def _machine(nested: NestedNetwork) -> Machine:
    """Build the machine that reads the variables of a nested network in order and adds up its costs.

    Parameters
    ----------
    nested : NestedNetwork
        A cost network whose total must lie within bounds.
    """
    functions, size = nested.functions, len(nested.dims)
    ends = [max(f.scope, default=0) for f in functions]
    reads = [[k for k, end in enumerate(ends) if end == place] for place in range(size)]
    needed = [
        sorted({v for k, end in enumerate(ends) if end > place for v in functions[k].scope if v <= place})
        for place in range(size)
    ]
    limits = [FORBIDDEN] * len(functions)
    low_rest, high_rest = (
        _rests([[costs[k] for k in own] for own in reads])
        for costs in (least_costs(functions), greatest_costs(functions, limits, least_costs(functions)))
    )
    high = nested.high if nested.top is None else min(nested.high, nested.top)

    def step(state: tuple[int, tuple[int, ...]], place: int, value: int) -> State | None:
        total, kept = state
        states = dict(zip(needed[place - 1] if place else (), kept, strict=True))
        states[place] = value
        for k in reads[place]:
            cost = int(functions[k].at([states[v] for v in functions[k].scope]))
            if cost >= FORBIDDEN:
                return None
            total += cost
        # a state from which the bounds cannot be met is dropped
        if total + low_rest[place] >= high or total + high_rest[place] < nested.low:
            return None
        return total, tuple([states[v] for v in needed[place]])

    return Machine.counting((0, ()), step, lambda _: 0, work=1 + len(functions))


def _rests(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each place what all functions behind it cost together."""
    return [*accumulate(map(sum, reversed(costs)), initial=0)][::-1][1:]
