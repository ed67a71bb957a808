"""Running a forward sweep: slices or parts as tasks of a pool, the sweep itself in ``tasks``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...cluster.pool import Pool, SerialPool
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ...tasks.sweeps.sweep import OnTable, on_host
from ..models.preprocess import Network
from ..plans.plan import Plan, Problem, sliced_dims
from ..plans.planner import lowered_step
from ..queries.arithmetic import Arithmetic
from ..queries.decode import decode
from ..trees.memory import step_bytes
from .receipts import kept_roots

T = TypeVar("T")

# A Dask task should run for at least this long: the scheduler costs about 2 ms for each.
TASK_SECONDS = 0.2

Progress = Callable[[int], None]


def _ignored(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Run(Generic[T]):
    """A plan with its tables and the place where it runs.

    Parameters
    ----------
    network, planned, problem, arithmetic
        What to run; ``planned`` is None where preprocessing left nothing to eliminate.
    pool : Pool
    threads : int
        Threads of one step in a serial pool.
    progress : callable
        Called with the number of bytes that were read and written since the last call.
    states : mapping of int to int
        Sliced variables that are fixed for the whole run.
    folder : Path, optional
        Where a plan that spills keeps its tables.
    device : bool
        Whether large steps run on a GPU.
    least_cells : int, optional
        Cells from which a step on host tables does; the nominal number where the machine was not measured.
    note : callable
        Called with what the caller should be told besides the answer.
    """

    network: Network
    planned: Plan | None
    problem: Problem
    arithmetic: Arithmetic[T]
    pool: Pool
    threads: int = 1
    compiled: bool = True
    progress: Progress | None = None
    states: Mapping[int, int] = field(default_factory=dict)
    folder: Path | None = None
    device: bool = False
    least_cells: int | None = None
    note: Callable[[str], None] = _ignored

    @property
    def plan(self) -> Plan:
        """The plan; only asked for where something is left to eliminate."""
        assert self.planned is not None
        return self.planned

    @property
    def serial(self) -> bool:
        """Whether everything runs in this thread."""
        return isinstance(self.pool, SerialPool)

    def on_table(self) -> OnTable | None:
        """Return the callback for every table of a serial run."""
        report = self.progress
        if report is None or not self.serial:
            return None
        return lambda step, _: report(step_bytes(step, self.plan.tree.dims, self.plan.itemsize))

    def program(self, steps: Sequence[Step], outputs: Sequence[int], variant_from: int = 0) -> Program[T]:
        """Build the leaf tables that ``steps`` read and put them together."""
        axes = {
            node: node_axes
            for step in steps
            for node, node_axes in zip(step.inputs, step.input_axes, strict=True)
            if node < self.plan.tree.n_leaves
        }
        algebra = self.arithmetic.algebra(self.plan.tree.dims, self.compiled)
        leaves = {
            node: algebra.restrict(self.arithmetic.leaf(self.network.leaves[node], a), a, self.plan.dims, self.states)
            for node, a in axes.items()
        }
        program = Program(tuple(steps), leaves, axes, tuple(outputs), self.plan.dims, algebra, variant_from)
        if not self.device:
            return program
        from ...tasks.sweeps.device_sweep import device_program

        return device_program(program, fetched=not self.serial, least_cells=self.least_cells)


def slice_states(plan: Plan, index: int) -> dict[int, int]:
    """Return the states of the sliced variables in slice ``index``; the last one varies fastest."""
    states = {}
    for v in reversed(plan.sliced):
        index, states[v] = divmod(index, plan.dims[v])
    return states


def sent_program(run: Run[T]) -> Any:
    """Give a pool the program of the whole plan, with all states of the sliced variables."""
    plan = run.plan
    return run.pool.put(run.program(plan.steps, plan.tree.roots, plan.variant_from))


def slice_roots(run: Run[T], name: str, program: Any) -> Iterator[list[T]]:
    """Yield the root tables of every slice, in order; in a run directory what an earlier run found is not done again.

    Parameters
    ----------
    name : str
        Of the ledger's folder.
    program
        What :func:`sent_program` returned.
    """
    if run.folder is None:
        return _swept_slices(run, program, range(run.plan.slices))
    sweep = partial(_swept_slices, run, program)
    codec, dtype = run.arithmetic.codec, run.problem.semiring.dtype
    return kept_roots(run.folder / name, run.plan.slices, codec, dtype, sweep)


def _swept_slices(run: Run[T], program: Any, indices: Sequence[int]) -> Iterator[list[T]]:
    plan = run.plan
    if run.serial:
        states = (slice_states(plan, i) for i in indices)
        for tables in program.run_slices(states, threads=run.threads, on_table=run.on_table()):
            yield [tables[root] for root in plan.tree.roots]
        return
    size = _slices_per_task(plan, run.pool.width)
    calls = (
        (program, [slice_states(plan, i) for i in indices[start : start + size]], run.threads)
        for start in range(0, len(indices), size)
    )
    for results in run.pool.stream(run_slices, calls):
        if run.progress is not None:
            run.progress(len(results) * (plan.read_bytes + plan.written_bytes) // plan.slices)
        yield from results


def _slices_per_task(plan: Plan, width: int) -> int:
    """Choose the largest number of those that give the fewest rounds."""
    enough = math.ceil(TASK_SECONDS / max(plan.cost.seconds, 1e-9))
    most = max(1, min(enough, plan.slices // (2 * width)))
    return min(range(most, most // 4, -1), key=lambda size: -(-plan.slices // (size * width)) * size)


def run_slices(program: Program[T], states: Sequence[Mapping[int, int]], threads: int) -> list[list[T]]:
    """Task: sweep some slices; the tables that all of them share stay with the program for the worker's next task."""
    swept = program.run_slices(states, threads=threads, shared=program.shared)
    return [[tables[node] for node in program.outputs] for tables in swept]


