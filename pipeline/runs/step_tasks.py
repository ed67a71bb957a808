"""Groups of slices and boxes, split into tasks of single steps. Each task needs the futures of its input tables.

The calls that a pool streams or runs as a graph stay the same. These functions submit one call as several tasks at the
worker that would have run it whole. Tables of one slice or box are made in parallel, and receipts are unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ...cluster.dask_pool import Begin, DaskPool, TaskBatch
from ...cluster.pool import TaskLabel, in_a_row
from ...storage.spec import Receipt
from ...tasks.boxes.box import Box, Left, Receipts, States, Wanted, read_part, run_box
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import run_step_at, run_step_here
from ...tasks.sweeps.sweep import OnTable
from .parts import submit_steps
from .run import Held
from .slices import GroupResult, Slices, group_result, read_slice, receipt_of, run_group, store_group

# A box as several tasks: an input read, a step, a table stored, and the end, which makes all receipts count.


def read_input(box: Box[T], node: int, receipts: Receipts, states: States) -> T:
    """Task: the part of an input that agrees with ``states``, its shares added up."""
    return read_part(box, node, receipts, states, there=False)


def store_table(box: Box[T], number: int, states: States, wanted: Wanted, node: int, table: T) -> list[Receipt]:
    """Task: store the wanted chunks of a table; return their receipts, which do not count yet."""
    left = Left(box, number, states, wanted, (), time.perf_counter())
    left.take(node, table, states)
    return left.done


def end_box(
    box: Box[T], number: int, states: States, wanted: Wanted, nodes: tuple[int, ...], *ends: Any
) -> list[Receipt]:
    """Task: write what a box found, and make its receipts count.

    Parameters
    ----------
    nodes : tuple of int
        Results and roots that steps made.
    *ends
        Receipts of each table that was stored, then the tables ``nodes``.
    """
    left = Left(box, number, states, wanted, (), time.perf_counter())
    first = len(ends) - len(nodes)
    left.done += [receipt for stored in ends[:first] for receipt in stored]
    leaves = [node for node in {*box.results, *box.roots} if node in box.program.leaves]
    left.end({**box.program.leaves_at(states, leaves), **dict(zip(nodes, ends[first:], strict=True))}, states)
    return left.recorded()


T = TypeVar("T")


def _submit_at(
    batch: TaskBatch,
    held: Held[Any],
    states: States,
    made: Mapping[int, Any],
    what: str = "",
    first: int = 0,
    run: Callable[..., Any] = run_step_at,
) -> Callable[[int, Step], Any]:
    """Return a function that adds steps of a held program to a batch, from a position on, with some variables fixed.

    Names of the tasks end with ``what``, the slice or box.
    """

    def submit(position: int, step: Step) -> Any:
        read = tuple(dict.fromkeys(i for i in step.inputs if i in made))
        where = held.handle, first + position, states, read
        label = held.labels[first + position]
        label = label.of(what) if what else label
        return batch.submit(run, *where, *[made[i] for i in read], label=label)

    return submit


def begin_group(
    pool: DaskPool,
    worker: str | None,
    label: TaskLabel,
    held: Held[Slices[Any]],
    number: int,
    threads: int,
    on_table: OnTable | None = None,
    worth: Sequence[bool] | None = None,
) -> Any:
    """Submit the steps of a group's slices. Steps that no slice changes are submitted once for all groups.

    Parameters
    ----------
    pool : DaskPool
    worker : str or None
        Address of the worker that runs the group.
    label : TaskLabel
    held : Held
        The slices, and the futures of steps that all slices share.
    number : int
        Number of the group.
    threads : int
        Unused: each step is a task of one thread.
    on_table : callable, optional
        Unused: tasks count their own cells.
    worth : sequence of bool, optional
        Slices of the group that may still improve the optimum.

    Returns
    -------
    Future
        The outcome of the group.
    """
    program = held.value.program
    first, rest = program.steps[: program.variant_from], program.steps[program.variant_from :]
    # the first group submits the steps that no slice changes
    if first and not held.made:
        read = {i for step in rest for i in step.inputs} | {*program.outputs}
        shared = pool.batch(run_step_at)
        submit_steps(first, read, held.made, _submit_at(shared, held, {}, held.made))
        held.made.update(shared.send(held.made))
    nodes = [node for node in program.outputs if node in {step.node for step in program.steps}]
    batch, tables = pool.batch(run_step_at, worker), []
    slices, size = held.value.slices, held.value.size
    for place, states in enumerate(held.value.states(number, worth), number * size + 1):
        made = dict(held.made)
        what = f"slice{place}of{slices}"
        submit_steps(rest, {*program.outputs}, made, _submit_at(batch, held, states, made, what, len(first)))
        tables += [made[node] for node in nodes]
    ended = TaskLabel(label.name, label.stage)
    end = batch.submit(end_group, held.handle, number, worth, tuple(nodes), *tables, label=ended)
    return batch.send({0: end})[0]


def end_group(
    slices: Slices[T], number: int, worth: Sequence[bool] | None, nodes: tuple[int, ...], *tables: T
) -> GroupResult | Receipt:
    """Task: return the result of a group of slices from the tables ``nodes`` of each slice, or its receipt in a run
    directory.
    """

    def swept() -> Iterator[Any]:
        for place, states in enumerate(slices.states(number, worth)):
            found = dict(zip(nodes, tables[place * len(nodes) :], strict=False))
            leaves = [node for node in slices.program.outputs if node not in found]
            yield read_slice(slices, slices.program.here({**slices.program.leaves_at(states, leaves), **found}))

    if slices.folder is None:
        return group_result(slices, number, worth, swept())
    return receipt_of(slices, number, lambda: group_result(slices, number, worth, swept()))


def begin_box(
    pool: DaskPool,
    worker: str | None,
    label: TaskLabel,
    held: Held[Any],
    number: int,
    states: States,
    receipts: Receipts,
    wanted: Wanted,
    threads: int,
    also: Sequence[int] = (),
) -> Any:
    """Submit the reads of a box, its steps, and its writes; tables are written when they are computed.

    Between tasks, tables are on the host, so that a device holds only the tables of running steps. A box that did not
    fit in a device's memory is a single task, split into parts that fix further variables.

    Parameters
    ----------
    pool : DaskPool
    worker : str or None
        Address of the worker that runs the box.
    label : TaskLabel
    held : Held
        The box: program, inputs, outputs and store.
    number : int
        Number of the box in its stage.
    states : mapping
        States that the box fixes.
    receipts : mapping
        Receipts of the chunks that it reads.
    wanted : mapping
        Chunks that it must write.
    threads : int
        Threads of a box that runs as a single task.
    also : sequence of int
        Further variables that the parts of the box fix.

    Returns
    -------
    Future
        The receipts of the box.
    """
    box = held.value
    if also:
        return pool.submit(
            *(in_a_row, run_box, held.handle, number, states, receipts, wanted, threads, also),
            worker=worker,
            label=label,
        )
    apart = {*box.results, *box.roots}
    what = "".join(label.name.split("-")[:2])  # the names of steps have the stage already
    batch = pool.batch(run_step_here, worker)

    def submit(function: Callable[..., Any], node: int, verb: str, *args: Any) -> Any:
        return batch.submit(function, held.handle, *args, label=TaskLabel(f"{verb}-table_{node}-{what}", label.stage))

    made = {
        node: submit(read_input, node, "load", node, {spec.name: receipts[spec.name]}, states)
        for node, spec in box.inputs.items()
    }
    stored = []

    def store(node: int, table: Any) -> Any:
        if node not in apart and any(spec.name in wanted for spec in box.outputs.get(node, ())):
            stored.append(submit(store_table, node, "store", number, states, wanted, node, table))
        return table

    for node, table in made.items():
        store(node, table)
    step_at = _submit_at(batch, held, states, made, what, run=run_step_here)
    submit_steps(box.program.steps, apart, made, lambda position, step: store(step.node, step_at(position, step)))
    nodes = tuple(node for node in apart if node in made)
    ends = *stored, *[made[node] for node in nodes]
    ended = TaskLabel(label.name, label.stage)
    return batch.send({0: batch.submit(end_box, held.handle, number, states, wanted, nodes, *ends, label=ended)})[0]


BEGINS: Final[Mapping[Callable[..., Any], Begin]] = {
    run_group: begin_group,
    store_group: begin_group,
    run_box: begin_box,
}
"""Functions that submit calls of whole groups and boxes as tasks of single steps."""
