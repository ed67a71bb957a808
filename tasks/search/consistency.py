"""Soft arc consistency (EDAC): costs are moved until no more of them can be added to the constant.

Existential directional arc consistency (de Givry, Heras, Larrosa & Zytnicki, Existential arc consistency, IJCAI 2005;
Larrosa & Schiex 2003): every move keeps the total of every assignment, so that the constant is a lower bound.
"""

from __future__ import annotations

from ..compiler.jit import njit
from .costs import keep_costs, keep_moved, least_in_row, lift, place_in_row, project_wide, remove, rose
from .state import (
    ARC,
    BACK,
    BY_RANK,
    CAUSE,
    CONSTANT,
    DIM,
    DIRECTED,
    ENDLESS,
    EXISTENTIAL,
    FIRST,
    HINT,
    INF,
    LAST,
    MIRROR,
    MOVED,
    NEIGHBOUR,
    PAIR,
    PAIRS,
    RANK,
    START,
    SUPPORT,
    TABLE,
    TINY,
    VARIABLE,
    VARIABLES,
    WORK,
    Array,
)


@njit(nogil=True)
def supported(s: Array, entries: Array, k: int, x: int, upper: int) -> bool:
    """Move to the values of ``x`` what the table of its pair ``k`` costs each of them at least (arc consistency).

    Parameters
    ----------
    s : (words,) int64
        The state of the search (:mod:`.state`); costs of ``x``, moved amounts, hints, flags and the constant are
        changed.
    entries : (cells,) int64
        Costs of all tables; read only.
    k, x : int
        Places in ``s`` of the pair, as ``x`` has it, and of the variable.
    upper : int
        The cut-off.

    Returns
    -------
    bool
        False if ``x`` costs ``upper`` or more with every value.
    """
    y, start, moved, hint = s[k + NEIGHBOUR], s[x + START], s[k + MOVED], s[k + HINT]
    d, e, row, beside = s[x + DIM], s[y + DIM], s[k + TABLE], s[WORK]
    add_moved(s, y, k, beside, True)
    raised = False
    for a in range(d):
        cost, free = s[start + a], s[moved + a]
        # If the neighbour's remembered value (HINT) costs no more than the moved amount, the row cannot rise.
        if cost < INF and entries[row + s[hint + a]] + s[beside + s[hint + a]] > free:
            least = least_in_row(entries, row, s, beside, e)
            s[hint + a] = place_in_row(entries, row, s, beside, e, least)
            least -= free
            if least >= ENDLESS or s[CONSTANT] + cost + least >= upper:
                remove(s, x, a)
                raised = True
            elif least > 0:
                # Only a rise of a value that was free of cost can change the least cost of ``x``.
                if cost <= s[TINY]:
                    s[x + DIRECTED] = 1
                    raised = True
                keep_costs(s, x)
                keep_moved(s, k, d)
                s[moved + a] += least
                s[start + a] += least
        row += e
    if not raised:
        return True
    rose(s, x)
    s[CAUSE] = k
    return lift(s, x, upper)


@njit(nogil=True)
def add_moved(s: Array, y: int, k: int, beside: int, free: bool) -> None:
    """Write what each value of a neighbour adds to the pair's entries; its own costs too unless ``free``."""
    e = s[y + DIM]
    costs, back, sums = s[s[y + START] : s[y + START] + e], s[s[k + BACK] : s[k + BACK] + e], s[beside : beside + e]
    if free:
        for b in range(e):
            sums[b] = (0 if costs[b] < INF else INF) - back[b]
    else:
        for b in range(e):
            sums[b] = costs[b] - back[b]


@njit(nogil=True)
def fully_supported(s: Array, entries: Array, k: int, x: int, upper: int) -> bool:
    """Move to the values of ``x`` what pair ``k`` and the neighbour's own values cost each at least (full arc
    consistency).

    The neighbour's costs are moved into the table first, as far as the rises of ``x`` need them.

    Parameters
    ----------
    s : (words,) int64
        The state of the search (:mod:`.state`); costs of both variables, moved amounts, hints, flags and the
        constant are
        changed. The work area has room for three numbers for each value of the widest variable.
    entries : (cells,) int64
        Costs of all tables; read only.
    k, x : int
        Places in ``s`` of the pair, as ``x`` has it, and of the variable.
    upper : int
        The cut-off.

    Returns
    -------
    bool
        False if ``x`` costs ``upper`` or more with every value.
    """
    y, start, moved, hint = s[k + NEIGHBOUR], s[x + START], s[k + MOVED], s[k + HINT]
    d, e, row, beside = s[x + DIM], s[y + DIM], s[k + TABLE], s[WORK]
    widest = (s[WORK + 1] - s[WORK]) // 3
    rises, needed = beside + widest, beside + 2 * widest
    add_moved(s, y, k, beside, False)
    for b in range(e):
        s[needed + b] = 0
    any_removed, any_moved = False, False
    for a in range(d):
        cost, free = s[start + a], s[moved + a]
        s[rises + a] = 0
        if cost < INF and entries[row + s[hint + a]] + s[beside + s[hint + a]] > free:
            least = least_in_row(entries, row, s, beside, e)
            s[hint + a] = place_in_row(entries, row, s, beside, e, least)
            rise = least - free
            if rise >= ENDLESS or s[CONSTANT] + cost + rise >= upper:
                remove(s, x, a)
                any_removed = True
            elif rise > 0:
                any_moved = True
                s[rises + a] = rise
                # A neighbour's value must pay for the row that needs most of it: with less, a cell of the table would
                # become negative.
                note_needed(s, entries, row, s[k + BACK], needed, e, least)
        row += e
    if not any_moved and not any_removed:
        return True
    if any_moved:
        extend(s, y, s[k + MIRROR], needed)
        keep_costs(s, x)
        keep_moved(s, k, d)
        for a in range(d):
            rise = s[rises + a]
            if rise > 0:
                if s[start + a] <= s[TINY]:
                    s[x + DIRECTED] = 1
                s[moved + a] += rise
                s[start + a] += rise
    rose(s, x)
    s[CAUSE] = k
    return lift(s, x, upper)


