"""Figures of answers as JSON has them, and assignments on one line."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..text import printable

if TYPE_CHECKING:
    from ..plans.plan import Plan


def plan_dict(plan: Plan | None) -> dict[str, int] | None:
    """Return the plan's figures that ``--json`` prints."""
    if plan is None:
        return None
    return {
        "width": plan.cost.width,
        "largest_table_cells": plan.cost.largest_table_cells,
        "cells": plan.cells,
        "peak_bytes": plan.peak_bytes,
        "tasks": plan.tasks,
        "slices": plan.slices,
    }


def plan_figures(plan: Plan | None) -> dict[str, int | str] | None:
    """Return the plan's figures that ``plan --json`` and ``marginals --json`` print."""
    if plan is None:
        return None
    spill = plan.spill
    return {
        **(plan_dict(plan) or {}),
        "steps": plan.cost.steps,
        **({} if plan.row_bounds is None else {"most_rows": plan.most_rows}),
        "way": plan.way,
        "disk_bytes": plan.disk_bytes,
        "disk_read_bytes": spill.read_bytes if spill else 0,
        "disk_written_bytes": spill.written_bytes if spill else 0,
    }


def shown_assignment(assignment: Mapping[str, str | int]) -> str:
    """Return the beginning of an assignment on one line."""
    shown = [f"{printable(k)}={printable(str(v))}" for k, v in list(assignment.items())[:8]]
    more = len(assignment) - len(shown)
    return ", ".join(shown) + (f", … and {more} more" if more > 0 else "")


def plain_number(value: Any) -> Any:
    """Return a number as JSON has it: a decimal that a float cannot hold as a string."""
    if isinstance(value, Decimal):
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return value
