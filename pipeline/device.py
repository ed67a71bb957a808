"""Plans for GPUs: their rates, and what the passes of a step need on the device besides its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..tasks.gpu_lowering import device_step
from .costs import GPU_RATES
from .errors import ModelError
from .fit import Fit, Prices, fitted
from .plan import Plan, PlanOptions, Problem

_TRIES = 4
# Partial sums and small joins: the part of a device's memory that no plan may use is larger.
_MUCH_BYTES = 1 << 28


def fitted_for_device(
    problem: Problem,
    options: PlanOptions,
    fit: Fit,
    disk_bytes: int | None,
    disk_rate: Callable[[], float],
) -> Prices:
    """Plan a query whose tables, and the temporaries between passes, fit one device; see :func:`fit.fitted`.

    Raises
    ------
    ModelError
        If tables are to be kept on disk, which GPUs do not read yet.
    BudgetError
        If slicing does not bring the plan into the memory of a device.
    """
    if fit == "spill":
        raise ModelError("--fit spill does not work with --gpus; leave it out, and the plan is sliced to fit a GPU")
    wanted = options
    for _ in range(_TRIES):
        prices = fitted(problem, wanted, GPU_RATES, "slice" if fit == "auto" else fit, disk_bytes, disk_rate)
        excess = prices.chosen.peak_bytes + temporary_bytes(prices.chosen) - options.memory_bytes
        if excess <= 0:
            break
        children = prices.memory.tree.children
        wanted = replace(wanted, memory_bytes=max(wanted.memory_bytes - excess, 0), children=children)
    return prices


def temporary_bytes(plan: Plan) -> int:
    """Return the most that the temporaries of one step take on the device, if that is much."""
    most = max((device_step(s.lowered).workspace_cells for s in plan.steps), default=0) * plan.itemsize
    return most if most >= _MUCH_BYTES else 0
