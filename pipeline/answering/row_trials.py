"""Questions answered by rows: where that is tried first, and in how many slices, as tables become known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..budget.fit import Prices
from ..errors import BudgetError, format_bytes
from ..machine.resources import Resources
from ..plans.plan import Plan
from ..preprocessing.leaf_rows import leaf_rows, possible
from ..results.proof import RowsWork
from .prepared import ROWS_PER_SECOND, Prepared, by_rows, known_rates, planned, planner_of, unplanned
from .question import LARGE_CELLS, Question

if TYPE_CHECKING:
    from ...tasks.rows.memory_account import MemoryAccount, RowsNoRoomError
    from ..runs.run import Run

A = TypeVar("A")

# Before shorter sweeps rows are tried over the same tree: to search for one would take longer than the trial.
_SEARCHED_SECONDS: Final = 20.0
# Cells of a function that take as long as one row. Dense methods read the tables of all functions several times.
_CELLS_OF_A_ROW: Final = 20

_LOG = logging.getLogger(__name__)


def before_all_cells(question: Question, resources: Resources, seconds: float) -> Prepared | None:
    """Return a question by rows, for less work than making its functions dense is; None where these are small."""
    if rows_refused(resources, stored=False):
        return None
    resources = resources.in_this_process()
    small = question.chained
    if not (small.reduced[0].feasible and small.is_large):
        return None
    found, cells = unplanned(question, resources), small.reduced[0].cells
    rows = leaf_rows(found.network)
    if sum(rows) * _CELLS_OF_A_ROW > cells:
        return None
    why = f"because functions have 2^{log2(cells):.0f} cells and {possible(found.network, rows)}"
    most_work = min(max(cells / _CELLS_OF_A_ROW, LARGE_CELLS), seconds * ROWS_PER_SECOND)
    try:
        return planned(by_rows(found, rows, why, most_work), known_rates)
    except BudgetError:
        return None


def rows_refused(resources: Resources, stored: bool) -> str:
    """Return why rows are not tried before all cells are swept; nothing where they may be."""
    asked = resources.asked
    if asked.representation != "auto" or asked.fit != "auto":
        return f"{asked.representation} tables were requested" if asked.fit == "auto" else "a fit was asked for"
    return "a run directory continues with its stored plan" if stored else ""


def trial_beside(prepared: Prepared, most_work: float) -> Prepared | None:
    """Return the question with sparse tables over the tree of its plan, limited to ``most_work`` rows.

    Return None if sparse tables do not help.

    Parameters
    ----------
    prepared : Prepared
        A question with a plan of dense tables.
    most_work : float
        Rows that the trial may produce.
    """
    plan = prepared.plan
    if plan is None or prepared.problem.rows is not None:
        return None
    from ..budget.rows_fit import is_sparse, rows_plan

    counts = leaf_rows(prepared.network)
    why = f"because {possible(prepared.network, counts)} and the dense sweep would take {all_cells_seconds(plan):.2g} s"
    trial = by_rows(prepared, counts, why, most_work)
    if not is_sparse(trial.problem):
        return None
    trial = replace(trial, resources=trial.resources.in_this_process())
    planner = planner_of(trial, trial.memory_bytes)
    tree = replace(plan.tree, dims=plan.dims)
    try:
        # the tree of a long plan was searched for with care; a short plan leaves no time to search one for sparse
        # tables, so its tree serves both
        if plan.seconds < _SEARCHED_SECONDS:
            rows = rows_plan(planner.with_options(children=tree.children))
        else:
            rows = rows_plan(planner, tree)
    except BudgetError:
        return None
    later = plan.evaluations and replace(plan.evaluations, together=1, steps=())
    rows = replace(rows, evaluations=later)
    if later:
        from .counts import least_seconds_by_rows

        if least_seconds_by_rows(rows) > trial.most_work / ROWS_PER_SECOND:
            return None
    return replace(trial, prices=Prices(rows))


def all_cells_seconds(plan: Plan) -> float:
    """Return the predicted seconds of a sweep; for a count, of all its sweeps.

    Steps back up a tree take longer than their nominal seconds: the marginals of mc2022_track1_029 3.4 s, predicted as
    3.8 and nominally 1.05.
    """
    return plan.seconds if plan.evaluations is None and not plan.results else plan.predicted_seconds


def sampled_seconds(trial: Prepared, run: Run[Any]) -> float:
    """Return the predicted seconds of a trial, estimated from samples of its tables, for all sweeps and slices."""
    from ..runs.row_samples import sampled_work
    from .counts import least_seconds_by_rows

    plan = run.plan
    return least_seconds_by_rows(plan) + plan.sweeps * sampled_work(run, trial.most_work) / ROWS_PER_SECOND


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
    whole = prepared.plan
    if whole is None or whole.row_bounds is None:
        return run(prepared)
    from ...tasks.rows.memory_account import RowsNoRoomError, TooMuchWorkError

    stores = True
    while True:
        try:
            return run(prepared)
        except RowsNoRoomError as error:
            stores = stores and not (prepared.plan and prepared.plan.rows_stored)
            plan = _smaller(prepared, whole, error, stores)
            _LOG.info(
                "sparse tables: now %d slices%s, because a table of %d bytes does not fit",
                *(plan.slices, " and on disk" if plan.rows_stored else "", error.needed),
            )
            prepared = replace(prepared, prices=Prices(plan))
            if on_plan is not None:
                on_plan(prepared)
        except TooMuchWorkError:
            raise BudgetError(
                f"sparse tables need more than joins of {prepared.most_work:.3g} rows ({prepared.why_rows}); "
                "--representation rows runs without this limit"
            ) from None


def _smaller(prepared: Prepared, whole: Plan, error: RowsNoRoomError, stores: bool) -> Plan:
    """Plan a question by rows again whose tables did not fit, as they may be made to; not on disk once that failed."""
    from ..budget.rows_fit import stored_or_sliced, with_more_slices

    asked, plan = prepared.resources.asked, prepared.plan
    assert plan is not None
    if asked.fit == "refuse":
        raise BudgetError(
            f"a sparse table needs at least {format_bytes(error.needed)}, allowed {format_bytes(error.allowed)}; "
            "try --fit slice or --fit spill"
        )
    if asked.fit in ("spill", "store") and plan.rows_stored:
        raise BudgetError(
            f"the parts of sparse tables on disk that are held in memory need {format_bytes(error.needed)}, allowed "
            f"{format_bytes(error.allowed)}; try a larger --memory, or --fit slice"
        )
    planner = planner_of(prepared, prepared.memory_bytes)
    if asked.fit == "slice" or asked.disk_bytes == 0 or whole.sliced or not stores:
        return with_more_slices(planner, plan, error)
    return stored_or_sliced(planner, whole, plan, error)


def room_for(prepared: Prepared) -> MemoryAccount | None:
    """Return the memory account of sparse tables; None if all tables are dense."""
    plan = prepared.plan
    if plan is None or plan.row_bounds is None:
        return None
    from ...tasks.rows.memory_account import MemoryAccount
    from ..budget.budget_policy import BudgetPolicy

    margin = BudgetPolicy.current().margin_bytes if plan.rows_stored else 0
    allowed = prepared.memory_bytes
    if plan.rows_stored and plan.device:  # tables that stay in memory between steps are on the host
        allowed = min(allowed, prepared.resources.host_bytes)
    return MemoryAccount(allowed - plan.model_bytes - plan.leaf_bytes - margin, prepared.most_work)


def work_of(prepared: Prepared, room: MemoryAccount | None) -> RowsWork | None:
    """Return the work of a sparse sweep that kept its account in this process."""
    if room is None or not room.tables:
        return None
    rows, cells = room.largest
    disk = room.written, room.on_disk, prepared.plan.disk_bytes if prepared.plan else 0
    return RowsWork(prepared.why_rows, room.tables, room.dense, rows, cells, room.joined, *disk)
