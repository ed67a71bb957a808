"""A network of functions as clauses: impossible values are excluded, and each different weight has its own literal.

Direct encoding of states, clauses of a cover of each function's zeros; weights as by Sang, Beame & Kautz (Performing
Bayesian inference by weighted model counting, AAAI 2005), one literal for entries of equal weight that form a cube.
`simplified` fixes forced variables and merges equal literals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.counting.count_state import Clauses, clauses_of, decided_first
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from ..models.model import Model
from ..orders.min_fill import min_fill_order
from ..preprocessing.consistency import allowed
from ..preprocessing.leaf_rows import ListedCells, is_listed, rows_left
from ..preprocessing.leaf_tables import restricted
from ..preprocessing.preprocess import Network
from ..preprocessing.preprocessing_policy import PreprocessingPolicy


@dataclass(frozen=True)
class QueryPolicy(Policy):
    """Sizes up to which a question takes another way than a sweep.

    Parameters
    ----------
    inspected_cells : int
        A table of fewer cells is built only to inspect its costs, before they are counted.
    formula_literals : int
        Most literals of a formula.
    formula_variables : int
        Most variables of a formula.
    formula_cubes : int
        Most cubes that cover the zeros of a table: each takes some 50 microseconds.
    free_edges : int
        A join may make this many edges, or more where that is a small part of its dense cells.
    free_part : float
        It may also make this part of the edges of a whole run: the partition function of bw_p34_15 takes 4e8 edges, and
        was given up for joins of 3e5, a fourteenth of their cells, beside a sweep of 1e6 s.
    """

    inspected_cells: int = 1 << 24
    formula_literals: int = 1 << 22
    formula_variables: int = 1 << 15
    formula_cubes: int = 1 << 15
    free_edges: int = 1 << 18
    free_part: float = 0.25
    telling_part: float = 0.25

    def free(self, run_edges: float) -> float:
        """Return the edges that a join may make at any density, in a run of ``run_edges`` edges."""
        return max(self.free_edges, self.free_part * run_edges)


Mask = NDArray[np.bool_]
Cube = Sequence[int]
"""A state for each variable of a function, or -1 for all of them."""

# Nominal speed of one core: uses of literals that a search looks at in a second, 5 and 10 * 10^7 of two counts.
SEARCHED_PER_SECOND = 2.0**24 / 0.3
# Smaller weights might underflow.
LEAST_WEIGHT = 1e-150
# Two orders take turns: one decided half by clauses and half by the tree, and one by the tree alone.
_SPREADS = (32.0, float(1 << 20))


class UnfitError(Exception):
    """A network makes a formula that is too large, or weights that floats may not hold."""


@dataclass(eq=False)
class Formula:
    """Clauses with weights. Models are the possible assignments of a network; products of weights are their values.

    Parameters
    ----------
    dims : tuple of int
        Domain sizes of the network.
    clauses : list
        Literals: ``2 v`` where variable v holds, ``2 v + 1`` where it does not.
    weights : dict
        Of literals; 1 where nothing is said.
    log_scale : float
        Natural logarithm of the constant factor.
    owners : list of int
        The network's variable that a variable belongs to.
    hidden : frozenset of int
        Variables of the network for which some state suffices.
    suits : bool
        Whether every function of several variables with different entries above 0 has at least half of its entries 0.
        Otherwise there are too many weights for a fast search.
    pure : bool
        Whether all weights belong to single variables, as in files of clauses.
    merged : bool
        Whether equal variables became one, so that an order of the network says little about the clauses.
    """

    dims: tuple[int, ...]
    clauses: list[tuple[int, ...]] = field(default_factory=list)
    weights: dict[int, float] = field(default_factory=dict)
    log_scale: float = 0.0
    owners: list[int] = field(default_factory=list)
    suits: bool = True
    pure: bool = True
    merged: bool = False
    literals: int = 0
    hidden: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._first: list[int] = []
        for v, size in enumerate(self.dims):
            self._first.append(len(self.owners))
            self.owners += [v] * (1 if size == 2 else size)
        self.states = len(self.owners)
        for v, size in enumerate(self.dims):
            if size > 2:
                states = [self.literal(v, state) for state in range(size)]
                self.add(states)
                for k, state in enumerate(states):
                    for other in states[:k]:
                        self.add((state ^ 1, other ^ 1))

    def literal(self, variable: int, state: int) -> int:
        """Return the literal that says that a variable is in a state."""
        first = self._first[variable]
        return 2 * first + 1 - state if self.dims[variable] == 2 else 2 * (first + state)

    def add(self, clause: Sequence[int]) -> None:
        """Add a clause."""
        policy = QueryPolicy.current()
        self.clauses.append(tuple(clause))
        self.literals += len(clause)
        if self.literals > policy.formula_literals or len(self.owners) > policy.formula_variables:
            raise UnfitError

    def exclude(self, scope: Sequence[int], cube: Cube) -> None:
        """Add the clause that no assignment is in a cube."""
        self.add([literal ^ 1 for literal in self._literals(scope, cube)])

    def weigh(self, scope: Sequence[int], cube: Cube, weight: float, owner: int) -> int | None:
        """Give all assignments in a cube the same weight; return the literal that means membership in the cube, or
        None.

        It is a state's where that says it, or else of a variable that is made for it.
        """
        literals = self._literals(scope, cube)
        if not literals:
            self.log_scale += math.log(weight)
            return None
        if len(literals) > 1:
            inside = 2 * len(self.owners)
            self.owners.append(owner)
            self.add([inside, *(literal ^ 1 for literal in literals)])
            for literal in literals:
                self.add((inside ^ 1, literal))
            literals = [inside]
        self._set(literals[0], weight)
        return literals[0]

    def _set(self, literal: int, weight: float) -> None:
        self.weights[literal] = weight = self.weights.get(literal, 1.0) * weight
        if not LEAST_WEIGHT <= weight <= 1 / LEAST_WEIGHT:
            raise UnfitError

    def _literals(self, scope: Sequence[int], cube: Cube) -> list[int]:
        return [self.literal(v, state) for v, state in zip(scope, cube, strict=True) if state >= 0]

    def ordered(
        self, order: Sequence[int], spread: float, states_first: bool = False, outer: frozenset[int] = frozenset()
    ) -> Clauses:
        """Return the clauses with ranks from 0 to ``spread``, highest for the last eliminated variables.

        ``order`` lists the variables of the network, or of the formula itself if some of its variables were merged.
        With ``states_first``, variables of states are decided before variables of weights. States of variables in
        ``outer`` are decided before all others.
        """
        place = np.empty(len(order))
        place[list(order)] = np.arange(len(order))
        rank = (place if self.merged else place[self.owners]) * (spread / max(len(order), 1))
        hidden = np.array([v in self.hidden for v in self.owners]) if self.hidden else None
        if states_first:
            rank[: self.states] += decided_first(rank, len(self.clauses))
        if outer:
            first = [k for k, v in enumerate(self.owners[: self.states]) if v in outer]
            rank[first] += decided_first(rank, len(self.clauses))
        if not self.weights:
            return clauses_of(len(rank), self.clauses, rank, hidden=hidden)
        weights = np.ones(2 * len(rank))
        weights[list(self.weights)] = list(self.weights.values())
        return clauses_of(len(rank), self.clauses, rank, weights, hidden)


@dataclass(frozen=True)
class _Cover:
    """A function as a base, cubes of zeros, and cubes of other entries with their ratios to the base.

    The base is the most frequent entry above 0; it is 1 for a function of one variable. Cubes of zeros may overlap,
    other cubes do not. ``mixed`` is true if the function has several variables and different entries above 0.
    """

    base: float
    zeros: tuple[Cube, ...]
    others: tuple[tuple[Cube, float], ...]
    mixed: bool


def formula_of(network: Network, model: Model, hidden: frozenset[int] = frozenset()) -> Formula:
    """Turn what is left of a model into clauses, with weights if it is to be summed.

    Parameters
    ----------
    network : Network
        Of the query "count" or "partition".
    model : Model
        As it is asked about: semijoins leave more zeros, which follow from the others.
    hidden : frozenset of int
        Variables of the network for which some state suffices; no weights depend on them.

    Raises
    ------
    UnfitError
        If these are too many, or weights too far from 1.
    """
    policy = QueryPolicy.current()
    given = replace(network, model=model)
    made = Formula(network.dims, hidden=hidden)
    covers: dict[tuple[Any, ...], _Cover] = {}
    entries = zeros = cubes = 0
    mixed = False
    for f in [f for leaf in network.leaves for f in leaf.functions]:
        if model.functions[f].rows is not None and not is_listed(network, f):
            listed = rows_left(given, f)
            excluded = ~allowed(network.model, f, listed.values)
            states = np.stack(listed.states, axis=1).tolist()
            for k in np.flatnonzero(excluded).tolist():
                made.exclude(listed.axes, states[k])
            if network.query == "partition":
                mixed = _weigh_rows(made, listed, states, float(model.functions[f].default)) or mixed
            continue
        scope, values = _values(given, f)
        if network.query == "count":
            values = allowed(network.model, f, values).astype(np.float64)
        key = values.shape, values.tobytes()
        # thousands of functions share few tables, which are covered by cubes once
        if key not in covers:
            covers[key] = _cover(values, policy.formula_cubes - cubes)
            cubes += len(covers[key].zeros) + len(covers[key].others)
        if covers[key].mixed:
            entries, zeros = entries + values.size, zeros + int(np.count_nonzero(values == 0))
        _add(made, scope, covers[key])
    made.suits, made.pure = not mixed and 2 * zeros >= entries, not (mixed or entries)
    return made


def has_mixed_tables(network: Network, model: Model) -> bool:
    """Whether tables with several weights have too few zeros for a formula; known before the formula is built."""
    if network.query == "count":
        return False
    given, entries, zeros = replace(network, model=model), 0, 0
    for f in [f for leaf in network.leaves for f in leaf.functions]:
        if model.functions[f].rows is not None and not is_listed(network, f):
            continue
        try:
            _, values = _values(given, f)
        except UnfitError:
            return True
        if values.ndim > 1 and len(np.unique(values[values > 0.0])) > 1:
            entries, zeros = entries + values.size, zeros + int(np.count_nonzero(values == 0))
    return 2 * zeros < entries


def _weigh_rows(made: Formula, listed: ListedCells, states: list[list[int]], default: float) -> bool:
    """Give rows their weights and all other assignments the default; return whether any row's nonzero weight differs
    from it.
    """
    made.log_scale += math.log(default)
    others = np.flatnonzero((listed.values != 0) & (listed.values != default)).tolist()
    for k in others:
        made.weigh(listed.axes, states[k], float(listed.values[k]) / default, owner=listed.axes[0])
    return bool(others)


def _add(made: Formula, scope: Sequence[int], cover: _Cover) -> None:
    for cube in cover.zeros:
        made.exclude(scope, cube)
    for cube, weight in cover.others:
        made.weigh(scope, cube, weight, owner=scope[0])
    made.log_scale += math.log(cover.base)


def _values(network: Network, f: int) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Return a function on the states that are left."""
    scope = [network.local[v] for v in network.model.functions[f].scope if len(network.domains[v]) > 1]
    if math.prod([network.dims[v] for v in scope]) > PreprocessingPolicy.current().wide_cells:
        raise UnfitError
    found, values = restricted(network, f)
    return found, np.ascontiguousarray(values)


