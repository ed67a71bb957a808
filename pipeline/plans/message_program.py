"""Plans of propagation as programs for a GPU: leaves that take findings, and the steps an answer needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.gpu.messages.layout import MOST_CELLS, MessageLayout, Operation, layout_of
from ...tasks.gpu.messages.propagation import ANSWER_CELLS, MessageProgram
from ...tasks.gpu.messages.records import MessageRecords, described, least_exponents
from ...tasks.gpu.tiling.tiling_policy import NOMINAL
from ...tasks.steps.axes import fuse
from ...tasks.steps.caches import Remembered
from ...tasks.steps.semiring import Law, Semiring
from ...tasks.sweeps.scaled import Scaled
from ...tasks.sweeps.table_packs import ScaledTables, TablePack, packed
from ..errors import ModelError
from ..trees.tree import Target
from .stages import DeviceNeeds

if TYPE_CHECKING:
    from .plan import Plan

Array = NDArray[Any]


@dataclass(frozen=True)
class DeviceLeaves:
    """Leaf tables as doubles.

    Parameters
    ----------
    law : {"sum_product", "min_plus"}
    packs : sequence of TablePack
        Probabilities of at most 1; or energies or costs, infinite where nothing is possible.
    log_scale : float
        Natural logarithm of the divisor of the probabilities.
    natural : bool
        False if a table spans more than doubles do, so that no device can answer.
    """

    law: Law
    packs: Sequence[TablePack]
    log_scale: float = 0.0
    natural: bool = True

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """All leaves, in the order of the packs."""
        return tuple([node for pack in self.packs for node in pack.nodes])


def probability_leaves(leaves: Mapping[int, Scaled]) -> DeviceLeaves:
    """Return tables of probabilities without their scales."""
    if isinstance(leaves, ScaledTables) and not any(pack.logs for pack in leaves.packs):
        return DeviceLeaves(
            "sum_product", leaves.packs, math.fsum([s for pack in leaves.packs for s in pack.log_scales])
        )
    scale = math.fsum([leaf.log_scale for leaf in leaves.values()])
    values = {node: np.exp(leaf.values) if leaf.logs else leaf.values for node, leaf in leaves.items()}
    return DeviceLeaves("sum_product", packed(values), scale, not any(leaf.logs for leaf in leaves.values()))


def cost_leaves(leaves: Mapping[int, Array], semiring: Semiring) -> DeviceLeaves:
    """Return tables of energies or costs. Integers become infinite from the saturating infinity on."""

    def doubles(table: Array) -> Array:
        return np.where(table < semiring.zero, table, math.inf) if semiring.saturates else table

    return DeviceLeaves("min_plus", [replace(pack, values=doubles(pack.values)) for pack in packed(leaves)])


def message_program(
    plan: Plan, leaves: DeviceLeaves, hosts: Mapping[int, int], targets: Sequence[Target], group: int = 1
) -> MessageProgram:
    """Turn a plan into a program that answers some targets.

    Parameters
    ----------
    plan : Plan
    leaves : DeviceLeaves
        Without findings; with all states where the plan has slices.
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
    asked = tuple(hosts.items()), tuple([plan.results[t] for t in targets])
    drawn = _laid_out(plan, *asked, group)
    nodes = leaves.nodes
    exponents = least_exponents(leaves.packs) if leaves.law == "sum_product" else [0] * len(nodes)

    def made() -> MessageProgram:
        return _program(plan, drawn, dict(zip(nodes, exponents, strict=True)), hosts, targets, leaves.law)

    more = *asked, tuple(targets), nodes, tuple(exponents), leaves.law, group
    return replace(_PROGRAMS.of(_parts(plan), more, made), log_scale=leaves.log_scale)


def _program(
    plan: Plan,
    drawn: tuple[_Tables, MessageLayout],
    exponents: Mapping[int, int],
    hosts: Mapping[int, int],
    targets: Sequence[Target],
    law: Law,
) -> MessageProgram:
    """Describe the messages of a plan as a program for the device.

    Parameters
    ----------
    plan : Plan
    drawn : (tables, layout)
        Numbers of all tables, and their places.
    exponents : mapping of int to int
        Exponent of the least entry of each leaf.
    hosts : mapping of int to int
        For each variable the leaf that its findings multiply.
    targets : sequence of Target
    law : str
        Semiring of the messages.

    Raises
    ------
    ModelError
        If a step joins more tables than the kernel takes.
    """
    (tables, layout), results, roots = drawn, [plan.results[t] for t in targets], plan.tree.roots
    try:
        least = {table: exponents[tables.leaf_of(table)] for table in layout.constant_at}
        records = described(layout, least, [tables.findings + v for v in hosts])
    except ValueError as error:
        raise ModelError(str(error)) from None
    if records.shared_bytes > NOMINAL.most_shared_bytes:
        most = max(kind.inputs for kind in layout.kinds)
        raise ModelError(f"a step joins {most} tables; propagation on a GPU takes about 300 at most")
    scaled: list[int] = []
    # only sums carry scales
    if law == "sum_product":
        scaled += [op.table for op in layout.operations if op.table in tables.hosting]
        scaled += [step.node for step in plan.up if step.node not in roots]
    return MessageProgram(
        records=records,
        constants={tables.leaf_of(table): at for table, at in records.constant_at.items()},
        findings={v: (records.slab_at[tables.findings + v], plan.tree.dims[v]) for v in hosts},
        targets=_places(records, results, [math.prod([plan.tree.dims[v] for v in t]) for t in targets]),
        scaled=np.array([records.numbers[table] for table in scaled], dtype=np.uint32),
        roots=np.array([records.slab_at[root] for root in roots], dtype=np.uint32),
        log_scale=0.0,
        law=law,
    )


