"""Plans of propagation as programs for a GPU: leaves that take findings, and the steps an answer needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..tasks.axes import fuse
from ..tasks.gpu_messages import MOST_SHARED_BYTES, MessageProgram
from ..tasks.message_records import Constant, Operation, Records, least_exponent, records_of
from ..tasks.scaled import Scaled
from .combine import Target
from .errors import ModelError
from .twoway import TwoWay


def message_program(
    plan: TwoWay, leaves: Mapping[int, Scaled], hosts: Mapping[int, int], targets: Sequence[Target], group: int = 1
) -> MessageProgram:
    """Turn a plan into a program that answers some targets.

    Parameters
    ----------
    plan : TwoWay
    leaves : mapping of int to Scaled
        Leaf tables without findings, in natural values of at most 1; with all states where the plan has slices.
    hosts : mapping of int to int
        For each variable that findings may name, the leaf that takes them.
    targets : sequence of Target
    group : int
        Cases that are computed together.

    Raises
    ------
    ModelError
        If a step joins more tables than a block of threads has room for, or tables are too large to count.
    """
    tables = _Tables(plan, leaves, hosts)
    results = [plan.results[t] for t in targets]
    operations = [*tables.leaf_operations(), *_needed_operations(plan, results)]
    made = {op.table for op in operations}
    constants = {i: tables.constant(i) for op in operations for i in op.inputs if i not in made and i < tables.findings}
    findings = {tables.findings + v: plan.tree.dims[v] for v in hosts}
    try:
        records = records_of(operations, constants, findings, results, group=group)
    except ValueError as error:
        raise ModelError(str(error)) from None
    if records.shared_bytes > MOST_SHARED_BYTES:
        most = max(len(op.inputs) for op in operations)
        raise ModelError(f"a step joins {most} tables; propagation on a GPU takes about 300 at most")
    roots = plan.tree.roots
    scaled = [op.table for op in operations if op.table in tables.hosting]
    scaled += [step.node for step in plan.up if step.node not in roots]
    return MessageProgram(
        records=records,
        constants={tables.leaf_of(table): at for table, at in records.constant_at.items()},
        findings={v: (records.slab_at[tables.findings + v], plan.tree.dims[v]) for v in hosts},
        targets=_places(records, results, [math.prod(plan.tree.dims[v] for v in t) for t in targets]),
        scaled=np.array([records.numbers[table] for table in scaled], dtype=np.uint32),
        roots=np.array([records.slab_at[root] for root in roots], dtype=np.uint32),
        log_scale=math.fsum(leaf.log_scale for leaf in leaves.values()),
    )


def _places(records: Records, results: Sequence[int], cells: Sequence[int]) -> NDArray[np.uint32]:
    places = np.zeros((len(results), 4), dtype=np.uint32)
    places[:, 0] = [records.slab_at[table] for table in results]
    places[:, 1] = cells
    places[1:, 2] = np.cumsum(cells)[:-1]
    return places


def constant_values(program: MessageProgram, leaves: Mapping[int, Scaled]) -> NDArray[np.float64]:
    """Return the leaf tables where the program expects them."""
    values = np.zeros(program.records.constant_cells)
    for leaf, at in program.constants.items():
        table = leaves[leaf].values
        values[at : at + table.size] = table
    return values


class _Tables:
    """Numbers of the tables that a plan does not have: leaves before findings, and the findings."""

    def __init__(self, plan: TwoWay, leaves: Mapping[int, Scaled], hosts: Mapping[int, int]) -> None:
        self._plan, self._leaves = plan, leaves
        self.hosting: dict[int, list[int]] = {}
        for v, leaf in hosts.items():
            self.hosting.setdefault(leaf, []).append(v)
        self.bare = 1 + max(plan.axes, default=0)
        self.findings = self.bare + plan.tree.n_leaves

    def leaf_of(self, table: int) -> int:
        return table - self.bare if table >= self.bare else table

    def constant(self, table: int) -> Constant:
        leaf = self.leaf_of(table)
        cells = math.prod(self._plan.tree.dims[v] for v in self._plan.layouts[leaf])
        return Constant(cells, least_exponent(self._leaves[leaf].values))

    def leaf_operations(self) -> Iterator[Operation]:
        """Multiply findings into the leaves that host them."""
        sizes = dict(enumerate(self._plan.tree.dims))
        for leaf, variables in self.hosting.items():
            axes = self._plan.layouts[leaf]
            inputs = (self.bare + leaf, *(self.findings + v for v in variables))
            yield Operation(leaf, inputs, fuse([axes, *((v,) for v in variables)], axes, sizes))


def _needed_operations(plan: TwoWay, results: Collection[int]) -> list[Operation]:
    """The forward sweep, for the probability of the evidence, and what some results need of the backward one."""
    needed = {step.node for step in plan.up} | set(results)
    for step in reversed(plan.steps):
        if step.node in needed:
            needed.update(step.inputs)
    return [Operation(s.node, s.inputs, s.lowered.axes) for s in plan.steps if s.node in needed]