def _cover(values: NDArray[np.float64], most: int) -> _Cover:
    levels, counts = np.unique(values[values > 0.0], return_counts=True)
    base = float(levels[counts.argmax()]) if len(levels) and values.ndim != 1 else 1.0
    zeros = tuple(_cubes(values == 0.0, most, apart=False))
    others: list[tuple[Cube, float]] = []
    for level in levels.tolist():
        if level != base:
            others += [(cube, level / base) for cube in _cubes(values == level, most - len(others), apart=True)]
    return _Cover(base, zeros, tuple(others), values.ndim > 1 and len(levels) > 1)


def _cubes(mask: Mask, most: int, apart: bool) -> Iterator[Cube]:
    """Cover the cells of a mask by cubes within it; the cubes do not overlap if ``apart``."""
    left = mask.copy()
    for cell in map(tuple, np.argwhere(mask).tolist()):
        if not left[cell]:
            continue
        if (most := most - 1) < 0:
            raise UnfitError
        cube: list[int | slice] = list(cell)
        for axis in range(len(cube)):
            state, cube[axis] = cube[axis], slice(None)
            if not np.all((left if apart else mask)[tuple(cube)]):
                cube[axis] = state
        left[tuple(cube)] = False
        yield tuple([-1 if isinstance(state, slice) else state for state in cube])


