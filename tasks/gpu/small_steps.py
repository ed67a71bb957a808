"""Small steps of a sweep in few launches: independent steps share a launch, whatever their axes.

Choosing a launch for a step takes ten times as long as NumPy takes for a small step. One kernel therefore runs all
small steps, with sizes and strides as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..steps.semiring import Semiring
from ..steps.step import Step
from . import arrays
from .device_policy import DevicePolicy
from .kernels import Kernel, Launch, kernel
from .stream_launch import bound_of
from .tiling.streams import THREADS

Array = NDArray[Any]

_AXES: Final = 32
"""Most axes of a step; as in ``cuda/small.cu``."""

_SHAPE: Final = np.dtype(
    [
        (name, "i4")
        for name in ("table", "inputs", "axis", "axes", "summed", "stride", "lanes", "item", "cells", "depth")
    ]
)
"""The layout of ``Shape`` there."""

_STEPS: Final = np.dtype([("inputs", "u8", 5), ("out", "u8", 0), ("bound", "i8"), ("first", "i4")], align=True)
"""The layout of ``Steps`` there: its inputs are lists on the device."""


class SmallRun(NamedTuple):
    """The sizes of a step's output, as in `DeviceRun`."""

    cells: int
    out_bytes: int
    workspace_bytes: int = 0


def takes(step: Step) -> bool:
    """Whether a step may be among small ones."""
    lowered = step.lowered
    return lowered.cells <= DevicePolicy.current().small_step_cells and len(lowered.axes.sizes) <= _AXES


class SmallSteps:
    """Small steps of a sweep, which read only leaf tables and each other's.

    Parameters
    ----------
    steps : sequence of Step
        In execution order, the steps that a launch `takes`.
    semiring : Semiring
        Of all tables: costs, or residues.

    Attributes
    ----------
    steps : list of Step
        In the order of their launches.
    runs : dict of int to SmallRun
        The output of each step, by its node.
    kernels : sequence of Kernel
        The kernel of the launches, if there are steps.
    """

    def __init__(self, steps: Sequence[Step], semiring: Semiring) -> None:
        levels = dict[int, int]()
        for step in steps:
            levels[step.node] = 1 + max([levels.get(i, -1) for i in step.inputs])
        self.steps = sorted(steps, key=lambda step: levels[step.node])
        self.runs = {
            step.node: SmallRun(step.lowered.out_cells, step.lowered.out_cells * semiring.itemsize) for step in steps
        }
        self.kernels: Sequence[Kernel] = ()
        if not steps:
            return
        self._kernel = small_kernel(semiring)
        self.kernels = [self._kernel]
        self._bound = bound_of(semiring)
        self._tables = [node for step in self.steps for node in (*step.inputs, step.node)]
        self._parts = _described(self.steps)
        items = np.diff([*self._parts["shapes"]["item"].tolist(), len(self._parts["steps"])])
        level = [levels[step.node] for step in self.steps]
        ends = np.bincount(level, items).cumsum().astype(int).tolist()
        self._spans = list(zip([0, *ends], ends, strict=False))
        self._held: list[Any] = []

    def bound(self, at: Mapping[int, int]) -> Iterator[tuple[Launch, list[int]]]:
        """Return the launches with fixed addresses of tables; their other input stays until new launches are made."""
        if not self.steps:
            return
        lists = [np.array([at[node] for node in self._tables], np.uint64), *self._parts.values()]
        self._held = arrays.upload([part.view(np.uint8) for part in lists])
        places = [part.data.ptr for part in self._held]
        for first, last in self._spans:
            record = np.zeros((), _STEPS)
            record["bound"], record["first"] = self._bound, first
            yield Launch(self._kernel, record, (range(len(places)), ()), last - first, THREADS), places


def small_kernel(semiring: Semiring) -> Kernel:
    """Return the kernel of small steps of a semiring."""
    clamp = {"CLAMP": 1} if semiring.saturates else {}
    return kernel("small", semiring.name, semiring.dtype, **clamp)


def _described(steps: Sequence[Step]) -> dict[str, Array]:
    """Return the launch's description of some steps."""
    policy = DevicePolicy.current()
    axes = [step.lowered.axes for step in steps]
    shapes = np.zeros(len(steps), _SHAPE)
    shapes["inputs"] = inputs = np.array([len(each.strides) for each in axes], np.int32)
    shapes["axes"] = counts = np.array([len(each.sizes) for each in axes], np.int32)
    shapes["summed"] = [each.eliminated for each in axes]
    shapes["cells"] = cells = np.array([step.lowered.out_cells for step in steps], np.int64)
    shapes["depth"] = depth = np.array([step.lowered.cells for step in steps], np.int64) // cells
    for name, entries in (("table", inputs + 1), ("axis", counts), ("stride", (inputs + 1) * counts)):
        shapes[name][1:] = entries.cumsum()[:-1]
    wanted = np.clip(-(-depth * inputs // policy.small_lane_cells), 1, np.minimum(depth, THREADS))
    shapes["lanes"] = lanes = 1 << np.floor(np.log2(wanted)).astype(np.int64)
    items = -(-cells * lanes // THREADS)
    shapes["item"][1:] = items.cumsum()[:-1]
    strides = chain.from_iterable(chain(chain.from_iterable(each.strides), each.out) for each in axes)
    return {
        "shapes": shapes,
        "sizes": np.fromiter(chain.from_iterable(each.sizes for each in axes), np.int32),
        "strides": np.fromiter(strides, np.int32),
        "steps": np.repeat(np.arange(len(steps), dtype=np.int32), items),
    }
