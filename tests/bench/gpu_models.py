"""Whole models on a GPU beside their floors: ``python tests/bench/gpu_models.py [--plan] [NAME …]``.

The floor of a plan is the sum over its steps of max(cells / arithmetic rate, bytes / bandwidth), with ceilings
measured on an H200. ``--plan`` only searches for trees and writes them down, on a machine without a GPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_runs import described, preprocessed, slice_times
from parts.needs import data_folder

import bucketflow
from bucketflow.pipeline.answering.prepared import Prepared
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget.device_fit import HostBudget, fitted_for_device
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.trees.costs import gpu_rates
from bucketflow.pipeline.trees.memory import step_bytes

TREES = Path(os.environ.get("BUCKETFLOW_GPUDATA", Path(__file__).resolve().parents[2] / ".gpudata"))
"""Where trees are kept that were searched for long."""
BANDWIDTH = 4.25e12
"""Bytes a second; and cells a second of products, by dtype."""
RATES = {"int16": 32.9e12, "int32": 16.6e12, "int64": 3e12, "float64": 5.15e12, "sum": 30.5e12}
BUDGET = 60 * 10**9
"""Bytes of a device that a plan may take: a card of 80 GB has them, beside what pools keep of the run before."""
SHARED = 2
"""A variable that the stored tree of CELAR6-SUB0 eliminates at its root."""
PART = ((1, 2), (4, 3))
"""States that are kept of two variables over which the stored tree of CELAR6-SUB1 is sliced."""
GPUS = int(os.environ.get("BUCKETFLOW_GPUS", "1"))


@dataclass(frozen=True)
class Case:
    """A model, a question and what is known: an answer, and the seconds of the fastest program we know of.

    ``kept`` says of some variables how many states stay, so that a model of hours takes a part of its slices.
    """

    name: str
    file: str
    query: str = "optimum"
    answer: float | None = None
    published: float | None = None
    search: float = 20.0
    copies: int = 1
    kept: tuple[tuple[int, int], ...] = ()

    @property
    def tree(self) -> str:
        """Under what name its tree is stored."""
        return self.name.rpartition(" x ")[2].removesuffix(", part")


CASES = [
    Case("SPOT5 54", "wcsp/spot5/54.wcsp", answer=37, published=0.024),
    Case("SPOT5 503", "wcsp/spot5/503.wcsp", answer=11113, published=0.055),
    Case("SPOT5 404", "wcsp/spot5/404.wcsp.xz", answer=114, published=0.079),
    Case("SPOT5 29", "wcsp/spot5/29.wcsp", answer=8059, published=0.110),
    Case("c432", "wcsp/iscas89/c432.wcsp.xz", answer=101, published=0.261),
    Case("c880", "wcsp/iscas89/c880.wcsp.xz", answer=162),
    Case("SPOT5 505", "wcsp/spot5_tb2/505.wcsp.xz", answer=21253, published=14.7, search=60),
    Case("CELAR6-SUB0", "wcsp/celar/CELAR6-SUB0.wcsp.xz", answer=159, search=20),
    Case("16 x CELAR6-SUB0", "wcsp/celar/CELAR6-SUB0.wcsp.xz", answer=16 * 159, copies=16),
    Case("CELAR6-SUB1", "wcsp/celar/CELAR6-SUB1.wcsp.xz", answer=2669, search=90),
    Case("CELAR6-SUB1, part", "wcsp/celar/CELAR6-SUB1.wcsp.xz", kept=PART),
    Case("queen5_5_4", "wcsp/coloring/queen5_5_4.wcsp", answer=12, search=40),
    Case("75-26-5 MPE", "uai/fabe_grid/75-26-5.uai.xz", search=60),
    Case("Promedas_35 MPE", "uai/uai2014map/Promedas_35.uai.xz", search=60),
    Case("Promedas_41 MPE", "uai/uai2014map/Promedas_41.uai.xz", search=90),
    Case("Grids_28 MPE", "uai/uai2014map/Grids_28.uai.xz", search=90),
    Case("Grids_29 MPE", "uai/uai2014map/Grids_29.uai.xz", search=90),
    Case("75-26-5 Z", "uai/fabe_grid/75-26-5.uai.xz", "partition", search=60),
    Case("Promedas_35 Z", "uai/uai2014map/Promedas_35.uai.xz", "partition", search=60),
    Case("Grids_28 Z", "uai/uai2014map/Grids_28.uai.xz", "partition", search=90),
]


def shortened(model: Model, kept: tuple[tuple[int, int], ...]) -> Model:
    """Return a model whose variables keep only their first states, as many as given."""
    dims = tuple(dict(kept).get(v, n) for v, n in enumerate(model.dims))

    def cut(f: Function) -> Function:
        sizes = [dims[v] for v in f.scope]
        if f.rows is None:
            return replace(f, values=f.values[tuple(map(slice, sizes))])
        there = (f.rows < sizes).all(axis=1)
        return replace(f, values=f.values[there], rows=f.rows[there])

    states = tuple(named and named[:n] for named, n in zip(model.states, dims, strict=True))
    return replace(model, dims=dims, states=states, functions=tuple(map(cut, model.functions)))


def copied(model: Model, count: int) -> Model:
    """Return some copies of a cost network that share one variable: independent subtrees of equal work."""
    if count == 1:
        return model
    n, own, others = len(model.names), [], [v for v in range(len(model.names)) if v != SHARED]
    for c in range(count):
        at = dict(zip(others, range(1 + c * (n - 1), 1 + (c + 1) * (n - 1)), strict=True))
        own.append({**at, SHARED: 0})
    order = [SHARED, *others * count]
    return Model(
        model.kind,
        (model.names[SHARED], *(f"{model.names[v]}_{c}" for c in range(count) for v in others)),
        tuple(model.dims[v] for v in order),
        tuple(model.states[v] for v in order),
        tuple(replace(f, scope=tuple(at[v] for v in f.scope)) for at in own for f in model.functions),
    )


def copied_tree(children: Any, leaves: int, count: int) -> list[list[int]]:
    """Return the tree of some copies from that of one: the shared variable goes at a new root."""
    steps = len(children)

    def node(copy: int, i: int) -> int:
        return copy * leaves + i if i < leaves else count * leaves + copy * steps + i - leaves

    copies = [[node(c, i) for i in kids] for c in range(count) for kids in children]
    return copies if count == 1 else [*copies, [node(c, leaves + steps - 1) for c in range(count)]]


def planned(case: Case, children: Any, search: float | None, memory_bytes: int = BUDGET, devices: int = 1) -> Prepared:
    """Plan one case, from its stored tree (or that of one copy) if there is one."""
    start = time.perf_counter()
    path = data_folder() / case.file
    model = copied(shortened(bucketflow.load(path), case.kept), case.copies)
    beside = Path(str(path).removesuffix(".xz") + ".evid")
    prepared = preprocessed(question_of(model, case.query, beside if beside.exists() else None), devices)
    options = PlanOptions(memory_bytes=memory_bytes, decode=case.query == "optimum", order_seconds=search)
    if children is not None:
        tree = copied_tree(children, len(prepared.network.scopes) // case.copies, case.copies)
        options = replace(options, children=tuple(tuple(kids) for kids in tree))
    planner = Planner(prepared.problem, options, gpu_rates(prepared.problem.semiring))
    prices = fitted_for_device(planner, "slice", HostBudget(0, True, 1 << 62, lambda: 1e9), devices)
    spent = time.perf_counter() - start
    return replace(prepared, prices=prices, seconds=spent)


def floor_seconds(plan: Plan, dtype: str) -> float:
    """Return what no execution of the plan's steps one by one can beat."""
    total = 0.0
    for step in plan.steps:
        arithmetic = step.lowered.cells / RATES[dtype]
        total += max(arithmetic, step_bytes(step, plan.tree.dims, plan.itemsize) / BANDWIDTH)
    return total * plan.slices


