"""Projections of joins that are never stored: by NumPy at once where they are small, else by the dense engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.cpu.dense import run
from ...tasks.gpu.arrays import aligned, is_device
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy
from ...tasks.steps.semiring import Semiring
from ...tasks.steps.step import Step, make_step
from ...tasks.sweeps.sweep import useful_threads
from ..cost_networks.cost_network import CostTable
from ..trees.costs import Rates, gpu_rates
from .partition import MiniBucket, Partition, Scope

if TYPE_CHECKING:
    from ...tasks.gpu.kernels import Kernel

# Least costs over an axis of no more states are found state by state, which takes a tenth.
SHORT_STATES: Final = 16


@dataclass(frozen=True)
class BucketPolicy(Policy):
    """The numbers behind joins of mini-buckets, and where messages are.

    Parameters
    ----------
    quick_cells, quick_sum_cells : int
        Cells of joins that NumPy does directly, which takes microseconds while a step takes hundreds: for least costs,
        and for sums of logarithms, which get slower sooner.
    easy_cells : int
        With at most this many cells and no split bucket, the first order is good enough.
    bucket_seconds, cell_seconds : float
        Assumed seconds of a mini-bucket, and of a cell of least costs or of sums, before a round was measured. Measured
        seconds per cell range from 4e-9 for large domains to 1e-7 for binary ones.
    first_part : float
        The first round has the largest size that takes 1 / this of the time. Smaller sizes have worse bounds and take
        most of this time.
    other_orders : int
        Orders that are tried once no larger size fits: of 16 on CELAR6-SUB1 the best bound was 837, the first 396.
    first_entries : int
        Initial memory of a loss search.
    eager_loss : float
        The search continues below a state until it loses more than the next state by this amount.
    """

    quick_cells: int = 1 << 16
    quick_sum_cells: int = 1 << 13
    easy_cells: int = 1 << 22
    bucket_seconds: float = 5e-4
    cell_seconds: float = 1e-7
    first_part: float = 10.0
    other_orders: int = 16
    first_entries: int = 1 << 12
    eager_loss: float = 0.05


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BucketTable:
    """A table of a bucket, or a message: ``costs`` is flat, the last variable of ``scope`` changes fastest.

    A message and the messages below it added ``below`` to the bound.
    """

    scope: Scope
    costs: Any
    below: int = 0


@dataclass(frozen=True)
class Joins:
    """How tables are joined and projected.

    Parameters
    ----------
    dims : tuple of int
        Domain sizes.
    semiring : Semiring
        Min-plus or log-sum over float64.
    threads : int
        Threads of large steps.
    compiled : bool
        Whether compiled kernels may be used.
    device_cells : int, optional
        Minimum cells of a join that runs on the GPU and leaves its result there.
    policy : BucketPolicy
        The one in force when this was made.
    """

    dims: tuple[int, ...]
    semiring: Semiring
    threads: int = 1
    compiled: bool = True
    device_cells: int | None = None
    policy: BucketPolicy = field(default_factory=BucketPolicy.current, compare=False)

    def projected(self, scope: Scope, tables: Sequence[BucketTable], kept: Scope) -> Any:
        """Join tables whose variables are ``scope``, and eliminate all that are not kept; flat."""
        cells = math.prod([self.dims[v] for v in scope])
        if self.device_cells is not None and cells >= self.device_cells:
            from ...tasks.gpu import launch as gpu

            return gpu.run(self._step(tables, kept).lowered, [table.costs for table in tables])
        costs = [table.costs.get() if is_device(table.costs) else table.costs for table in tables]
        policy = self.policy
        if cells > (policy.quick_cells if self.semiring.name == "min_plus" else policy.quick_sum_cells):
            step = self._step(tables, kept)
            return run(step.lowered, costs, threads=useful_threads(step, self.threads), compiled=self.compiled)
        return self._at_once(scope, tables, costs, kept)

    def _step(self, tables: Sequence[BucketTable], kept: Scope) -> Step:
        inputs = tuple([table.scope for table in tables])
        return make_step(0, tuple(range(len(tables))), inputs, kept, self.dims, self.semiring)

    def _at_once(self, scope: Scope, tables: Sequence[BucketTable], costs: Sequence[Array], kept: Scope) -> Array:
        wide = [v for v in scope if self.dims[v] > 1]
        views = []
        for table, each in zip(tables, costs, strict=True):
            inside = frozenset(table.scope)
            views.append(each.reshape([self.dims[v] if v in inside else 1 for v in wide]))
        joined = reduce(np.add, views)
        gone = tuple([i for i, v in enumerate(wide) if v not in kept])
        found = (
            reduced(np.minimum, joined, gone, SHORT_STATES)
            if self.semiring.name == "min_plus"
            else _log_sums(joined, gone)
        )
        return np.asarray(found).reshape(-1)


def least_device_cells(semiring: Semiring) -> int:
    """Return the cells from which a device is predicted to end a join of a mini-bucket before the cores.

    A device needs copies of the tables, and a pass over the message for its least entry. Both together take as long as
    Python's work for a mini-bucket on the cores.
    """
    cores, device = _cell_seconds(semiring), 1.0 / gpu_rates(semiring).cells_per_second
    return int((BucketPolicy.current().bucket_seconds - Rates().step_seconds) / (cores - device))


def _cell_seconds(semiring: Semiring) -> float:
    """Return the predicted seconds of a cell on the cores; sums of logarithms are slower."""
    policy, seconds = BucketPolicy.current(), 1.0 / Rates().cells_per_second
    return seconds if semiring.name == "min_plus" else seconds * policy.quick_cells / policy.quick_sum_cells


def runs_on_cores(split: Partition, semiring: Semiring, least_cells: int, start: float = 0.0) -> bool:
    """Return whether the cores end the large joins of an elimination before a device has compiled its kernels.

    Parameters
    ----------
    split : Partition
    semiring : Semiring
    least_cells : int
        Minimum cells of a large join.
    start : float
        Predicted seconds until the device starts; 0 if it has started.
    """
    from ...tasks.gpu.cold_kernels import cores_end_first

    large = [(bucket, mini) for bucket in split.buckets for mini in bucket if mini.cells >= least_cells]
    # the parts of a split bucket are first projected to their common variables, which is a second join
    times = [1 if len(bucket) == 1 else 2 for bucket, _ in large]
    cells = sum([count * mini.cells for count, (_, mini) in zip(times, large, strict=True)])
    cores = cells * _cell_seconds(semiring) + sum(times) * Rates().step_seconds
    device = cells / gpu_rates(semiring).cells_per_second + sum(times) * BucketPolicy.current().bucket_seconds
    return cores_end_first(_kernels(split, semiring, large), cores, device, start)


def _kernels(
    split: Partition, semiring: Semiring, minis: Iterable[tuple[Sequence[MiniBucket], MiniBucket]]
) -> Iterator[Kernel]:
    """Yield the kernels that join mini-buckets, each with its bucket, on a device."""
    from ...tasks.gpu import launch as gpu

    for bucket, mini in minis:
        scopes = [split.scopes[t] for t in mini.tables]
        joins = [(scopes, mini.message)]
        if len(bucket) > 1:
            common = split.shared(bucket)
            joins = [(scopes, common), ([*scopes, common], mini.message)]
        for inputs, kept in joins:
            step = make_step(0, tuple(range(len(inputs))), tuple(inputs), kept, split.dims, semiring)
            yield from gpu.step_kernels(step.lowered)


def reduced(operation: np.ufunc, values: Array, axes: Sequence[int], most: int) -> Array:
    """Reduce some axes, neighbours at once; short ones, of ``most`` states, slice by slice, which takes a tenth."""
    shape, end = values.shape, len(values.shape)
    while end:
        start = end
        while start - 1 in axes:
            start -= 1
        if start == end:
            end -= 1
            continue
        parts = values.reshape(math.prod(shape[:start]), math.prod(shape[start:end]), -1)
        count = parts.shape[1]
        if count <= most:
            values = reduce(operation, [parts[:, a] for a in range(count)])
        else:
            values = operation.reduce(parts, axis=1)
        shape, end = shape[:start] + shape[end:], start
    return values.reshape(shape)


def _log_sums(logs: Array, axes: tuple[int, ...]) -> Array:
    top = logs.max(axis=axes, keepdims=True)
    top = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        sums: Array = np.log(np.exp(logs - top).sum(axis=axes)) + top.squeeze(axes)
    return sums


def ordered(table: CostTable, scope: Scope) -> Array:
    """Return a table's values, flat, with its variables in the order of ``scope``."""
    if table.scope == scope:
        return table.costs.reshape(-1)
    return np.ascontiguousarray(table.costs.transpose([table.scope.index(v) for v in scope])).reshape(-1)


def on_one_side(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays that are all on the device if one of them is."""
    return aligned(arrays)[0] if any(map(is_device, arrays)) else list(arrays)
