"""How the tables of a plan are numbered: nodes of the tree first, then what comes from above each, then the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Numbering:
    """The numbers of tables over a tree.

    A node's table, a leaf or what its step makes on the way up, has the number of the node.

    >>> number = Numbering(5)
    >>> number.down(3), number.result(0)
    (8, 10)
    >>> number.is_up(3), number.is_down(8), number.node(8), number.node(3)
    (True, True, 3, 3)

    Parameters
    ----------
    nodes : int
        Of the tree, leaves included.
    """

    nodes: int

    def down(self, node: int) -> int:
        """Number of what comes from above a node."""
        return self.nodes + node

    def result(self, index: int) -> int:
        """Number of a result or a stored belief."""
        return 2 * self.nodes + index

    def is_up(self, table: int) -> bool:
        """Whether a table is a node's own."""
        return table < self.nodes

    def is_down(self, table: int) -> bool:
        """Whether a table is what comes from above a node."""
        return self.nodes <= table < 2 * self.nodes

    def node(self, table: int) -> int:
        """Return the node of a table that is its own or comes from above it."""
        return table % self.nodes
