"""Smaller formulas with the same models: forced variables are fixed, and equal literals become one.

Unit propagation, and strongly connected components of the implications of clauses of two literals (Aspvall, Plass and
Tarjan 1979): literals of one component are equal in every model.
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from .formula import LEAST_WEIGHT, Formula

_Clauses = list[tuple[int, ...]]


def simplified(formula: Formula) -> Formula:
    """Return a formula with as many models of the same weights, and fewer variables where some are forced or equal.

    A variable that is not counted never stands for one that is counted. If no assignment is possible, two clauses are
    left that contradict each other.
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

    Tarjan's algorithm without recursion. Negated literals form a mirrored set, of which one is returned.
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