def run_part(
    program: Program[T],
    inputs: Sequence[int],
    keep: Sequence[int],
    threads: int,
    on_table: OnTable | None,
    *messages: T,
) -> dict[int, T]:
    """Task: sweep one part, given the messages of the parts below it."""
    given = dict(zip(inputs, messages, strict=True))
    return program.run(given, keep=keep, threads=threads, on_table=on_table)


def table_of(tables: Mapping[int, T], node: int) -> T:
    """Task: pick one table of a part's result."""
    return tables[node]


@dataclass(frozen=True)
class Swept(Generic[T]):
    """A finished forward sweep: programs and results of each part, by the node it ends at (-1: the roots)."""

    programs: dict[int, Any]
    inputs: dict[int, list[int]]
    messages: dict[int, Any]
    roots: list[T]
    kept: dict[int, T]


def sweep_parts(run: Run[T], *, keep: bool) -> Swept[T]:
    """Sweep every part once, children first; with ``keep`` the tables of a plan of one part stay for decoding."""
    plan = run.plan
    parts = plan.parts
    programs: dict[int, Any] = {}
    inputs: dict[int, list[int]] = {}
    messages: dict[int, Any] = {}
    result: dict[int, T] = {}
    for head, steps in parts.items():
        outputs = (head,) if head >= 0 else plan.tree.roots
        program = run.program(steps, outputs)
        programs[head] = run.pool.put(program)
        inputs[head] = [i for s in steps for i in s.inputs if i in plan.cuts]
        kept = [s.node for s in steps] if keep and not plan.cuts else []
        args = (programs[head], inputs[head], kept, run.threads, run.on_table())
        handle = run.pool.submit(run_part, *args, *(messages[i] for i in inputs[head]))
        if head >= 0:
            messages[head] = run.pool.submit(table_of, handle, head)
        else:
            result = run.pool.get(handle)
            if kept:
                result = {**program.leaves, **result}
    return Swept(programs, inputs, messages, [result[r] for r in plan.tree.roots], result)


def decode_parts(run: Run[T], swept: Swept[T]) -> dict[int, int]:
    """Return the optimal states of all local variables, roots first."""
    plan = run.plan
    assignment = dict(run.states)
    sizes = plan.tree.dims
    if not plan.cuts:
        decode(plan.steps, swept.kept, sizes, run.problem.semiring, assignment, run.compiled)  # type: ignore[arg-type]
        return assignment
    ready = [-1]
    heads = list(plan.parts)
    while ready:
        handles = []
        for head in ready:
            above = {v: assignment[v] for v in (plan.tree.scopes[head] if head >= 0 else ())}
            fixed = {**run.states, **above}
            tables = [swept.messages[i] for i in swept.inputs[head]]
            handles.append(
                run.pool.submit(
                    decode_part,
                    swept.programs[head],
                    swept.inputs[head],
                    sizes,
                    fixed,
                    run.problem,
                    run.threads,
                    *tables,
                )
            )
        for handle in handles:
            assignment.update(run.pool.get(handle).states)
        done = set(ready)
        ready = [h for h in heads if any(h in swept.inputs[d] for d in done)]
    return assignment


def sweep_and_decode(run: Run[T], program: Any, states: Mapping[int, int]) -> Decoded[T]:
    """Sweep a plan of one part, or one slice of it, and decode it in the same task: its tables stay where they are."""
    plan = run.plan
    return run.pool.get(run.pool.submit(decode_part, program, (), plan.dims, states, run.problem, run.threads))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Decoded(Generic[T]):
    """States of the variables of a part and of those above it, its root tables, and the seconds of the decoding."""

    states: dict[int, int]
    roots: list[T]
    seconds: float


def decode_part(
    program: Program[Any],
    inputs: Sequence[int],
    sizes: Sequence[int],
    fixed: Mapping[int, int],
    problem: Problem,
    threads: int,
    *messages: Any,
) -> Decoded[Any]:
    """Task: sweep a part with some variables fixed, keeping its messages, and decode it."""
    program.shared.clear()
    inner = sliced_dims(sizes, fixed)
    axes = {i: a for s in program.steps for i, a in zip(s.inputs, s.input_axes, strict=True)}
    restrict = program.algebra.restrict
    tables = {n: restrict(t, axes[n], sizes, fixed) for n, t in program.leaves.items()}
    tables |= {n: restrict(t, axes[n], sizes, fixed) for n, t in zip(inputs, messages, strict=True)}
    steps = [lowered_step(s.node, s.inputs, s.input_axes, s.axes, inner, problem) for s in program.steps]
    tables |= program.again(tuple(steps), tables).run(keep=[s.node for s in steps], threads=threads)
    roots = [on_host(tables[node]) for node in program.outputs]
    states = dict(fixed)
    start = time.perf_counter()
    decode(steps, tables, inner, problem.semiring, states, program.algebra.compiled)
    return Decoded(states, roots, time.perf_counter() - start)
