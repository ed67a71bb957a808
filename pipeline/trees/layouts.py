"""Axis orders of all tables of a tree: reverse elimination order, ended by a run for vector instructions.

In reverse elimination order (Fioretto et al. 2018 §6.3) the variables that a step eliminates are the last axes
of its inputs. A few binary variables there would leave vector instructions nothing contiguous to work on, so
every table ends instead in a *run*: variables that its reader keeps, of at least `RUN_CELLS` cells together,
where possible the same ones in all large tables of a step. With ``V`` the run and ``k`` eliminated::

    largest child (…, k, V)  ×  other child (…, k, V) or (…, k)  ->  table (…, V)

and the innermost loop is over a row that is contiguous everywhere. `junction_tree_sizes` counts cliques and separators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...tasks.steps.axes import RUN_CELLS as LONGEST_RUN
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS
from ...tasks.steps.products import pays
from .tree import Sizer, Tree, sizer_of

RUN_CELLS = 128
"""A run grows until it has this many cells: four vectors of int16, where loop overhead is negligible."""

_Run = frozenset[int]


def choose_layouts(tree: Tree, order: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Choose the axis order of every node's table.

    Runs are chosen along heavy paths, each from its largest leaf upwards: a table keeps the run of its largest
    child while its reader keeps those variables, so the run changes rarely, and every change costs one pass
    over one table. The other children of a node are then asked to end in the node's run. Input functions are
    laid out as their reader likes.

    Parameters
    ----------
    tree
        The contraction tree.
    order
        The elimination order; the variable that is eliminated last comes first in every table.

    Returns
    -------
    tuple of tuple of int
        For each node, the variables of its scope in the order of its axes.
    """
    chooser = _Chooser(tree, order)
    nodes = range(tree.n_leaves + len(tree.children))
    # A node without a reader starts a path; so does every child except the largest.
    paths: list[tuple[int, _Run]] = [(node, frozenset()) for node in nodes if chooser.reader[node] < 0]
    while paths:
        top, wanted = paths.pop()
        path = list(chooser.heavy_path(top))
        for node in reversed(path):
            chooser.choose(node, wanted if node == top else frozenset())
        for node in path:
            paths += [(child, chooser.runs[node]) for child in chooser.side_children(node)]
    return tuple([chooser.layout(node) for node in nodes])