def run(case: Case, prepared: Prepared, repeats: int) -> tuple[Result, list[float]]:
    """Answer a case some times; the first includes the compilation of its kernels."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = answered(replace(prepared, resources=Resources(Options(gpus=GPUS))), None, None, [])
        assert isinstance(result, Result)
        times.append(time.perf_counter() - start)
    return result, times


def profile(prepared: Prepared, top: int) -> None:
    """Print the slowest steps of one slice."""
    plan = prepared.plan
    assert plan is not None
    spent = slice_times(prepared)
    whole = sum(seconds for seconds, _ in spent)
    small = sum(seconds for seconds, step in spent if step.lowered.cells < 1 << 20)
    print(f"   one slice {whole * 1e3:.2f} ms in {len(spent)} steps; {small * 1e3:.2f} ms in steps below 2^20 cells")
    for seconds, step in sorted(spent, key=lambda s: -s[0])[:top]:
        moved = step_bytes(step, plan.tree.dims, plan.itemsize)
        print(
            f"   {seconds * 1e3:9.3f} ms {step.lowered.cells / seconds / 1e12:7.3f} Tcells/s "
            f"{moved / seconds / 1e12:6.2f} TB/s  {described(step)}"
        )


def stored_trees() -> dict[str, Any]:
    """Return the trees that were searched for before, by case."""
    trees: dict[str, Any] = {}
    for stored in sorted(TREES.glob("trees*.json")):
        trees |= json.loads(stored.read_text())
    return trees


def main() -> None:
    """Plan, or run, the cases whose names begin with one of the arguments."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    store = TREES / "trees.json"
    trees = stored_trees()
    for case in CASES:
        if "--plan" in sys.argv and case.name != case.tree:
            continue
        if names and not any(case.name.startswith(name) for name in names):
            continue
        search = case.search if "--plan" in sys.argv else None
        prepared = planned(case, trees.get(case.tree), search)
        plan = prepared.plan
        assert plan is not None
        semiring = prepared.problem.semiring
        dtype = "sum" if semiring.name == "sum_product" else semiring.dtype
        floor = floor_seconds(plan, dtype)
        print(
            f"{case.name:16s} {dtype:7s} {plan.cells:.3g} cells, {len(plan.steps)} steps, {plan.slices} slices "
            f"(x{plan.slice_overhead:.2f}), peak {plan.peak_bytes / 1e9:.1f} GB, parts {len(plan.cuts) + 1}, "
            f"predicted {plan.predicted_seconds:.3g} s, floor {floor:.3g} s, planned in {prepared.seconds:.1f} s",
            flush=True,
        )
        if "--plan" in sys.argv:
            trees[case.tree] = plan.tree.children
            store.write_text(json.dumps(trees))
            continue
        result, times = run(case, prepared, 3 if plan.predicted_seconds < 5 else 1)
        value = result.log10 if result.value is None else float(result.value)
        best = min(times)
        right = "" if case.answer is None else "right" if value == case.answer else f"WRONG, not {case.answer}"
        beside = "" if case.published is None else f", published {case.published} s"
        print(
            f"   {result.status} {value} {right}: {best:.4g} s (first {times[0]:.3g}), {best / floor:.1f} x floor"
            f"{beside}; {result.seconds}",
            flush=True,
        )
        if "--profile" in sys.argv:
            profile(prepared, 12)


if __name__ == "__main__":
    main()