def formula_orders(
    formula: Formula, network: Network, seed: int, states_first: bool = False, outer: frozenset[int] = frozenset()
) -> list[Clauses]:
    """Return the clauses in the orders whose searches take turns.

    Parameters
    ----------
    formula : Formula
    network : Network
        The formula to order.
    seed : int
        Of the elimination order.
    states_first : bool
        Whether weights' own variables, which follow from states, are never decided.
    outer : frozenset of int
        The network's variables that are decided before all others.
    """
    dims, scopes = network.dims, network.scopes
    if formula.merged:
        scopes = tuple({tuple(sorted({literal >> 1 for literal in clause})): None for clause in formula.clauses})
        dims = (2,) * len(formula.owners)
    order = min_fill_order(dims, scopes, seed)
    return [formula.ordered(order, spread, states_first, outer) for spread in _SPREADS]


_Clauses = list[tuple[int, ...]]


def simplified(formula: Formula) -> Formula:
    """Return a formula with as many models of the same weights, and fewer variables where some are forced or equal.

    A hidden variable never replaces a counted variable. If no assignment is possible, two clauses remain that
    contradict each other.
    """
    # the literal that replaces each literal; -1: it is true, -2: it is false
    stands = list(range(2 * len(formula.owners)))
    hidden = [owner in formula.hidden for owner in formula.owners]
    clauses: _Clauses = list(formula.clauses)
    while True:
        found = _propagated(clauses, stands)
        if found is None:
            return _unsatisfiable(formula)
        clauses, equal = found, _equal(found, len(stands))
        if not equal:
            break
        for members in equal:
            if members[0] ^ 1 in members:
                return _unsatisfiable(formula)
            best = min(members, key=lambda literal: (hidden[literal >> 1], literal))
            for literal in members:
                stands[literal], stands[literal ^ 1] = best, best ^ 1
    return _renumbered(formula, clauses, stands)