class _Chooser:
    """The runs chosen so far, and the choice of the next."""

    def __init__(self, tree: Tree, order: Sequence[int]) -> None:
        self.tree = tree
        self.rank = {v: i for i, v in enumerate(order)}
        self.reader = [-1] * (tree.n_leaves + len(tree.children))
        for j, children in enumerate(tree.children):
            for child in children:
                self.reader[child] = tree.n_leaves + j
        self.cells = tree.cells
        self.runs: dict[int, _Run] = {}

    def children(self, node: int) -> Sequence[int]:
        """Children, none for an input function."""
        return self.tree.children[node - self.tree.n_leaves] if node >= self.tree.n_leaves else ()

    def heavy_path(self, top: int) -> Iterator[int]:
        """Yield the internal nodes from `top` down by largest children."""
        node = top
        while node >= self.tree.n_leaves:
            yield node
            node = max(self.children(node), key=self.cells.__getitem__)

    def side_children(self, node: int) -> list[int]:
        """Children that are computed, but not the largest child."""
        children = self.children(node)
        largest = max(children, key=self.cells.__getitem__)
        return [child for child in children if child != largest and child >= self.tree.n_leaves]

    def choose(self, node: int, wanted: _Run) -> None:
        """Choose the run of a node whose largest child has one; its reader would like `wanted`."""
        if self.cells[node] <= SMALL_CELLS and all(self.cells[c] <= SMALL_CELLS for c in self.children(node)):
            self.runs[node] = frozenset()
            return
        reader = self.reader[node]
        scope = self.tree.scopes[node]
        kept = scope if reader < 0 else scope & self.tree.scopes[reader]
        candidates = dict.fromkeys(self._candidates(node, scope, kept, wanted))
        self.runs[node] = min(candidates, key=lambda run: self._cost(node, run, wanted), default=frozenset())

    def _candidates(self, node: int, scope: _Run, kept: _Run, wanted: _Run) -> Iterator[_Run]:
        if wanted and wanted <= scope:
            yield wanted
        first, *rest = sorted(self.children(node), key=lambda child: -self.cells[child])
        inherited = self.runs.get(first, frozenset())
        if inherited and inherited <= scope:
            yield inherited
        common = kept & self.tree.scopes[first]
        if rest:
            other = self.tree.scopes[rest[0]]
            if not self._is_product(node, first, rest[0]):
                yield self._longest_lived(common & other)
            yield self._longest_lived(common - other)
            yield self._longest_lived((kept & other) - common)
        yield self._longest_lived(common)
        yield self._longest_lived(kept)

    def _is_product(self, node: int, first: int, second: int) -> bool:
        """Whether lowering makes a matrix product of a step: rows, columns and depth are long enough to reuse data."""
        a, b, out = (self.tree.scopes[n] for n in (first, second, node))
        groups = (a & out) - b, (b & out) - a, (a & b) - out
        return pays(*(math.prod([self.tree.dims[v] for v in group]) for group in groups))

    def _longest_lived(self, variables: Iterable[int]) -> _Run:
        """Take the variables that are eliminated last until they make a run."""
        run: list[int] = []
        cells = 1
        for v in sorted(variables, key=self.rank.__getitem__, reverse=True):
            if cells >= RUN_CELLS or (run and cells * self.tree.dims[v] > LONGEST_RUN):
                break
            run.append(v)
            cells *= self.tree.dims[v]
        return frozenset(run)

    def _cost(self, node: int, run: _Run, wanted: _Run) -> float:
        """Price a run in passes over tables: rows that are too short, inputs that contain it partly, and a reader's
        preference.
        """
        run_cells = math.prod([self.tree.dims[v] for v in run])
        swept = max(self.cells[child] for child in self.children(node))
        cost = float(max(swept, self.cells[node]) * max(0, RUN_CELLS // run_cells - 1))
        for child in self.children(node):
            fixed = self.runs.get(child)
            fits = not run & self.tree.scopes[child] or (
                run <= self.tree.scopes[child] if fixed is None else run == fixed
            )
            cost += 0 if fits else self.cells[child]
        first, *rest = sorted(self.children(node), key=lambda child: -self.cells[child])
        if rest and self._is_product(node, first, rest[0]):
            # Products gather their inputs anyway, but a run of batch variables would scatter all three tables.
            batch = self.tree.scopes[first] & self.tree.scopes[rest[0]]
            cost = float(2 * swept if run & batch else 0)
        changes = run != wanted if wanted else self.reader[node] >= 0 and not run <= self.tree.scopes[self.reader[node]]
        return cost + (self.cells[node] if changes else 0)

    def layout(self, node: int) -> tuple[int, ...]:
        """Order a scope: latest eliminated first, then the run in the same order."""
        reader = self.reader[node]
        chosen: Mapping[int, _Run] = self.runs
        run = chosen.get(node, chosen.get(reader, frozenset()))
        rank = self.rank
        if not run:
            return tuple(sorted(self.tree.scopes[node], key=rank.__getitem__, reverse=True))
        return tuple(sorted(self.tree.scopes[node], key=lambda v: (v in run, -rank[v])))


@dataclass(frozen=True)
class SetSizes:
    """Sizes of some sets of variables, in joint states (cells) and in variables; zeros where there is no set.

    Parameters
    ----------
    count, cells : int
        Number of sets, and joint states of all of them together.
    least_cells, most_cells, least_variables, most_variables : int
    mean_cells, mean_variables : float
    """

    count: int = 0
    cells: int = 0
    least_cells: int = 0
    mean_cells: float = 0.0
    most_cells: int = 0
    least_variables: int = 0
    mean_variables: float = 0.0
    most_variables: int = 0


@dataclass(frozen=True)
class JunctionTreeSizes:
    """The sizes of a junction tree: its maximal cliques, and the separators between them.

    Parameters
    ----------
    cliques, separators : SetSizes
    """

    cliques: SetSizes
    separators: SetSizes

    @property
    def nodes(self) -> int:
        """Number of maximal cliques."""
        return self.cliques.count

    @property
    def cells(self) -> int:
        """Joint states of all cliques together."""
        return self.cliques.cells


def junction_tree_sizes(tree: Tree) -> JunctionTreeSizes:
    """Return the sizes of the junction tree that a contraction tree is: its joins, none within a neighbour's.

    The columns follow Zheng and Mengshoel 2013 (table 4) and Bistaffa, Farinelli and Bombieri 2014: nodes, and least,
    mean and largest clique and separator. An empty set of variables counts as neither.
    """
    first = tree.n_leaves
    cliques: dict[int, int] = {}
    separators: list[int] = []
    for node, (kids, clique) in enumerate(zip(tree.children, tree.joined_masks, strict=True), first):
        apart = [kid for kid in kids if kid >= first]
        # of neighbours, since a set that lies within any other lies within one on the way there
        while merged := [kid for kid in apart if clique & cliques[kid] in (clique, cliques[kid])]:
            clique |= cliques.pop(merged[0])
            apart.remove(merged[0])
        cliques[node] = clique
        separators += [tree.scope_masks[kid] for kid in apart]
    sizer = sizer_of(tree.dims)
    return JunctionTreeSizes(
        *(_sizes(sizer, [each for each in sets if each]) for sets in (cliques.values(), separators))
    )


def _sizes(sizer: Sizer, sets: Sequence[int]) -> SetSizes:
    """Return the sizes of sets of variables that are given as bit sets."""
    if not sets:
        return SetSizes()
    cells = [sizer.cells(mask) for mask in sets]
    variables = [mask.bit_count() for mask in sets]
    count = len(sets)
    return SetSizes(
        count=count,
        cells=sum(cells),
        least_cells=min(cells),
        mean_cells=sum(cells) / count,
        most_cells=max(cells),
        least_variables=min(variables),
        mean_variables=sum(variables) / count,
        most_variables=max(variables),
    )
