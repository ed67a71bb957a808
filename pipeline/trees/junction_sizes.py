"""Sizes of a junction tree: of its cliques, and of the separators between them, as papers on propagation list them.

A cycle of four binary variables, with two variables eliminated one after the other:

>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> sizes = junction_tree_sizes(bucket_tree((2, 2, 2, 2), [(0, 1), (1, 2), (2, 3), (0, 3)], order=(0, 1, 2, 3)))
>>> sizes.nodes, sizes.cells, sizes.cliques.most_variables, sizes.separators.mean_cells
(2, 16, 3, 4.0)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tasks.steps.light_dataclass import dataclass
from .tree import Sizer, Tree, sizer_of


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
