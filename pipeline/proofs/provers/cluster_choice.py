"""Which variables make a cluster: those on short cycles through one; and what clusters have to agree on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

# Pairs of neighbours of a variable, on average, beyond which there are too many cycles to look for.
_CLUSTER_PAIRS: Final = 64

Group = frozenset[int]


def neighbours_of(n_variables: int, scopes: Iterable[Sequence[int]]) -> list[set[int]]:
    """Return the neighbours of each variable: the variables that share a scope with it."""
    found: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        for v in scope:
            found[v].update(scope)
    for v, near in enumerate(found):
        near.discard(v)
    return found


def short_cycles(n_variables: int, scopes: Sequence[Sequence[int]], most: int) -> list[Group] | None:
    """Return the cycles of three and of four without a chord that no scope contains; None if there are more."""
    near = neighbours_of(n_variables, scopes)
    if sum(len(around) ** 2 for around in near) > 2 * _CLUSTER_PAIRS * n_variables:
        return None
    covered = {frozenset(three) for scope in scopes for three in combinations(scope, 3)}
    found: list[Group] = []
    for u in range(n_variables):
        for cycle in _cycles_from(u, near):
            if len(cycle) == 4 or cycle not in covered:
                found.append(cycle)
        if len(found) > most:
            return None
    return found


def _cycles_from(u: int, near: Sequence[set[int]]) -> Iterator[Group]:
    """Yield the short cycles in which this variable has the lowest number."""
    for a, b in combinations(sorted(v for v in near[u] if v > u), 2):
        if b in near[a]:
            yield frozenset((u, a, b))
        else:
            for w in sorted(near[a] & near[b]):
                if w > u and w not in near[u]:
                    yield frozenset((u, a, w, b))


def clusters(
    dims: Sequence[int], scopes: Sequence[Sequence[int]], cycles: Sequence[Group], cells: int, *, grown: bool
) -> list[Group]:
    """Return a cluster of at most ``cells`` cells around every variable, and the scopes that no cluster contains.

    A cluster takes the cycles through its variable. If ``grown``, it then takes the cycles that need the fewest
    additional variables.
    """
    through: list[list[int]] = [[] for _ in dims]
    for number, cycle in enumerate(cycles):
        for v in cycle:
            through[v].append(number)
    found = (_around(dims, v, cycles, through, cells, grown) for v in range(len(dims)))
    return without_contained([*found, *map(frozenset, scopes)])


def _around(
    dims: Sequence[int],
    v: int,
    cycles: Sequence[Group],
    through: Sequence[Sequence[int]],
    most: int,
    grown: bool,
) -> Group:
    """Make one cluster of cycles, as long as one fits."""
    inside, cells = {v}, dims[v]
    waiting = dict.fromkeys(through[v])
    while waiting:
        more = {c: len(cycles[c] - inside) for c in waiting}
        cycle = min(waiting, key=more.__getitem__)
        del waiting[cycle]
        added = cycles[cycle] - inside
        size = cells * math.prod([dims[u] for u in added])
        if size > most:
            continue
        inside |= added
        cells = size
        if grown:
            waiting.update(dict.fromkeys(c for u in sorted(added) for c in through[u] if not cycles[c] <= inside))
    return frozenset(inside)


def without_contained(groups: Iterable[Group]) -> list[Group]:
    """Return the groups that no other contains, large ones first."""
    kept: list[Group] = []
    holding: dict[int, set[int]] = {}
    for group in sorted(set(groups), key=lambda g: (-len(g), sorted(g))):
        if not set.intersection(*(holding.get(v, set()) for v in group)):
            for v in group:
                holding.setdefault(v, set()).add(len(kept))
            kept.append(group)
    return kept


def separators(groups: Sequence[Group]) -> list[Group]:
    """Return the separators on which clusters must agree so that any two clusters agree on all common variables.

    Shared variables are left out where larger shares connect all clusters that have them.
    """
    holding: dict[int, set[int]] = {}
    for number, group in enumerate(groups):
        for v in group:
            holding.setdefault(v, set()).add(number)
    shared = {group & groups[other] for i, group in enumerate(groups) for other in _beyond(i, group, holding)}
    return [share for share in shared if not _connected(share, groups, holding)]


def _beyond(i: int, group: Group, holding: dict[int, set[int]]) -> set[int]:
    """The clusters of higher numbers that share a variable with one."""
    return {other for v in group for other in holding[v] if other > i}


def _connected(share: Group, groups: Sequence[Group], holding: dict[int, set[int]]) -> bool:
    """Whether all clusters that contain a share are connected by shares that are larger."""
    waiting = set.intersection(*(holding[v] for v in share))
    reached = [waiting.pop()]
    while reached and waiting:
        group = groups[reached.pop()]
        near = [other for other in waiting if len(group & groups[other]) > len(share)]
        reached += near
        waiting.difference_update(near)
    return not waiting
