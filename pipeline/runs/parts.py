"""Running a plan in parts: each goes up in a task, and back in another beside the tables that it kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...cluster.pool import Pool
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import pick, run_part
from ..plans.plan import Plan
from ..plans.plan_parts import Parts, Task
from ..plans.worker_parts import parts_of
from .run import Run

T = TypeVar("T")


@dataclass(frozen=True)
class Swept(Generic[T]):
    """Parts that are on their way, or done.

    Parameters
    ----------
    pool : Pool
    parts : Parts
    programs : dict of int to handle
        Of every part, by its head.
    inputs : mapping of task to tuple of int
        The tables of other parts that a task reads.
    tasks : dict of task to handle
        What each returns: the tables that others need.
    tables : dict of int to table
        Roots and results; of one part that was kept, leaf tables and messages too.
    """

    pool: Pool
    parts: Parts
    programs: dict[int, Any]
    inputs: Mapping[Task, tuple[int, ...]]
    tasks: dict[Task, Any]
    tables: dict[int, T]

    def picked(self, wanted: Iterable[int]) -> list[Any]:
        """Return handles of tables that tasks made, a dict from each of the tasks."""
        sources: dict[Task, list[int]] = defaultdict(list)
        for i in wanted:
            sources[self.parts.makers[i]].append(i)
        return [self.pool.submit(pick, self.tasks[task], numbers) for task, numbers in sources.items()]


def sweep_parts(run: Run[T], *, keep: bool = False) -> Swept[T]:
    """Run all parts on the pool of a run, one way or both; with ``keep`` the tables of an only part stay for decoding.

    The steps are those of one task that does all, and so are the results, bit for bit.
    """
    plan, pool, parts = run.plan, run.pool, parts_of(run.plan)
    program, keep = run.program(plan.steps, plan.outputs), keep and not plan.cuts
    steps: dict[Task, list[Step]] = {(head, up): [] for up in (True, False) for head in parts.heads}
    for step in plan.steps:
        steps[parts.makers[step.node]].append(step)
    programs = {head: pool.put(program.part([*steps[head, True], *steps[head, False]])) for head in parts.heads}
    swept: Swept[T] = Swept(pool, parts, programs, _inputs(parts, steps), {}, {})
    outputs = _outputs(plan, swept)
    for task in [*((head, True) for head in parts.heads), *((head, False) for head in reversed(parts.heads))]:
        if not steps[task]:
            continue
        # a part distributes where it collected, beside the tables it kept
        beside = [] if task[1] else [swept.tasks[task[0], True]]
        nodes = tuple(step.node for step in steps[task])
        how = (tuple(outputs[task]), keep, run.threads, run.on_table())
        messages = swept.picked(swept.inputs[task])
        swept.tasks[task] = pool.submit(run_part, programs[task[0]], nodes, *how, *beside, *messages)
    _collect(run, swept, swept.picked(i for i in plan.outputs if i in parts.makers))
    swept.tables.update({i: program.leaves[i] for i in plan.outputs if i not in parts.makers})
    if keep:
        swept.tables.update({**program.leaves, **pool.get(swept.tasks[-1, True])})
    return swept


def _collect(run: Run[Any], swept: Swept[Any], answers: list[Any]) -> None:
    """Fetch the tables that are asked for."""
    moved = run.plan.moved_bytes
    for handle in answers:
        swept.tables.update(run.pool.get(handle))
        if not run.serial:
            run.report(moved // len(answers))
    run.report(moved)


def _inputs(parts: Parts, steps: Mapping[Task, list[Step]]) -> dict[Task, tuple[int, ...]]:
    """For every task the tables of other parts that it reads."""
    makers = parts.makers
    return {
        task: tuple(dict.fromkeys(i for s in own for i in s.inputs if i in makers and makers[i][0] != task[0]))
        for task, own in steps.items()
    }


def _outputs(plan: Plan, swept: Swept[Any]) -> dict[Task, set[int]]:
    """For every task the tables that it keeps for others, for the way back and for the answer."""
    makers = swept.parts.makers
    needed: dict[Task, set[int]] = defaultdict(set)
    for i in plan.outputs:
        if i in makers:
            needed[makers[i]].add(i)
    for step in plan.steps:
        for i in step.inputs:
            if i in makers and makers[i] != makers[step.node]:
                needed[makers[i]].add(i)
    return needed