def _find(literal: int, stands: list[int]) -> int:
    """Return the literal that stands for a literal in the end, or -1 (true) or -2 (false)."""
    while literal >= 0 and stands[literal] != literal:
        literal = stands[literal]
    return literal


def _propagated(clauses: _Clauses, stands: list[int]) -> _Clauses | None:
    """Replace literals and fix units; return the remaining clauses, or None for a contradiction."""
    while True:
        left, units = dict[tuple[int, ...], None](), False
        for clause in clauses:
            literals = {_find(literal, stands) for literal in clause}
            literals.discard(-2)
            if -1 in literals or any(literal ^ 1 in literals for literal in literals):
                continue
            if not literals:
                return None
            if len(literals) == 1:
                (unit,) = literals
                stands[unit], stands[unit ^ 1], units = -1, -2, True
                continue
            left[tuple(sorted(literals))] = None
        clauses = list(left)
        if not units:
            return clauses


def _equal(clauses: _Clauses, n_literals: int) -> list[list[int]]:
    """Return sets of two or more literals that imply each other by clauses of two literals, each set once.

    Tarjan's algorithm without recursion. The negated literals of a set form another set, and only one of both sets is
    returned.
    """
    implied: dict[int, list[int]] = {}
    for clause in clauses:
        if len(clause) == 2:
            implied.setdefault(clause[0] ^ 1, []).append(clause[1])
            implied.setdefault(clause[1] ^ 1, []).append(clause[0])
    number, low, stack, found = dict[int, int](), dict[int, int](), list[int](), list[list[int]]()
    done, seen = set[int](), set[int]()
    for start in implied:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        walk = [(start, iter(implied[start]))]
        while walk:
            literal, rest = walk[-1]
            other = next(rest, None)
            if other is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[literal])
                if low[literal] == number[literal]:
                    members = [stack.pop()]
                    while members[-1] != literal:
                        members.append(stack.pop())
                    done.update(members)
                    if len(members) > 1 and not seen.intersection(members):
                        found.append(members)
                        seen.update(members, [each ^ 1 for each in members])
            elif other not in number:
                number[other] = low[other] = len(number)
                stack.append(other)
                walk.append((other, iter(implied.get(other, ()))))
            elif other not in done:
                low[literal] = min(low[literal], number[other])
    return found


def _renumbered(formula: Formula, clauses: _Clauses, stands: list[int]) -> Formula:
    """Return the formula of the remaining variables, which take over the weights of the others."""
    own = [_find(literal, stands) for literal in range(len(stands))]
    kept = [v for v in range(len(formula.owners)) if own[2 * v] == 2 * v]
    if len(kept) in (0, len(formula.owners)):
        return formula
    place = {2 * v + side: 2 * k + side for k, v in enumerate(kept) for side in (0, 1)}
    weights, logs = dict[int, float](), [formula.log_scale]
    for literal, weight in formula.weights.items():
        if own[literal] == -1:
            logs.append(math.log(weight))
        elif own[literal] >= 0:
            new = place[own[literal]]
            weights[new] = weights.get(new, 1.0) * weight
    if not all(LEAST_WEIGHT <= weight <= 1 / LEAST_WEIGHT for weight in weights.values()):
        return formula  # floats may not hold the products
    return _changed(
        formula,
        clauses=[tuple([place[literal] for literal in clause]) for clause in clauses],
        weights=weights,
        log_scale=math.fsum(logs),
        owners=[formula.owners[v] for v in kept],
        states=sum(v < formula.states for v in kept),
        merged=True,
    )


def _unsatisfiable(formula: Formula) -> Formula:
    return _changed(formula, clauses=[(0,), (1,)])


def _changed(formula: Formula, **fields: Any) -> Formula:
    """Return a copy with other clauses; the literals of states are no longer valid."""
    made = copy(formula)
    for name, value in fields.items():
        setattr(made, name, value)
    made.literals = sum(map(len, made.clauses))
    return made
