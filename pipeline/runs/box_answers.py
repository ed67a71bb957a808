"""The answer of a forward sweep in boxes: the values at the roots, and optimal states from the stored tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from typing import Any

import numpy as np

from ...tasks.boxes.box import added_shares
from ...tasks.boxes.codecs import root_table
from ...tasks.boxes.stores import picked
from ...tasks.steps.step import Step
from ..plans.problem import sliced_dims
from ..plans.repricing import lowered_step
from ..plans.stages import Stage
from ..queries.decode import decode
from .dense_boxes import BoxRun


def swept_roots(boxes: BoxRun[Any]) -> list[list[Any]]:
    """Run every unfinished box; return the root tables of each box at the roots, or of each of its parts, in order.

    The receipts of the boxes contain these tables.
    """
    boxes.resume()
    boxes.complete()
    return [roots for _, roots in ends(boxes)]


def ends(boxes: BoxRun[Any]) -> Iterator[tuple[dict[int, int], list[Any]]]:
    """Yield the fixed states and the root tables of every box at the roots, or of every part of the box."""
    spill, dtype = boxes.spill, boxes.run.problem.semiring.dtype
    stage, name = spill.stages[spill.top], boxes.found[spill.top].name
    for number in range(spill.boxes(stage)):
        value, states = boxes.receipts[name, (number, 0)].value, spill.states(stage, number)
        choices = product(*(range(spill.dims[v]) for v in value["also"]))
        for more, roots in zip(choices, value["parts"], strict=True):
            fixed = {**states, **dict(zip(value["also"], more, strict=True))}
            yield fixed, [root_table(boxes.codec, root, dtype) for root in roots]


def decoded(boxes: BoxRun[Any], best: int, is_optimal: Callable[[dict[int, int]], bool]) -> dict[int, int]:
    """Return the optimal states, given the best of :func:`ends`; lost or damaged chunks are computed again.

    Decoding reads slices of chunks, without the checksums of whole chunks. If the decoded states are not optimal, all
    checksums are verified.
    """
    return boxes.receipts.until_whole(lambda: _states(boxes, best), boxes.complete, is_optimal)


def _states(boxes: BoxRun[Any], best: int) -> dict[int, int]:
    """Decode stage by stage from the roots on, and read only the needed slices of tables."""
    assignment = dict(next(islice(ends(boxes), best, None))[0])
    for stage in reversed(boxes.spill.stages):
        scope = boxes.run.plan.tree.scopes[stage.head] if stage.head >= 0 else tuple(assignment)
        fixed = {v: assignment[v] for v in scope}
        assignment |= _decoded_stage(boxes, stage, fixed | _best_share(boxes, stage.head, fixed))
    return assignment


def _best_share(boxes: BoxRun[Any], head: int, fixed: Mapping[int, int]) -> dict[int, int]:
    """Return the states of the partial result with the least cost of a head; empty without partial results."""
    shared = boxes.spill.tables[head].shared if head >= 0 else ()
    if not shared:
        return {}
    spec = boxes.specs[head]
    costs = picked(boxes.store, spec, boxes.receipts.at(spec, fixed), fixed)
    place = np.unravel_index(int(costs.argmin()), [boxes.spill.dims[v] for v in shared])
    return dict(zip(shared, map(int, place), strict=True))


def _decoded_stage(boxes: BoxRun[Any], stage: Stage, fixed: Mapping[int, int]) -> dict[int, int]:
    """Sweep a stage again with the variables above it fixed, keeping its messages, and decode it."""
    steps, tables, sizes = swept_stage(boxes, stage, fixed)
    states = dict(fixed)
    decode(steps, tables, sizes, boxes.run.problem.semiring, states, boxes.run.compiled)
    return states


def swept_stage(
    boxes: BoxRun[Any], stage: Stage, fixed: Mapping[int, int]
) -> tuple[tuple[Step, ...], dict[int, Any], tuple[int, ...]]:
    """Sweep a stage again with the variables above it fixed; return its steps, all its tables, and domain sizes.

    If workers hold the devices, this process sweeps on its CPU.
    """
    run, spill = boxes.run, boxes.spill
    run = run if run.serial else replace(run, device=False)
    sizes, problem = sliced_dims(spill.dims, fixed), run.problem
    program = replace(run.program(stage.steps, ()), dims=spill.dims)
    tables = dict(program.restricted_leaves(fixed))
    for head in stage.inputs:
        tables[head] = _picked_sum(boxes, head, fixed)
    steps = tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in stage.steps)
    kept = program.again(steps, tables).run(keep=[s.node for s in steps], threads=run.threads)
    return steps, {**tables, **kept}, sizes


def _picked_sum(boxes: BoxRun[Any], head: int, fixed: Mapping[int, int]) -> Any:
    """Return the cells of a head's table at some states, the sum of its partial results."""
    spec, shared = boxes.specs[head], boxes.spill.tables[head].shared

    def read(at: Mapping[int, int]) -> Any:
        return picked(boxes.store, spec, boxes.receipts.at(spec, at), at)

    return added_shares(boxes.codec, shared, boxes.spill.dims, fixed, read)
