"""The answer of a propagation in boxes: the sum of the results of all boxes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...storage.spec import TableSpec
from ...tasks.steps.number_limits import FAR_INTEGER
from ..plans.problem import sliced_dims
from ..queries.beliefs import Beliefs, place
from ..trees.tree import Target
from .box_answers import ends
from .dense_boxes import BoxRun


def propagated(boxes: BoxRun[Any]) -> Beliefs:
    """Run every box that is not done yet and add up what all have found; tables between stages go, unless kept."""
    boxes.resume()
    boxes.complete()
    beliefs = boxes.receipts.until_whole(lambda: _beliefs(boxes), boxes.complete)
    for spec in () if boxes.keep else boxes.specs.values():
        boxes.store.delete(spec)
    return beliefs


def _beliefs(boxes: BoxRun[Any]) -> Beliefs:
    """Add up what the boxes have found."""
    arithmetic = boxes.run.arithmetic
    total = arithmetic.joined(arithmetic.total(roots) for _, roots in ends(boxes))
    if total is None:
        return Beliefs(None, {})
    tables: dict[Target, Any] = {}
    for index, spec in boxes.found.items():
        tables |= _stage_beliefs(boxes, index, spec)
    return Beliefs(total, tables)


def _stage_beliefs(boxes: BoxRun[Any], index: int, spec: TableSpec) -> dict[Target, Any]:
    """Add up the beliefs of the boxes of one stage, each target's with weights of its own."""
    stage, dims = boxes.spill.stages[index], boxes.spill.dims
    if not stage.results:
        return {}
    sizes = sliced_dims(dims, stage.boxed)
    combiners = {t: boxes.run.arithmetic.combiner({t: tuple(dims[v] for v in t)}) for t in stage.results}
    values = np.empty((1, spec.shape[1]), spec.dtype)
    for number in range(spec.shape[0]):
        boxes.store.load(spec, values, [boxes.receipts[spec.name, (number, 0)]], {spec.variables[0]: number})
        states = boxes.spill.states(stage, number)
        start = len(combiners)
        for weight, (target, combiner) in zip(values[0], combiners.items(), strict=False):
            cells = prod(sizes[v] for v in target)
            if np.isfinite(weight) and weight != FAR_INTEGER:
                combiner.add(weight.item(), {target: (values[0, start : start + cells], place(target, states))})
            start += cells
    return {target: combiner.beliefs().tables[target] for target, combiner in combiners.items()}
