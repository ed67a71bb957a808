"""The tasks of a plan's run on workers, for a simulation: slices, parts of the tree, or blocks on disk. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from math import ceil, prod
from typing import Final

from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.step import Step
from ..errors import ModelError
from ..plans.plan import Plan
from ..plans.prediction import CORES_OF_A_DEVICE
from ..plans.stages import Task
from ..plans.worker_parts import TASK_SECONDS, for_workers, parts_of, run_seconds
from .simulated_cluster import SimulatedTask

# Most tasks of a simulation. Further slices are simulated together.
_SIMULATED_TASKS: Final = 100_000


def divided_for(plan: Plan, width: int, memory_bytes: int) -> Plan:
    """Divide a plan among ``width`` tasks at a time, as a run on a cluster without a run directory does."""
    seconds = run_seconds(plan) if plan.device and plan.results else plan.seconds
    whole = plan.way == "disk" or (plan.results and plan.slices > 1)
    several = 1 if whole or seconds < 2 * TASK_SECONDS else width
    return for_workers(plan, several, TASK_SECONDS, plan.around.rates, memory_bytes if several > 1 else 0)


def simulated_tasks(plan: Plan) -> list[SimulatedTask]:
    """Return the tasks of a divided plan, each after the tasks that it needs.

    Raises
    ------
    ModelError
        If tables are sparse, or the run has too many tasks.
    """
    if plan.row_bounds is not None:
        raise ModelError("sparse tables are not simulated: their sizes are known only when they are made")
    builder = _Builder(plan)
    in_one = plan.results and plan.slices == 1 and plan.way != "disk" and plan.parts is None and not plan.device
    if not plan.steps or in_one or run_seconds(plan) < 2 * TASK_SECONDS:
        return [SimulatedTask("run in the client's process", plan.predicted_seconds, place="client")]
    if plan.spill is not None:
        builder.blocks()
    elif plan.slices > 1:
        builder.slices()
    else:
        builder.parts()
    return builder.tasks


class _Builder:
    """Collects the tasks of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.tasks = plan, list[SimulatedTask]()
        self._share = 1 / CORES_OF_A_DEVICE if plan.device and plan.results else 1.0
        later = plan.evaluations and plan.evaluations.likely
        # the sweeps of a count modulo primes follow each other, each with the tasks of the first
        self._sweeps = 1 if later is None else 1 + later.sweeps
        around = plan.around
        cells = plan.leaf_bytes // plan.itemsize
        self._decodes = around.evaluated > 0 and not plan.results
        inputs = sum(len(step.inputs) for step in plan.up)
        self._reading = around.reading_seconds(plan.device, inputs, len(plan.results))
        self._prepare = self._add("client: leaf tables", around.leaf_seconds(plan.device, cells), place="client")

    def _add(self, key: str, seconds: float, needs: Sequence[tuple[int, int]] = (), **more: object) -> int:
        self.tasks.append(SimulatedTask(key, seconds, tuple(needs), **more))  # type: ignore[arg-type]
        if len(self.tasks) > 3 * _SIMULATED_TASKS:
            most = _SIMULATED_TASKS
            raise ModelError(f"the run has more than {most:,} tasks, too many to simulate; give more memory")
        return len(self.tasks) - 1

    def _seconds(self, steps: Sequence[Step]) -> float:
        return self._share * self._sweeps * self.plan.around.steps_seconds(steps, self.plan.itemsize)

    def _finish(self, needs: Sequence[tuple[int, int]]) -> None:
        self._add("client: answer", self._reading, needs, place="client")

    def slices(self) -> None:
        """Groups of slices; the slice of an optimum is swept again and decoded."""
        plan, around = self.plan, self.plan.around
        first, rest = plan.steps[: plan.variant_from], plan.steps[plan.variant_from :]
        sliced = {*plan.sliced}
        varying = sum(not sliced.isdisjoint(axes) for axes in plan.leaf_axes.values())
        launched = rest if plan.device and not plan.results else ()
        begun = self._share * self._sweeps * around.slice_seconds(plan.device, launched, varying)
        one = self._seconds(rest) + begun
        shared = self._seconds(first) if first else 0.0
        # only these results are read by the client: a belief for each target
        found = 8 * sum(prod(plan.dims[v] for v in target) for target in plan.results)
        sent = self._add("client: send tables", 0.0, [(self._prepare, 0)], sent_bytes=plan.leaf_bytes, place="client")
        together = ceil(plan.groups / _SIMULATED_TASKS)
        ends = []
        for begin in range(0, plan.groups, together):
            count = min(together, plan.groups - begin)
            size = min(count * plan.group, plan.slices - begin * plan.group)
            more = {"shared_seconds": shared, "count": count * self._sweeps}
            needs = [(sent, plan.leaf_bytes)]
            ends.append((self._add(f"slices {begin * plan.group}", size * one, needs, **more), found * count))
        if self._decodes:
            gate = self._add("all slices", 0.0, ends, place="gate")
            ends = [(self._add("decode slice", one + shared, [(gate, 0), (sent, plan.leaf_bytes)]), 0)]
        self._finish(ends)

    def parts(self) -> None:
        """Parts of the tree up, back, and for an optimum once more from the roots on with fixed variables."""
        plan, parts = self.plan, parts_of(self.plan)
        own: dict[Task, list[Step]] = defaultdict(list)
        for step in plan.steps:
            own[parts.makers[step.node]].append(step)
        read: dict[Task, dict[Task, set[int]]] = {task: defaultdict(set) for task in own}
        for task, steps in own.items():
            for i in (i for step in steps for i in step.inputs if i in parts.makers):
                if parts.makers[i] != task:
                    read[task][parts.makers[i]].add(i)
            if not task[1]:
                read[task][task[0], True] |= set()
        nbytes = {step.node: step.lowered.out_cells * plan.itemsize for step in plan.steps}
        sent = self._add("client: send tables", 0.0, [(self._prepare, 0)], sent_bytes=plan.leaf_bytes, place="client")
        at: dict[Task, int] = {}
        order = [*((head, True) for head in parts.heads), *((head, False) for head in reversed(parts.heads))]
        leaves = plan.leaf_bytes // max(len(parts.heads), 1)

        def needs_of(task: Task) -> list[tuple[int, int]]:
            return [(at[other], sum(nbytes[i] for i in tables)) for other, tables in read[task].items()]

        for task in order:
            if task in own:
                way = "up" if task[1] else "back"
                given = [(sent, leaves), *needs_of(task)]
                at[task] = self._add(f"part {task[0]} {way}", self._seconds(own[task]), given, count=self._sweeps)
        last = {parts.makers[i]: nbytes[i] for i in plan.outputs if i in parts.makers}
        ends = [(at[task], size) for task, size in last.items()]
        if self._decodes and plan.cuts:
            # an optimum decodes from the roots down, with fixed variables
            ends = self._decoded_parts(own, read, needs_of, ends)
        self._finish(ends)

    def _decoded_parts(
        self,
        own: dict[Task, list[Step]],
        read: dict[Task, dict[Task, set[int]]],
        needs_of: Callable[[Task], list[tuple[int, int]]],
        ends: list[tuple[int, int]],
    ) -> list[tuple[int, int]]:
        """Add the tasks that decode the parts, the part at the roots first."""
        above = {other: task for task, needs in read.items() for other in needs}
        decoded: dict[Task, int] = {}
        for task in reversed(list(own)):
            before = decoded[above[task]] if task in above else self._add("all parts", 0.0, ends, place="gate")
            seconds = self._fixed(own[task], self.plan.tree.scopes[task[0]] if task[0] >= 0 else ())
            decoded[task] = self._add(f"part {task[0]} decode", seconds, [(before, 0), *needs_of(task)])
        return [(i, 0) for i in decoded.values()]

    def _fixed(self, steps: Sequence[Step], fixed: Collection[int]) -> float:
        """Return the seconds of steps with some variables fixed."""
        sizes, known = self.plan.dims, {*fixed}
        around, itemsize = self.plan.around, self.plan.itemsize
        found = 0.0
        for step in steps:
            axes = {v for axes in (*step.input_axes, step.axes) for v in axes} & known
            found += around.steps_seconds([step], itemsize) / prod(sizes[v] for v in axes)
        return found

    def blocks(self) -> None:
        """Blocks of stages with tables in storage; for an optimum the client decodes stage by stage."""
        plan, spill = self.plan, self.plan.spill
        assert spill is not None
        if spill.tasks > _SIMULATED_TASKS:
            raise ModelError(f"the run has {spill.tasks:,} blocks, too many to simulate; give more memory")
        # what a block and its chunk files take besides the moved bytes
        files = max(spill.moving_seconds - (spill.read_bytes + spill.written_bytes) / spill.disk_rate, 0) / spill.tasks
        writers = {number: index for index, stage in enumerate(spill.stages) for number in stage.outputs}
        positions: dict[int, list[int]] = {}
        leaves = plan.leaf_bytes // len(spill.stages)
        for index, stage in enumerate(spill.stages):
            sent = self._add(
                f"client: send tables of stage {index + 1}",
                0.0,
                [(self._prepare, 0)],
                sent_bytes=leaves,
                place="client",
                priority=-index,
            )
            # gates: the blocks of an input's stage that agree in the variables that both stages fix
            gates: list[tuple[tuple[int, ...], dict[tuple[int, ...], int]]] = []
            for writer in dict.fromkeys(writers[number] for number in stage.inputs):
                other = spill.stages[writer]
                common = tuple(v for v in other.boxed if v in stage.boxed)
                agreeing: dict[tuple[int, ...], list[int]] = defaultdict(list)
                for number, position in enumerate(positions[writer]):
                    states = spill.states(other, number)
                    agreeing[tuple(states[v] for v in common)].append(position)
                places = {
                    key: self._add("chunks", 0.0, [(i, 0) for i in found], place="gate")
                    for key, found in agreeing.items()
                }
                gates.append((common, places))
            seconds = self._seconds(stage.steps) + self._sweeps * files
            moved = {
                "read_bytes": self._sweeps * sum(spill.moved_bytes(stage, number) for number in stage.inputs),
                "written_bytes": self._sweeps * sum(spill.moved_bytes(stage, number) for number in stage.outputs),
                "priority": index if stage.inputs and index <= spill.top else -index - 1,
                "count": self._sweeps,
            }
            positions[index] = []
            for number in range(spill.boxes(stage)):
                states = spill.states(stage, number)
                needs = [(places[tuple(states[v] for v in common)], 0) for common, places in gates]
                key = f"stage {index + 1} block {number}"
                positions[index].append(self._add(key, seconds, [(sent, leaves), *needs], **moved))
        ends = [(i, 0) for found in positions.values() for i in found]
        if self._decodes:
            scopes = [plan.tree.scopes[s.head] if s.head >= 0 else s.boxed for s in spill.stages]
            each = zip(spill.stages, scopes, strict=True)
            seconds = ordered_sum([self._fixed_stage(stage.steps, fixed, stage.boxed) for stage, fixed in each])
            ends = [(self._add("client: decode", seconds, ends, place="client"), 0)]
        self._finish(ends)

    def _fixed_stage(self, steps: Sequence[Step], fixed: Collection[int], boxed: Sequence[int]) -> float:
        """Return the seconds of a stage without blocks, with the variables above it fixed."""
        opened = prod(self.plan.dims[v] for v in boxed if v not in fixed)
        return opened * self._fixed(steps, [v for v in fixed if v not in boxed])
