"""Distributed problems as Fioretto et al. (Constraints 2018, sections 4-6) have them: ``python tests/bench/dcop.py``.

Grids, random and scale-free graphs, by |X|, |D|, p1 and (ADPOP) z: seconds of all agents together by a straightforward
loop over rows (compiled, one row after the other, as a sequential C program would), by the CPU kernels of one core,
and with ``--gpu`` on a GPU; wall seconds of the run on the CPU; the simulated runtime of agents that work at the same
time; messages' load. Figures are means over ``--instances`` seeds of the better of two runs; what would take longer
than ``--seconds`` is left out.

Trees are those of ``--order``, max-degree as in the paper; ``planned`` ones reach further, and are simulated beside.

``--json FILE`` keeps the figures, ``--plots DIR`` writes two charts (SVG) of each series: seconds, and network load.
``--only grid --by domain`` is a part of it; ``--workers N`` compares the simulation with agents as tasks on N Dask
workers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numba
import numpy as np
from parts.charts import Series, chart
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow import BudgetError, Dcop
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.agents.solving import AgentOptions, Planned, Ran, plan_dcop, run_dcop
from bucketflow.pipeline.errors import format_bytes
from bucketflow.tasks.steps.light_dataclass import dataclass
from bucketflow.tasks.steps.step import Step
from bucketflow.tasks.sweeps.sweep import Plain

# About what a look-up takes, to leave out what would take too long.
_LOOP_SECONDS, _KERNEL_SECONDS = 4e-9, 0.6e-9
_MEMORY = 8 << 30
_LOADS = {"load": "all messages", "largest": "largest message"}


@dataclass(frozen=True)
class Case:
    """One point of an experiment."""

    kind: str
    by: str
    variables: int
    domain: int
    density: float = 0.3
    z: int | None = None

    @property
    def x(self) -> float:
        """What the experiment varies."""
        return float(getattr(self, self.by) or 0)


@dataclass(frozen=True)
class Row:
    """Figures of a case; None is what was left out."""

    case: Case
    width: float
    depth: float
    load: float
    largest: float
    loop: float | None = None
    cpu: float | None = None
    wall: float | None = None
    gpu: float | None = None
    simulated: float | None = None
    simulated_gpu: float | None = None
    planned: float | None = None
    gap: float | None = None
    workers: float | None = None


def cases() -> Iterator[Case]:
    """All points of the experiments."""
    for variables in (9, 16, 25, 36, 49, 64, 81):
        yield Case("grid", "variables", variables, 5)
    for variables in (5, 10, 15, 20, 25, 30, 40, 50):
        yield Case("random", "variables", variables, 5)
    for variables in (10, 20, 30, 40, 50):
        yield Case("scale-free", "variables", variables, 5)
    for domain in (5, 10, 20, 40):
        yield Case("grid", "domain", 16, domain)
        yield Case("random", "domain", 10, domain)
        yield Case("scale-free", "domain", 15, domain)
    for density in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        yield Case("random", "density", 10, 5, density)
    for z in (2, 3, 4, 5, 6, 8):
        yield Case("grid", "z", 49, 5, z=z)
        yield Case("random", "z", 20, 5, z=z)
        yield Case("scale-free", "z", 40, 5, z=z)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _rows(flat: Any, starts: Any, strides: Any, sizes: Any, kept: int, out: Any, zero: int) -> None:
    """Fill ``out``: for each of its rows, for each state of what is eliminated, look up every table."""
    places = starts.copy()
    gone = 1
    for axis in range(kept, len(sizes)):
        gone *= sizes[axis]
    for row in range(len(out)):
        places[:] = starts
        code = row
        for axis in range(kept - 1, -1, -1):
            for table in range(len(starts)):
                places[table] += code % sizes[axis] * strides[table, axis]
            code //= sizes[axis]
        best = zero
        for inner in range(gone):
            total = 0
            for table in range(len(starts)):
                place, code = places[table], inner
                for axis in range(len(sizes) - 1, kept - 1, -1):
                    place += code % sizes[axis] * strides[table, axis]
                    code //= sizes[axis]
                total += flat[place]
            best = min(best, total)
        out[row] = best


@dataclass(frozen=True)
class RowLoop(Plain):
    """Steps as a loop over rows."""

    def step(self, step: Step, tables: Sequence[Any], threads: int) -> Any:
        """Return the output array of ``step``."""
        cells = {v: 0 for axes in step.input_axes for v in axes}
        variables = [*step.axes, *(v for v in cells if v not in step.axes)]
        sizes = _sizes(step, tables, variables)
        strides = np.zeros((len(tables), len(variables)), np.int64)
        for t, axes in enumerate(step.input_axes):
            stride = 1
            for v in reversed(axes):
                strides[t, variables.index(v)] = stride
                stride *= sizes[variables.index(v)]
        starts = np.cumsum([0, *(len(table) for table in tables[:-1])])
        out = np.empty(step.lowered.out_cells, self.semiring.dtype)
        flat = np.concatenate(tables).astype(np.int64)
        _rows(flat, starts, strides, np.array(sizes), len(step.axes), out, int(self.semiring.zero))
        return out


def _sizes(step: Step, tables: Sequence[Any], variables: Sequence[int]) -> list[int]:
    """Domain sizes, all alike in these problems: the cells of a table tell."""
    t = max(range(len(tables)), key=lambda k: len(step.input_axes[k]))
    return [round(len(tables[t]) ** (1 / len(step.input_axes[t])))] * len(variables)


def main() -> None:
    """Print a table, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="grid, random or scale-free")
    parser.add_argument("--by", help="variables, domain, density or z")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one run")
    parser.add_argument("--order", default="max-degree", help="of the pseudo-tree, as in bucketflow dpop")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--workers", type=int, help="run agents as tasks on so many Dask workers, too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path)
    options = parser.parse_args()
    rows = []
    for case in cases():
        if options.only in (None, case.kind) and options.by in (None, case.by):
            rows.append(measured(case, options))
            print(end=".", flush=True)
    print()
    Console(width=200).print(table_of(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if options.plots:
        write_plots(rows, options.plots)


def measured(case: Case, options: argparse.Namespace) -> Row:
    """Figures of a case: means over its instances."""
    rows = [_instance(case, seed, options) for seed in range(options.instances)]
    found: dict[str, Any] = {}
    for name in asdict(rows[0]):
        values = [getattr(row, name) for row in rows]
        found[name] = None if None in values else mean(values) if name != "case" else case
    return Row(**found)


def _instance(case: Case, seed: int, options: argparse.Namespace) -> Row:
    dcop = bucketflow.generate(
        case.kind,  # type: ignore[arg-type]
        variables=case.variables,
        domain=case.domain,
        density=case.density,
        seed=seed,
    )
    asked = AgentOptions(order=options.order, z=case.z)
    planned = plan_dcop(dcop, asked, 1 << 200)
    checks = sum(plan.checks for plan in planned.plans.values())
    cells = [plan.message_cells * planned.semiring.itemsize for plan in planned.plans.values()]
    tree = planned.tree
    width = max(len(plan.separator) for plan in planned.plans.values())
    row = Row(case, width, tree.depth, float(sum(cells)), float(max(cells)))
    if planned.table_bytes > _MEMORY:
        return replace(row, planned=_of_planned(dcop, asked, options))
    if checks * _LOOP_SECONDS < options.seconds:
        row = replace(row, loop=_best(planned, RowLoop(planned.semiring))[0])
    if checks * _KERNEL_SECONDS < options.seconds:
        seconds, ran = _best(planned)
        row = replace(row, cpu=seconds, wall=ran.seconds, simulated=_simulated(ran), gap=_gap(planned, ran))
        if options.workers and case.z is None:
            row = replace(row, workers=_on_workers(dcop, options.workers))
    if options.gpu:
        seconds, ran = _best(replace(planned, asked=replace(asked, device=True)))
        row = replace(row, gpu=seconds, simulated_gpu=_simulated(ran))
    return replace(row, planned=_of_planned(dcop, asked, options))


def _best(planned: Planned, algebra: Plain | None = None) -> tuple[float, Ran]:
    """Run twice; return the seconds of all agents together, and the run."""
    found = []
    for _ in range(2):
        ran = run_dcop(planned, SerialPool(), algebra)
        found.append((ran.found.computing, ran))
    return min(found, key=lambda each: each[0])


def _simulated(ran: Ran) -> float:
    return ran.found.util.seconds + ran.found.value.seconds


def _of_planned(dcop: Dcop, asked: AgentOptions, options: argparse.Namespace) -> float | None:
    """Simulated seconds on the tree of a good elimination order."""
    if asked.z is not None:
        return None
    try:
        planned = plan_dcop(dcop, replace(asked, order="planned"), _MEMORY)
    except BudgetError:
        return None
    if sum(plan.checks for plan in planned.plans.values()) * _KERNEL_SECONDS > options.seconds:
        return None
    return _simulated(_best(planned)[1])


def _gap(planned: Planned, ran: Ran) -> float | None:
    """How far ADPOP's assignment is above its bound, as a part of the assignment's cost."""
    total, states = ran.found.total, ran.found.states
    if planned.asked.z is None or total is None:
        return None
    cost = planned.dcop.model.cost([states[v] for v in range(len(states))])
    return None if cost is None else (cost - total) / max(cost, 1)


def _on_workers(dcop: Dcop, workers: int) -> float:
    """Wall seconds of agents as tasks, beside the simulation of the same run."""
    return bucketflow.dpop(dcop, workers=workers, tasks="steps").seconds["run"]


def table_of(rows: Sequence[Row]) -> Table:
    """Figures side by side."""
    table = Table(title="DPOP and ADPOP, seconds", title_justify="left")
    columns = (
        "topology",
        "by",
        "|X|",
        "|D|",
        "p1",
        "z",
        "width",
        "depth",
        "load",
        "largest",
        "row loop",
        "CPU",
        "GPU",
        "wall",
    )
    for column in (*columns, "loop/CPU", "CPU/GPU", "sim. CPU", "sim. GPU", "sim. planned", "gap %", "workers"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        case = row.case
        density = f"{case.density:g}" if case.kind == "random" else ""
        table.add_row(
            *(case.kind, case.by, str(case.variables), str(case.domain), density, str(case.z or "")),
            *(f"{row.width:.1f}", f"{row.depth:.1f}", format_bytes(round(row.load)), format_bytes(round(row.largest))),
            *map(_seconds, (row.loop, row.cpu, row.gpu, row.wall)),
            *(_ratio(row.loop, row.cpu), _ratio(row.cpu, row.gpu)),
            *map(_seconds, (row.simulated, row.simulated_gpu, row.planned)),
            *("" if row.gap is None else f"{100 * row.gap:.1f}", _seconds(row.workers)),
        )
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value < 1 else f"{value:.2f}"


def _ratio(slow: float | None, fast: float | None) -> str:
    return "" if slow is None or fast is None else f"{slow / fast:.1f}"


def write_plots(rows: Sequence[Row], folder: Path) -> None:
    """Write a chart for every topology and what was varied."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        "loop": "row loop",
        "cpu": "CPU",
        "gpu": "GPU",
        "wall": "wall",
        "simulated": "simulated",
        "planned": "simulated, planned",
    }
    for kind, by in dict.fromkeys((row.case.kind, row.case.by) for row in rows):
        own = [row for row in rows if (row.case.kind, row.case.by) == (kind, by)]
        for what, unit, shown in (("seconds", "seconds", names), ("load", "bytes", _LOADS)):
            lines = [
                Series(title, [(row.case.x, value) for row in own if (value := getattr(row, name))])
                for name, title in shown.items()
            ]
            path = folder / f"{kind}_{by}_{what}.svg"
            path.write_text(chart(f"{kind}: {what} by {by}", by, unit, [line for line in lines if line.points]))


if __name__ == "__main__":
    main()
