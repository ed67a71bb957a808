"""Small tables side by side in one array: they are made together, sent together, and looked at one by one if at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.light_dataclass import dataclass
from ..steps.policy import SweepPolicy
from .scaled import Scaled

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class TablePack:
    """Some tables, one after another.

    Parameters
    ----------
    nodes : tuple of int
    cells : tuple of int
        How many each has, one at least.
    values : ndarray, flat
    """

    nodes: tuple[int, ...]
    cells: tuple[int, ...]
    values: Array

    @cached_property
    def starts(self) -> list[int]:
        """Where each table starts, and where the last one ends."""
        return [*accumulate(self.cells, initial=0)]

    def split(self) -> list[Array]:
        """Return each table."""
        if len(self.cells) == 1:
            return [self.values]
        return [self.values[start : start + cells] for start, cells in zip(self.starts, self.cells, strict=False)]

    def put(self, into: Array, places: Mapping[int, int]) -> None:
        """Copy the tables to their places in a flat array; those without one are left out."""
        if len(self.nodes) == 1:
            if (at := places.get(self.nodes[0])) is not None:
                into[at : at + self.values.size] = self.values
            return
        first = np.array([places.get(node, -1) for node in self.nodes], np.intp)
        counts = np.array(self.cells, np.intp)
        to = np.repeat(first - np.array(self.starts[:-1], np.intp), counts) + np.arange(self.values.size)
        if first.min() >= 0:
            into[to] = self.values
        else:
            there = np.repeat(first >= 0, counts)
            into[to[there]] = self.values[there]


def packed(tables: Mapping[int, Array]) -> list[TablePack]:
    """Copy small flat tables into shared packs, in the layout of sliced leaf tables; each large table is a separate
    pack.
    """
    packs, some, cells, policy = [], list[int](), 0, SweepPolicy.current()
    for node, table in tables.items():
        if table.size > policy.sliced_cells:
            packs.append(TablePack((node,), (table.size,), table))
            continue
        if cells + table.size > policy.sliced_together:
            packs.append(_beside(tables, some))
            some, cells = [], 0
        some.append(node)
        cells += table.size
    return [*packs, _beside(tables, some)] if some else packs


def _beside(tables: Mapping[int, Array], nodes: Sequence[int]) -> TablePack:
    own = [tables[node] for node in nodes]
    return TablePack(tuple(nodes), tuple([table.size for table in own]), np.concatenate(own))


@dataclass(frozen=True, eq=False)
class ScaledPack(TablePack):
    """Some scaled tables; see `Scaled` for what each has.

    Parameters
    ----------
    log_scales, lows, highs : sequence of float
    logs : frozenset of int
        Places of the tables that are logarithms.
    """

    log_scales: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    logs: frozenset[int] = frozenset()

    @classmethod
    def of(cls, tables: Mapping[int, Scaled]) -> ScaledPack:
        """Copy some tables side by side; one alone is not copied."""
        each = [*tables.values()]
        return cls(
            tuple(tables),
            tuple([table.values.size for table in each]),
            each[0].values if len(each) == 1 else np.concatenate([table.values for table in each]),
            [table.log_scale for table in each],
            [table.low for table in each],
            [table.high for table in each],
            frozenset([k for k, table in enumerate(each) if table.logs]),
        )

    def tables(self) -> list[Scaled]:
        """Return each table."""
        parts = zip(self.split(), self.log_scales, self.lows, self.highs, strict=True)
        found = [Scaled(*part) for part in parts]
        for k in self.logs:
            found[k].logs = True
        return found


class ScaledTables(Mapping[int, Scaled]):
    """Tables by node, of several packs; they are told apart where one of them is asked for.

    Parameters
    ----------
    packs : sequence of ScaledPack
    nodes : sequence of int
        All of them, in the order in which they are listed.
    """

    def __init__(self, packs: Sequence[ScaledPack], nodes: Sequence[int]) -> None:
        self.packs, self._nodes = packs, nodes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.packs, self._nodes)

    @cached_property
    def _each(self) -> dict[int, Scaled]:
        found = dict(chain.from_iterable([zip(pack.nodes, pack.tables(), strict=True) for pack in self.packs]))
        return {node: found[node] for node in self._nodes}

    def __getitem__(self, node: int) -> Scaled:
        return self._each[node]

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)
