"""Deciding literals of clauses: units follow, conflicts end a branch, everything is undone."""

from __future__ import annotations

from ..machine_code import njit
from .state import TRAIL, Clauses, State


@njit(nogil=True, cache=True)
def decide(clauses: Clauses, state: State, literal: int) -> bool:
    """Let a literal of an open variable hold, and what follows; return whether no clause is violated."""
    counters, trail, value = state.counters, state.trail, state.value
    at = counters[TRAIL]
    value[literal >> 1] = 1 - (literal & 1)
    trail[at] = literal
    end = at + 1
    while at < end:
        literal = trail[at]
        at += 1
        for k in range(clauses.uses_first[literal], clauses.uses_first[literal + 1]):
            state.n_true[clauses.uses[k]] += 1
        broken = False
        for k in range(clauses.uses_first[literal ^ 1], clauses.uses_first[(literal ^ 1) + 1]):
            c = clauses.uses[k]
            state.n_false[c] += 1
            if state.n_true[c]:
                continue
            open_literals = clauses.first[c + 1] - clauses.first[c] - state.n_false[c]
            if open_literals <= 1:
                unit = _open(clauses, state, c)
                if unit == -2:
                    broken = True
                elif unit >= 0:
                    value[unit >> 1] = 1 - (unit & 1)
                    trail[end] = unit
                    end += 1
        if broken:
            counters[TRAIL] = at
            for k in range(at, end):
                value[trail[k] >> 1] = -1
            return False
    counters[TRAIL] = end
    return True


@njit(nogil=True, cache=True)
def _open(clauses: Clauses, state: State, c: int) -> int:
    """Return the open literal of a clause; -1 where one holds already, -2 where none can."""
    for k in range(clauses.first[c], clauses.first[c + 1]):
        literal = clauses.literals[k]
        known = state.value[literal >> 1]
        if known == -1:
            return int(literal)
        if known == 1 - (literal & 1):
            return -1
    return -2


@njit(nogil=True, cache=True)
def undo(clauses: Clauses, state: State, mark: int) -> None:
    """Take back what was decided since the trail was so long."""
    for at in range(state.counters[TRAIL] - 1, mark - 1, -1):
        literal = state.trail[at]
        for k in range(clauses.uses_first[literal], clauses.uses_first[literal + 1]):
            state.n_true[clauses.uses[k]] -= 1
        for k in range(clauses.uses_first[literal ^ 1], clauses.uses_first[(literal ^ 1) + 1]):
            state.n_false[clauses.uses[k]] -= 1
        state.value[literal >> 1] = -1
    state.counters[TRAIL] = mark
