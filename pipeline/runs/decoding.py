"""Decoding an optimum: from the tables of a sweep, or part by part from messages, each part swept once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...cluster.pool import TaskLabel
from ...tasks.gpu.arrays import on_host
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program
from ..plans.problem import Problem, sliced_dims
from ..plans.repricing import lowered_step
from ..queries.decode import begin_decode
from .parts import Swept
from .run import Run
from .slices import Slices

if TYPE_CHECKING:
    from ...tasks.rows.algebra import Representation

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
