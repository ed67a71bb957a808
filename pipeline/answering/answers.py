"""From a run to a result: sweep, decode, check."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..errors import InternalError
from ..preprocessing.preprocess import fixed_value, full_states
from ..results.result import Result
from ..runs.decoding import begin_decoding, sweep_and_decode
from ..runs.parts import sweep_parts
from ..runs.run import TABLES, Run
from ..runs.slices import slice_states, slices_of, sweep_groups


def optimum(run: Run[Any]) -> Result:
    """Find the least cost or the most probable explanation, decode it and evaluate it on the model."""
    network = run.network
    fixed = fixed_value(network)
    if fixed is None:
        return Result("optimum", "infeasible")
    total: Any = 0
    states: dict[int, int] = {}
    decode_seconds = 0.0
    if run.planned is not None:
        found = _optimum_of(run)(run)
        if found is None:
            return Result("optimum", "infeasible")
        total, states, decode_seconds = found
    return replace(_checked(run, states, fixed, total), seconds={"decode": decode_seconds})


def _optimum_of(run: Run[Any]) -> Callable[[Run[Any]], tuple[Any, dict[int, int], float] | None]:
    """Return how a plan finds its optimum."""
    if run.plan.rows_stored:
        return _optimum_of_rows
    return _spilled_optimum if run.plan.spill else _swept_optimum


def _optimum_of_rows(run: Run[Any]) -> tuple[Any, dict[int, int], float] | None:
    """Return optimum, states and seconds of decoding where tables of rows are on disk; None if it is infeasible."""
    from ..runs.row_tasks import opened_row_tables

    with opened_row_tables(run, TABLES, keep=True) as tables:
        total = run.arithmetic.total(tables.roots())
        if total is None:
            return None
        start = time.perf_counter()
        states = tables.decoded(lambda states: _is_optimal(run, states, total))
    return total, states, time.perf_counter() - start


def _swept_optimum(run: Run[Any]) -> tuple[Any, dict[int, int], float] | None:
    """Return optimum, states and seconds of decoding of a plan in memory; None if it is infeasible.

    Parameters
    ----------
    run : Run
        A run with a plan whose tables stay in memory, whole or in slices.
    """
    at_once = not (run.serial or run.plan.cuts or run.by_steps)
    plan, sent = run.plan, None
    if at_once or plan.slices > 1:
        slices = slices_of(run)
        sent = run.shared(slices, f"{slices.slices}_slices")
    if plan.slices > 1:
        from ..runs.best_first import bounds_of, least_slice

        bounds = bounds_of(run)
        if bounds is not None:
            best = least_slice(run, slices, bounds, sent)
        else:
            best = _least(total for found in sweep_groups(run, slices, sent) for total in found.totals)
        if best is None:
            return None
        slices.program.shared.clear()  # decoding makes its own
        run = replace(run, states=slice_states(plan.dims, plan.sliced, best[1]), progress=None)
    if at_once:
        decoded = sweep_and_decode(run, sent, run.states)
        total = run.arithmetic.total(decoded.roots)
        return None if total is None else (total, decoded.states, decoded.seconds)
    swept = sweep_parts(run, keep=True)
    states_of = begin_decoding(run, swept)
    total = run.arithmetic.total([swept.tables[root] for root in plan.tree.roots])
    if total is None:
        return None
    start = time.perf_counter()
    states = states_of()
    return total, states, time.perf_counter() - start


def _spilled_optimum(run: Run[Any]) -> tuple[Any, dict[int, int], float] | None:
    """The same for a plan with tables on disk."""
    from ..runs.box_answers import decoded, swept_roots
    from ..runs.dense_boxes import opened_boxes

    with opened_boxes(run, TABLES, keep=True) as boxes:
        best = _least(run.arithmetic.total(roots) for roots in swept_roots(boxes))
        if best is None:
            return None
        start = time.perf_counter()
        states = decoded(boxes, best[1], lambda states: _is_optimal(run, states, best[0]))
    return best[0], states, time.perf_counter() - start


def _is_optimal(run: Run[Any], states: dict[int, int], total: float | int) -> bool:
    """Whether decoded states are worth what the sweep found."""
    fixed = fixed_value(run.network)
    assert fixed is not None
    try:
        _checked(run, states, fixed, total)
    except InternalError:
        return False
    return True


def _least(totals: Iterable[Any]) -> tuple[Any, int] | None:
    """Return the least total and the first slice or box that has it; None if all are infeasible."""
    return min(((total, i) for i, total in enumerate(totals) if total is not None), default=None)


def _checked(run: Run[Any], states: dict[int, int], fixed: float | int, total: float | int) -> Result:
    """Evaluate the decoded assignment on the original model, and compare its value with the result of the sweep."""
    network = run.network
    return run.arithmetic.checked(full_states(network, states), fixed, total)


def partition(run: Run[Any]) -> Result:
    """Sum the product of all functions over all assignments."""
    fixed = fixed_value(run.network)
    if fixed is None:
        return Result("partition", "infeasible")
    total = swept_total(run, TABLES) if run.planned is not None else 0.0
    if total is None:
        return Result("partition", "infeasible")
    return Result("partition", "ok", log10=(fixed + math.log(run.network.free_states) + total) / math.log(10))


def swept_total(run: Run[Any], name: str) -> Any:
    """Sweep, in a plan that spills with tables under ``name``; return the value, None if nothing is possible."""
    plan, arithmetic = run.plan, run.arithmetic
    totals: Iterable[Any]
    if plan.rows_stored:
        from ..runs.row_tasks import opened_row_tables

        with opened_row_tables(run, name, keep=run.kept_bytes is not None) as rows:
            totals = [arithmetic.total(rows.roots())]
    elif plan.spill:
        from ..runs.box_answers import swept_roots
        from ..runs.dense_boxes import opened_boxes

        with opened_boxes(run, name, keep=run.kept_bytes is not None) as boxes:
            totals = map(arithmetic.total, swept_roots(boxes))
    elif plan.slices > 1:
        totals = (total for found in sweep_groups(run, slices_of(run, name)) for total in found.totals)
    else:
        tables = sweep_parts(run).tables
        totals = [arithmetic.total([tables[root] for root in plan.tree.roots])]
    return arithmetic.joined(totals)
