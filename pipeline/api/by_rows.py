"""Questions answered by rows: where that is tried first, and in how many slices, as tables become known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from ...tasks.sweeps.rows.room import NoRoomError, Room, TooMuchWorkError
from ..budget.fit import Prices
from ..budget.rows_fit import is_sparse, with_more_slices
from ..errors import BudgetError
from ..models.leaf_rows import possible
from ..results.rows_work import RowsWork
from .prepared import Prepared, by_rows, known_rates, plan_options, planned

A = TypeVar("A")

# A shorter sweep of all cells is over before rows pay.
_LEAST_SECONDS: Final = 0.5
# Rows are tried for this part of what all cells are predicted to take; so many are joined in a second.
_TRIAL_PART: Final = 0.05
_ROWS_PER_SECOND: Final = 5e6

_LOG = logging.getLogger(__name__)


def tried_first(prepared: Prepared, run: Callable[[Prepared], A]) -> A | None:
    """Answer by rows where that takes a small part of the work of all cells; None where it does not."""
    trial = _trial(prepared)
    if trial is None:
        return None
    try:
        return run(trial)
    except (NoRoomError, TooMuchWorkError, BudgetError) as error:
        _LOG.info("all cells are swept: rows were tried, %s", type(error).__name__)
        return None


def _trial(prepared: Prepared) -> Prepared | None:
    plan, resources, asked = prepared.plan, prepared.resources, prepared.resources.asked
    if plan is None or prepared.problem.rows is not None or prepared.stored or asked.representation != "auto":
        return None
    if plan.seconds < _LEAST_SECONDS or plan.device or resources.distributed or asked.folder or asked.fit != "auto":
        return None
    why = f"as {possible(prepared.network)}, and all cells would take {plan.seconds:.2g} s"
    trial = by_rows(prepared, why, _TRIAL_PART * plan.seconds * _ROWS_PER_SECOND)
    try:
        return planned(trial, known_rates) if is_sparse(trial.problem) else None
    except BudgetError:
        return None


def in_slices(prepared: Prepared, run: Callable[[Prepared], A], on_plan: Callable[[Prepared], None] | None = None) -> A:
    """Run a question; by rows, in more slices wherever a table turns out not to fit.

    Parameters
    ----------
    on_plan : callable, optional
        Told what runs instead.

    Raises
    ------
    BudgetError
        If no number of slices makes it fit, or joins have more rows than anyone waits for.
    """
    while True:
        try:
            return run(prepared)
        except NoRoomError as error:
            assert prepared.plan is not None
            options = plan_options(prepared.arithmetic, prepared.resources, prepared.memory_bytes)
            plan = with_more_slices(prepared.problem, options, prepared.plan, error)
            _LOG.info("by rows in %d slices, as a table of %d bytes does not fit", plan.slices, error.needed)
            prepared = replace(prepared, prices=Prices(plan))
            if on_plan is not None:
                on_plan(prepared)
        except TooMuchWorkError:
            raise BudgetError(
                f"joins by rows have more than {prepared.most_joined:.3g} rows ({prepared.why_rows}); "
                "--representation rows goes on however long it takes"
            ) from None


def room_for(prepared: Prepared) -> Room | None:
    """Return what tables of rows may take; None where all are dense."""
    plan = prepared.plan
    if plan is None or plan.row_bounds is None:
        return None
    return Room(prepared.memory_bytes - plan.model_bytes - plan.leaf_bytes, prepared.most_joined)


def work_of(prepared: Prepared, room: Room | None) -> RowsWork | None:
    """Return what a sweep took that kept its account in this process."""
    if room is None or not room.tables:
        return None
    rows, cells = room.largest
    return RowsWork(prepared.why_rows, room.tables, room.dense, rows, cells, room.joined)