def device_needs(plan: Plan) -> DeviceNeeds:
    """Return the GPU memory that a slice of a plan needs."""
    tree = plan.tree
    cells = [*tree.cells[: tree.n_leaves], *[step.lowered.out_cells for step in plan.steps]]
    if max(cells, default=0) >= MOST_CELLS:
        return DeviceNeeds(8 * sum(cells), False)
    _, layout = _laid_out(plan, (), tuple(plan.results.values()))
    answers = sum([math.prod([tree.dims[v] for v in target]) for target in plan.results]) + ANSWER_CELLS
    return DeviceNeeds(layout.fixed_bytes + layout.case_bytes(answers), layout.countable)


def _places(records: MessageRecords, results: Sequence[int], cells: Sequence[int]) -> NDArray[np.uint32]:
    places = np.zeros((len(results), 4), dtype=np.uint32)
    places[:, 0] = [records.slab_at[table] for table in results]
    places[:, 1] = cells
    places[1:, 2] = np.cumsum(cells)[:-1]
    return places


def constant_values(program: MessageProgram, leaves: DeviceLeaves) -> NDArray[np.float64]:
    """Return the leaf tables where the program expects them."""
    values = np.zeros(program.records.constant_cells)
    for pack in leaves.packs:
        pack.put(values, program.constants)
    return values


class _Tables:
    """Numbers of the tables that a plan does not have: leaves before findings, and the findings."""

    def __init__(self, plan: Plan, hosts: Mapping[int, int]) -> None:
        self._plan = plan
        self.hosting: dict[int, list[int]] = {}
        for v, leaf in hosts.items():
            self.hosting.setdefault(leaf, []).append(v)
        self.bare = 1 + max([plan.tree.n_leaves, *(step.node for step in plan.steps)])
        self.findings = self.bare + plan.tree.n_leaves

    def leaf_of(self, table: int) -> int:
        return table - self.bare if table >= self.bare else table

    def operations(self, results: Collection[int]) -> list[Operation]:
        """Return all steps that some results need."""
        return [*self._leaf_operations(), *_needed_operations(self._plan, results)]

    def constants(self, operations: Sequence[Operation]) -> dict[int, int]:
        """Return the cells of the tables that are read and not made, findings not among them."""
        made, plan = {op.table for op in operations}, self._plan
        read = dict.fromkeys(i for op in operations for i in op.inputs if i not in made and i < self.findings)
        return {i: math.prod(plan.tree.dims[v] for v in plan.layouts[self.leaf_of(i)]) for i in read}

    def _leaf_operations(self) -> Iterator[Operation]:
        """Multiply findings into the leaves that host them."""
        sizes = dict(enumerate(self._plan.tree.dims))
        for leaf, variables in self.hosting.items():
            axes = self._plan.layouts[leaf]
            inputs = (self.bare + leaf, *(self.findings + v for v in variables))
            yield Operation(leaf, inputs, fuse([axes, *((v,) for v in variables)], axes, sizes))


def _laid_out(
    plan: Plan, hosts: tuple[tuple[int, int], ...], results: tuple[int, ...], group: int = 1
) -> tuple[_Tables, MessageLayout]:
    """Return the tables of a plan and their places, which are found once for its price and its runs."""

    def made() -> tuple[_Tables, MessageLayout]:
        tables = _Tables(plan, dict(hosts))
        operations = tables.operations(results)
        findings = {tables.findings + v: plan.tree.dims[v] for v, _ in hosts}
        constants = tables.constants(operations)
        return tables, layout_of(operations, constants, findings, (*results, *plan.tree.roots), group=group)

    return _LAID_OUT.of(_parts(plan), (hosts, results, group), made)


def _parts(plan: Plan) -> tuple[object, ...]:
    """Return the parts of a plan that determine its messages; copies of a plan with another price share them."""
    return plan.tree, plan.layouts, plan.up, plan.back


# Describing thousands of steps takes far longer than running them.
_LAID_OUT: Final[Remembered[tuple[_Tables, MessageLayout]]] = Remembered()
_PROGRAMS: Final[Remembered[MessageProgram]] = Remembered()


def _needed_operations(plan: Plan, results: Collection[int]) -> list[Operation]:
    """The forward sweep, for the probability of the evidence, and what some results need of the backward one."""
    needed = {step.node for step in plan.up} | set(results)
    for step in reversed(plan.steps):
        if step.node in needed:
            needed.update(step.inputs)
    return [Operation(s.node, s.inputs, s.lowered.axes) for s in plan.steps if s.node in needed]
