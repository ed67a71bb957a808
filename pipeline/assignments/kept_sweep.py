"""Planning and running a sweep whose tables all stay, in memory: whole, or slice by slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ...tasks.steps.step import Step
from ..answering.placement import pool_for
from ..answering.prepared import Prepared, known_rates, planned, problem_of
from ..answering.question import Question
from ..answering.running import run_of
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..options import Options
from ..preprocessing.preprocess import Network
from ..queries.arithmetic import Arithmetic
from ..runs.run import Run
from ..runs.slices import Slices, slice_states, slices_of

T = TypeVar("T")


def in_memory_only(options: Options, what: str) -> Options:
    """Refuse what does not go with tables that all stay in memory; tables that are too large are cut into slices.

    Raises
    ------
    ModelError
        Naming the option.
    """
    given = [name for name in ("workdir", "keep_tables", "disk", "gpus", "gpu_memory") if getattr(options, name)]
    given += ["representation"] * (options.representation == "rows") + ["tasks"] * (options.tasks == "steps")
    given += ["fit"] * (options.fit == "spill")
    if given:
        raise ModelError(f"{what} come from dense tables in memory, whole or in slices; {given[0]!r} does not apply")
    return replace(options, fit="slice" if options.fit == "auto" else options.fit)


def with_room(options: Options, nbytes: int, what: str) -> Options:
    """Return options whose memory is what so many bytes leave of it.

    Raises
    ------
    BudgetError
        With both numbers, if they leave nothing.
    """
    allowed = Resources(options).host_bytes
    if nbytes >= allowed:
        raise BudgetError(f"{what} take {format_bytes(nbytes)}, allowed {format_bytes(allowed)}; ask for fewer")
    return replace(options, memory=allowed - nbytes)


def prepare_kept(question: Question, network: Network, arithmetic: Arithmetic[T], options: Options) -> Prepared:
    """Plan a sweep whose tables all stay.

    Raises
    ------
    BudgetError
        If no plan, whole or in slices, fits memory.
    """
    problem = problem_of(network, arithmetic, None)
    prepared = Prepared(question, Resources(options), network, arithmetic, problem)
    return planned(prepared, known_rates) if network.leaves else prepared


@dataclass(frozen=True)
class SweptTables(Generic[T]):
    """All tables of a sweep, or of one of its slices, and how assignments are read from them.

    Parameters
    ----------
    steps : tuple of Step
        In execution order.
    tables : mapping of int to table
        Leaf tables and those that the steps made.
    sizes : tuple of int
        Domain sizes; 1 for variables that the slice fixes.
    states : mapping of int to int
        What the slice fixes.
    """

    steps: Sequence[Step]
    tables: Mapping[int, T]
    sizes: tuple[int, ...]
    states: Mapping[int, int]

    def read(self, step: Step) -> list[tuple[T, tuple[int, ...]]]:
        """Return the tables that a step joins, with their variables."""
        return [(self.tables[node], axes) for node, axes in zip(step.inputs, step.input_axes, strict=True)]


def kept_tables(slices: Slices[T], sizes: tuple[int, ...], index: int, threads: int = 1) -> SweptTables[T]:
    """Sweep one slice, or all there is, and keep its tables."""
    program = slices.program
    states = slice_states(program.dims, slices.sliced, index)
    leaves = program.restricted_leaves(states)
    made = program.again(program.steps, leaves).run(keep=[s.node for s in program.steps], threads=threads)
    return SweptTables(program.steps, {**leaves, **made}, sizes, states)


@dataclass(frozen=True)
class KeptSweep(Generic[T]):
    """A planned sweep in the pool where its slices run.

    Parameters
    ----------
    run : Run
    slices : Slices
    sent
        What the pool returned for the slices.
    """

    run: Run[T]
    slices: Slices[T]
    sent: Any

    @property
    def sizes(self) -> tuple[int, ...]:
        """Domain sizes inside a slice."""
        return self.run.plan.tree.dims

    def tables(self, index: int = 0) -> SweptTables[T]:
        """Sweep a slice here, and keep its tables."""
        return kept_tables(self.slices, self.sizes, index, self.run.threads)


@contextmanager
def opened_sweep(prepared: Prepared) -> Iterator[KeptSweep[Any]]:
    """Open the pool of a planned sweep: that of workers only for slices."""
    resources, plan = prepared.resources, prepared.plan
    assert plan is not None
    if plan.slices == 1:
        resources = resources.in_this_process()
    with pool_for(plan, resources) as pool:
        run = run_of(replace(prepared, resources=resources), pool)
        slices = slices_of(run)
        yield KeptSweep(run, slices, pool.put(slices))