@njit(nogil=True)
def note_needed(s: Array, entries: Array, row: int, back: int, needed: int, e: int, least: int) -> None:
    """Raise what the values of the neighbour have to give for a row to cost ``least`` everywhere."""
    values, moved, most = entries[row : row + e], s[back : back + e], s[needed : needed + e]
    for b in range(e):
        most[b] = max(most[b], least + moved[b] - values[b])


@njit(nogil=True)
def extend(s: Array, y: int, k: int, needed: int) -> None:
    """Move from the values of ``y`` into the table of its pair ``k`` what is needed there."""
    e = s[y + DIM]
    keep_costs(s, y)
    keep_moved(s, k, e)
    costs, moved, amounts = (
        s[s[y + START] : s[y + START] + e],
        s[s[k + MOVED] : s[k + MOVED] + e],
        s[needed : needed + e],
    )
    for b in range(e):
        amount = amounts[b] if costs[b] < INF else 0
        costs[b] -= amount
        moved[b] -= amount


@njit(nogil=True)
def existential(s: Array, entries: Array, x: int, upper: int) -> bool:
    """Where no value of ``x`` is free of cost given all neighbours, move those costs to ``x``."""
    smallest, d = INF, s[x + DIM]
    for i in range(d):  # the value that it was last time comes first
        a = s[x + SUPPORT] + i
        a = a - d if a >= d else a
        smallest = min(smallest, with_neighbours(s, entries, x, a, smallest))
        if smallest <= s[TINY]:
            s[x + SUPPORT] = a
            return True
    for k in range(s[x + FIRST], s[x + LAST], PAIR):
        if s[s[k + NEIGHBOUR] + RANK] < s[x + RANK]:
            if not fully_supported(s, entries, k, x, upper):
                return False
            s[x + DIRECTED] = 1
    return True


@njit(nogil=True)
def with_neighbours(s: Array, entries: Array, x: int, a: int, most: int) -> int:
    """Return the cost of a value with the neighbours of smaller rank at their best, or any number from ``most`` on."""
    total, beside = s[s[x + START] + a], s[WORK]
    if total >= most:
        return most
    for k in range(s[x + FIRST], s[x + LAST], PAIR):
        y = s[k + NEIGHBOUR]
        if s[y + RANK] > s[x + RANK]:
            continue
        e, moved = s[y + DIM], s[s[k + MOVED] + a]
        row, b = s[k + TABLE] + a * e, s[s[k + HINT] + a]
        if entries[row + b] - s[s[k + BACK] + b] + s[s[y + START] + b] <= moved:
            continue
        add_moved(s, y, k, beside, False)
        least = least_in_row(entries, row, s, beside, e)
        s[s[k + HINT] + a] = place_in_row(entries, row, s, beside, e, least)
        total += least - moved
        if total >= most:
            return most
    return int(total)


@njit(nogil=True)
def propagate(s: Array, entries: Array, upper: int) -> bool:
    """Make the problem consistent; False if it was found to cost ``upper`` or more.

    In turn existential, full directional and arc consistency (EDAC), and what functions of more variables give, until
    nothing is left to do.

    Parameters
    ----------
    s : (words,) int64
        The state of the search, laid out as ``state.py`` says; values that cannot be are removed from it.
    entries : (cells,) int64
        Costs of all pairs; the costs that are moved are kept in ``s``.
    upper : int
        The cut-off.
    """
    again = True
    while again:
        for i in range(s[VARIABLES], s[PAIRS], VARIABLE):
            x = s[i + BY_RANK]
            if s[x + EXISTENTIAL]:
                s[x + EXISTENTIAL] = 0
                if not existential(s, entries, x, upper):
                    return False
        # Descending rank: a variable has received the costs of all neighbours of larger rank before it passes its own
        # costs on, so that one pass carries them to the smallest rank.
        for i in range(s[PAIRS] - VARIABLE, s[VARIABLES] - 1, -VARIABLE):
            y = s[i + BY_RANK]
            if s[y + DIRECTED]:
                s[y + DIRECTED] = 0
                for k in range(s[y + FIRST], s[y + LAST], PAIR):
                    x = s[k + NEIGHBOUR]
                    if s[x + RANK] < s[y + RANK] and not fully_supported(s, entries, s[k + MIRROR], x, upper):
                        return False
        for y in range(s[VARIABLES], s[PAIRS], VARIABLE):
            if s[y + ARC]:
                s[y + ARC] = 0
                for k in range(s[y + FIRST], s[y + LAST], PAIR):
                    if not supported(s, entries, s[k + MIRROR], s[k + NEIGHBOUR], upper):
                        return False
        # Conflicts of functions of three or more variables are not counted: only pairs have weights.
        s[CAUSE] = -1
        if not project_wide(s, entries, upper):
            return False
        for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
            if not lift(s, x, upper):
                return False
        again = False
        for x in range(s[VARIABLES], s[PAIRS], VARIABLE):
            if s[x + ARC] or s[x + DIRECTED] or s[x + EXISTENTIAL]:
                again = True
    return True
