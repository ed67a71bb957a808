"""One box of the way back: read what comes from above and below, propagate both ways inside, write what goes on.

A variable that a box fixes and that the reader of a message does not know has to be summed over all boxes, or
minimised. Every box writes its share, cut along such variables; the reader adds the shares up as it reads them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...storage import ledger
from ...storage.chunks import write_chunk
from ...storage.spec import Receipt, TableSpec
from ..steps.step import Step
from ..sweeps.beliefs import above_least, weighed
from ..sweeps.scaled import Scaled, from_logs, joined_scales, measured
from ..sweeps.sweep import Algebra, useful_threads
from .boxes import Codec, finished, new_receipt, read_box, write_box

Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class DownBox(Generic[T]):
    """What all boxes of a stage share on the way back.

    Parameters
    ----------
    folder : Path
        The run directory, as every worker sees it.
    steps : tuple of Step
        Both ways, lowered for the sizes inside a box.
    freed : tuple of tuple of int
        For each step the tables that nobody needs after it.
    leaves : mapping of int to table
        Leaf tables with all states.
    leaf_axes : mapping of int to tuple of int
    sizes : tuple of int
        Domain sizes without boxes.
    algebra : Algebra
        For the sizes inside a box.
    inputs : mapping of int to TableSpec
        Tables on disk that the steps read, by number.
    shares : mapping of int to tuple of int
        Of an input the variables whose shares are to be added up; none for most.
    outputs : mapping of int to tuple of TableSpec
        Tables on disk that a table of the steps, or an input, is written to.
    results : tuple of int
        Tables that are beliefs.
    roots : tuple of int
        Tables of the value of everything; none but in the last stage.
    found : TableSpec
        The array of what the boxes find: for each its weights and its beliefs.
    infinity : float
        From here on costs and energies are forbidden.
    codec : Codec
    disk_rate : float, optional
        Where compression may pay; see :class:`~.boxes.Box`.
    """

    folder: Path
    steps: tuple[Step, ...]
    freed: tuple[tuple[int, ...], ...]
    leaves: Mapping[int, T]
    leaf_axes: Mapping[int, tuple[int, ...]]
    sizes: tuple[int, ...]
    algebra: Algebra[T]
    inputs: Mapping[int, TableSpec]
    shares: Mapping[int, tuple[int, ...]]
    outputs: Mapping[int, tuple[TableSpec, ...]]
    results: tuple[int, ...]
    roots: tuple[int, ...]
    found: TableSpec
    infinity: float
    codec: Codec[T]
    disk_rate: float | None = None


def run_down_box(
    box: DownBox[T],
    number: int,
    states: Mapping[int, int],
    receipts: Mapping[str, Sequence[Receipt]],
    wanted: Mapping[str, Collection[tuple[int, ...]]],
    threads: int,
) -> list[Receipt]:
    """Task: do one box and return its receipts, which are on disk by then.

    Parameters
    ----------
    number : int
        Of the box within its stage.
    states : mapping of int to int
        The variables that the box fixes.
    receipts : mapping
        For each input table the receipts of the chunks that the box needs.
    wanted : mapping
        For each table the chunks to write; those that are there from an earlier run stay as they are.
    """
    start = time.perf_counter()
    written = [spec for specs in (*box.outputs.values(), (box.found,)) for spec in specs if spec.name in wanted]
    if done := _all_finished(box.folder, written, wanted):
        return done
    live = {
        node: box.algebra.restrict(table, box.leaf_axes[node], box.sizes, states) for node, table in box.leaves.items()
    }
    for node, spec in box.inputs.items():
        live[node] = _read_shares(box, spec, receipts[spec.name], states, box.shares.get(node, ()))

    def write(node: int) -> None:
        for spec in box.outputs.get(node, ()):
            if spec.name in wanted:
                done.extend(
                    write_box(box.folder, spec, box.codec, live[node], states, wanted[spec.name], start, box.disk_rate)
                )

    for node in box.inputs:
        write(node)
    for step, gone in zip(box.steps, box.freed, strict=True):
        live[step.node] = box.algebra.step(step, [live[i] for i in step.inputs], useful_threads(step, threads))
        write(step.node)
        for i in gone:
            del live[i]
    if box.found.name in wanted:
        done.append(_store(box, number, live, start))
    ledger.append(box.folder, done)
    return done


def _all_finished(
    folder: Path, specs: Sequence[TableSpec], wanted: Mapping[str, Collection[tuple[int, ...]]]
) -> list[Receipt]:
    """Return the receipts of a box that was done before, or nothing."""
    found: list[Receipt] = []
    for spec in specs:
        receipts = finished(folder, spec, wanted[spec.name])
        if not receipts:
            return []
        found += receipts
    return found


def _store(box: DownBox[T], number: int, live: Mapping[int, T], start: float) -> Receipt:
    """Write the weights and the beliefs of a box; the receipt holds the values at the roots."""
    beliefs = [_weighed(live[node], box.infinity) for node in box.results]
    values = np.zeros(box.found.shape[1], box.found.dtype)
    if beliefs:
        np.concatenate([[weight for weight, _ in beliefs], *(table for _, table in beliefs)], out=values)
    chunk = (number, 0)
    nbytes, checksum = write_chunk(box.folder, box.found, chunk, values)
    packed = [box.codec.pack(live[node]) for node in box.roots]
    roots = [{"root": entry.reshape(-1)[0].item(), **kept} for entry, kept in packed]
    return new_receipt(box.found.name, chunk, nbytes, checksum, start, {"roots": roots})


def _weighed(belief: Any, infinity: float) -> tuple[Any, Array]:
    return weighed(belief) if isinstance(belief, Scaled) else above_least(belief, infinity)


def _read_shares(
    box: DownBox[T],
    spec: TableSpec,
    receipts: Sequence[Receipt],
    states: Mapping[int, int],
    shared: tuple[int, ...],
) -> T:
    """Read the part of a table that agrees with ``states``, adding up its shares."""
    if not shared:
        return read_box(box.folder, spec, box.codec, receipts, states)
    axes = [spec.variables.index(v) for v in shared]
    chunks: dict[tuple[int, ...], list[Receipt]] = {}
    for receipt in receipts:
        chunks.setdefault(tuple(receipt.chunk[a] for a in axes), []).append(receipt)
    total: Any = None
    for combination in product(*(range(box.sizes[v]) for v in shared)):
        at = {**states, **dict(zip(shared, combination, strict=True))}
        share = read_box(box.folder, spec, box.codec, chunks[combination], at)
        total = share if total is None else _added(total, share)
    if isinstance(total, Scaled):
        total = from_logs(total.values, total.log_scale) if total.logs else measured(total.values, total.log_scale)
    return total  # type: ignore[no-any-return]


def _added(total: Any, share: Any) -> Any:
    """Add a share to a sum, in place: least of energies and costs, sum of probabilities."""
    if not isinstance(total, Scaled):
        return np.minimum(total, share, out=total)
    joined = joined_scales(total.values, [(total.values, total), (share.values, share)])
    add = np.logaddexp if joined.logs else np.add
    add(total.values, share.values, out=total.values)
    # twice the larger of the two at most
    return replace(joined, values=total.values, high=joined.high + math.log(2.0))
