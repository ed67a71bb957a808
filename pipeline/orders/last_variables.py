"""Trees in which given variables are eliminated after all others, by the searches that know nothing of them.

After the other variables of a component are eliminated, a table over the adjacent last variables remains, in any order
of elimination. Each component is therefore searched separately, with one additional function over these last variables,
and its tree is rooted there: the table leaves the component where the additional function was (a join tree has the same
joins from any root). A search over these tables and the functions of last variables completes the tree. No tree is
lost: the least width of all such trees is the largest width of the components (constrained elimination orders; Park and
Darwiche 2004, Complexity results and approximation strategies for MAP).

The middle of a chain of five variables of two states goes last: each half leaves a table of two cells.

>>> from bucketflow.pipeline.trees.tree import elimination_order
>>> search = TreeSearch((2,) * 5, ((0, 1), (1, 2), (2, 3), (3, 4)))
>>> (tree,) = trees_with_last(search, frozenset({2}), lambda part: [part.cheapest()])
>>> elimination_order(tree)[-1], [sorted(gone) for gone in tree.eliminated]
(2, [[0, 1], [3, 4], [2]])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from math import prod

from ...tasks.steps.light_dataclass import dataclass
from ..trees.tree import Tree, build_tree
from .tree_search import TreeSearch

Find = Callable[[TreeSearch], Sequence[Tree]]
"""Finds trees of a part, the cheapest first."""


@dataclass(frozen=True)
class NetworkPart:
    """Functions that share variables which go first.

    Parameters
    ----------
    functions : tuple of int
    open : tuple of int
        The last variables that they touch, ascending.
    """

    functions: tuple[int, ...]
    open: tuple[int, ...]


def trees_with_last(search: TreeSearch, last: frozenset[int], find: Find, *, kept: bool = False) -> list[Tree]:
    """Find trees that eliminate ``last`` after all other variables, or not at all.

    Parameters
    ----------
    search : TreeSearch
        Of the whole network; its seconds are divided among the parts by their functions. An order that a caller gave
        eliminates ``last`` after all other variables.
    last : frozenset of int
    find : callable
    kept : bool
        Whether they are not eliminated: the trees of the parts alone, in one forest.
    """
    scopes = [tuple(scope) for scope in search.scopes]
    parts, rest = _parts(scopes, last)
    above = [*[part.open for part in parts if part.open], *[scopes[i] for i in rest]]
    total = sum([len(scope) for scope in scopes]) or 1
    share = [sum([len(scopes[i]) for i in part.functions]) / total for part in parts]
    below = []
    for part, some in zip(parts, share, strict=True):
        inside = [scopes[i] for i in part.functions]
        below.append(find(_restricted(search, [*inside, part.open] if part.open else inside, some)))
    if kept:
        bare = Tree((), tuple([()] * len(above)), ())
        tops: Sequence[Tree] = [bare]
    else:
        tops = find(_restricted(search, above, sum([len(scopes[i]) for i in rest]) / total))
    return [
        _put_together(search, last, parts, rest, [found[min(i, len(found) - 1)] for found in below], top)
        for i, top in ((i, tops[min(i, len(tops) - 1)]) for i in range(max(map(len, [*below, tops]))))
    ]


def cells_left(dims: Sequence[int], scopes: Sequence[Sequence[int]], last: frozenset[int]) -> int:
    """Return the cells of the tables over ``last`` that remain, in any order, once all other variables are eliminated.

    The middle of a chain goes last: each half leaves a table of its two states.

    >>> cells_left((2, 2, 2, 2, 2), ((0, 1), (1, 2), (2, 3), (3, 4)), frozenset({2}))
    4
    """
    parts, _ = _parts([tuple(scope) for scope in scopes], last)
    return sum([prod([dims[v] for v in part.open]) for part in parts])


def _parts(scopes: Sequence[tuple[int, ...]], last: frozenset[int]) -> tuple[list[NetworkPart], list[int]]:
    """Divide functions into components that are connected only by last variables; functions of last variables alone are
    the rest.
    """
    holders: dict[int, list[int]] = {}
    for i, scope in enumerate(scopes):
        for v in scope:
            if v not in last:
                holders.setdefault(v, []).append(i)
    parts, seen = [], set[int]()
    rest = [i for i, scope in enumerate(scopes) if last.issuperset(scope)]
    for start in range(len(scopes)):
        if start in seen or last.issuperset(scopes[start]):
            continue
        seen.add(start)
        found, stack = [], [start]
        while stack:
            found.append(i := stack.pop())
            fresh = {j for v in scopes[i] if v not in last for j in holders[v]} - seen
            seen |= fresh
            stack += fresh
        touched = {v for i in found for v in scopes[i] if v in last}
        parts.append(NetworkPart(tuple(sorted(found)), tuple(sorted(touched))))
    return parts, rest


def _restricted(search: TreeSearch, scopes: Sequence[Sequence[int]], share: float) -> TreeSearch:
    """Return the search of some functions alone, over their variables numbered from 0, for a share of the time."""
    variables = sorted({v for scope in scopes for v in scope})
    local = {v: i for i, v in enumerate(variables)}
    order = search.order
    return replace(
        search,
        dims=tuple([search.dims[v] for v in variables]),
        scopes=tuple([tuple([local[v] for v in scope]) for scope in scopes]),
        order=order if isinstance(order, str) else tuple([local[v] for v in order if v in local]),
        seconds=None if search.seconds is None else share * search.seconds,
        longest=share * search.longest,
    )


def _put_together(
    search: TreeSearch,
    last: frozenset[int],
    parts: Sequence[NetworkPart],
    rest: Sequence[int],
    below: Sequence[Tree],
    top: Tree,
) -> Tree:
    """Return the tree of the whole network from the trees of its components and of the last variables."""
    fresh = count(len(search.scopes))
    kids: dict[int, Sequence[int]] = {}
    tables: list[int] = []
    for part, tree in zip(parts, below, strict=True):
        inner = {node: list(below_it) for node, below_it in enumerate(tree.children, tree.n_leaves)}
        head = _seen_from(tree, inner, len(part.functions)) if part.open else tree.roots[-1]
        names = dict(enumerate(part.functions)) | {node: next(fresh) for node in inner}
        kids |= {names[node]: [names[i] for i in inputs] for node, inputs in inner.items()}
        if part.open:
            tables.append(names[head])
    names = dict(enumerate([*tables, *rest])) | {top.n_leaves + j: next(fresh) for j in range(len(top.children))}
    kids |= {names[top.n_leaves + j]: [names[i] for i in inputs] for j, inputs in enumerate(top.children)}
    leaves = tuple([tuple(scope) for scope in search.scopes])
    return _without_idle(build_tree(tuple(search.dims), leaves, kids, last))


def _seen_from(tree: Tree, kids: dict[int, list[int]], leaf: int) -> int:
    """Turn the nodes above a leaf around, in place, so that what all others make comes out there; return its node."""
    path = [tree.parent[leaf]]
    while tree.parent[path[-1]] >= 0:
        path.append(tree.parent[path[-1]])
    kids[path[0]].remove(leaf)
    for node, above in pairwise(path):
        kids[above].remove(node)
        kids[node].append(above)
    for node, above in reversed([*pairwise(path)]):
        if not kids[above]:  # the root had nothing else
            kids[node].remove(above)
            del kids[above]
    return path[0]


def _without_idle(tree: Tree) -> Tree:
    """Return the tree without the steps that eliminate nothing of one table or hand on what another step joins."""
    first = tree.n_leaves
    idle = {
        first + j
        for j, (inputs, gone) in enumerate(zip(tree.children, tree.eliminated, strict=True))
        if not gone and (len(inputs) == 1 or tree.parent[first + j] >= 0)
    }

    def read(inputs: Iterable[int]) -> list[int]:
        return [i for node in inputs for i in (read(tree.children[node - first]) if node in idle else (node,))]

    kids: dict[int, Sequence[int]] = {
        first + j: read(inputs) for j, inputs in enumerate(tree.children) if first + j not in idle
    }
    return build_tree(tree.dims, tree.leaves, kids, tree.last)
