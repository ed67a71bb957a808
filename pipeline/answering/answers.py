"""The result of a run: sweep the plan, decode an assignment, and check it.

An optimum is decoded from the tables of a sweep. If a run has parts, it stores only the messages between them. Each
part is then swept once more to decode it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...cluster.pool import TaskLabel
from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ..errors import InternalError
from ..plans.plan import lowered_step
from ..plans.problem import Problem, sliced_dims
from ..preprocessing.preprocess import fixed_value, full_states
from ..queries.decode import begin_decode
from ..results.result import Result
from ..runs.parts import Swept, sweep_parts
from ..runs.run import TABLES, Run
from ..runs.slices import Slices, slice_states, slices_of, sweep_groups

if TYPE_CHECKING:
    from ...tasks.rows.algebra import Representation


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
    from ..runs.row_sweep import opened_row_tables

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
    from ..runs.dense_boxes import decoded, opened_boxes, swept_roots

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
        from ..runs.row_sweep import opened_row_tables

        with opened_row_tables(run, name, keep=run.kept_bytes is not None) as rows:
            totals = [arithmetic.total(rows.roots())]
    elif plan.spill:
        from ..runs.dense_boxes import opened_boxes, swept_roots

        with opened_boxes(run, name, keep=run.kept_bytes is not None) as boxes:
            totals = map(arithmetic.total, swept_roots(boxes))
    elif plan.slices > 1:
        totals = (total for found in sweep_groups(run, slices_of(run, name)) for total in found.totals)
    else:
        tables = sweep_parts(run).tables
        totals = [arithmetic.total([tables[root] for root in plan.tree.roots])]
    return arithmetic.joined(totals)


T = TypeVar("T")

_DECODE: Final = TaskLabel("decode", "decoding")


@dataclass(frozen=True)
class Decoded(Generic[T]):
    """States of the variables of a part and of those above the part, its root tables, and the seconds of decoding."""

    states: dict[int, int]
    roots: list[T]
    seconds: float


def begin_decoding(run: Run[T], swept: Swept[T]) -> Callable[[], dict[int, int]]:
    """Start decoding if it runs on a device. Return a function that gives the optimal states of all local variables."""
    if swept.made or run.plan.cuts:
        return lambda: _decode_tasks(run, swept)
    assignment = dict(run.states)
    tables: Mapping[int, Any] = swept.tables
    end = begin_decode(
        run.plan.steps, tables, run.plan.tree.dims, run.problem.semiring, assignment, run.compiled, run.room
    )

    def states() -> dict[int, int]:
        end()
        return assignment

    return states


def _decode_tasks(run: Run[T], swept: Swept[T]) -> dict[int, int]:
    """Decode in tasks beside the tables, roots first."""
    plan, sizes = run.plan, run.plan.tree.dims
    assignment = dict(run.states)
    if not plan.cuts:
        where = swept.programs[-1], sizes, assignment, run.problem, tuple(swept.made)
        handle = run.pool.submit(decode_swept, *where, *swept.made.values(), label=_DECODE)
        found: Decoded[T] = run.pool.get(handle)
        return found.states
    ready = [-1]
    while ready:
        handles = []
        for head in ready:
            above = {v: assignment[v] for v in (plan.tree.scopes[head] if head >= 0 else ())}
            args = (swept.programs[head], sizes, {**run.states, **above}, run.problem, run.threads)
            messages = swept.picked(swept.inputs[head, True])
            handles.append(run.pool.submit(decode_part, *args, *messages, label=_DECODE))
        for handle in handles:
            assignment.update(run.pool.get(handle).states)
        ready = [i for head in ready for i in swept.inputs[head, True]]
    return assignment


def sweep_and_decode(run: Run[T], slices: Any, states: Mapping[int, int]) -> Decoded[T]:
    """Sweep one slice, or all there is, and decode it in the same task: its tables stay where they are.

    Parameters
    ----------
    slices
        The pool's handle of the :class:`.slices.Slices`.
    """
    handle = run.pool.submit(decode_slice, slices, states, run.problem, run.threads, label=_DECODE)
    return run.pool.get(handle)  # type: ignore[no-any-return]


def decode_slice(slices: Slices[T], states: Mapping[int, int], problem: Problem, threads: int) -> Decoded[T]:
    """Task: sweep a slice, keeping its messages, and decode it."""
    slices.program.shared.clear()
    return decode_part(slices.program, slices.program.dims, states, problem, threads)


def decode_part(
    program: Program[T],
    sizes: Sequence[int],
    fixed: Mapping[int, int],
    problem: Problem,
    threads: int,
    *messages: Mapping[int, T],
) -> Decoded[T]:
    """Task: sweep a part with some variables fixed, keeping its messages, and decode it."""
    inner, restrict = sliced_dims(sizes, fixed), program.algebra.restrict
    axes = {**program.leaf_axes, **{i: a for s in program.steps for i, a in zip(s.inputs, s.input_axes, strict=True)}}
    given = {n: t for tables in (program.leaves, *messages) for n, t in tables.items()}
    tables: dict[int, Any] = {n: restrict(t, axes[n], sizes, fixed) for n, t in given.items()}
    steps = [lowered_step(s.node, s.inputs, s.input_axes, s.axes, inner, problem) for s in program.steps]
    program = replace(program, algebra=program.algebra.resized(inner))
    tables |= program.again(tuple(steps), tables).run(keep=[s.node for s in steps], threads=threads)
    return _decoded(program, steps, tables, inner, fixed, problem)


def decode_swept(
    program: Program[T],
    sizes: Sequence[int],
    fixed: Mapping[int, int],
    problem: Problem,
    nodes: Sequence[int],
    *made: T,
) -> Decoded[T]:
    """Task: decode a program from the tables that other tasks made of its steps."""
    tables = {**program.leaves, **dict(zip(nodes, made, strict=True))}
    return _decoded(program, program.steps, tables, sizes, fixed, problem)


def _decoded(
    program: Program[T],
    steps: Sequence[Step],
    tables: Mapping[int, Any],
    sizes: Sequence[int],
    fixed: Mapping[int, int],
    problem: Problem,
) -> Decoded[T]:
    states = dict(fixed)
    choice: Representation | None = getattr(program.algebra, "choice", None)  # which algebras of rows have
    room = None if choice is None else choice.room
    end = begin_decode(steps, tables, sizes, problem.semiring, states, program.algebra.compiled, room)
    roots: list[Any] = [on_host(tables[node]) for node in program.outputs]
    start = time.perf_counter()
    end()
    return Decoded(states, roots, time.perf_counter() - start)
