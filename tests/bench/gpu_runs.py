"""Runs on a GPU as they are planned, step by step: ``python tests/bench/gpu_runs.py [--plan] [--budget GB] [NAME …]``.

Every case is planned as ``solve --gpus 1`` plans it, several at a time on other cores, and run alone. A line says what
was predicted, what it took, what part of that was decoding, how many times the floor that is, what the driver says was
in use at most, and how the plan's cells compare with a CPU's plan. Below are the steps that take more than 5 % of a
slice. The floor of a step is the larger of its cells over the arithmetic rate and its bytes over the copy rate, both
measured in the same run. Long runs are two slices, of which the second counts. ``--plan`` needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import log2
from multiprocessing import get_context
from statistics import geometric_mean
from typing import Any

from parts.instances import evidence_beside
from parts.needs import data_folder

from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering.prepared import Prepared, problem_of
from bucketflow.pipeline.answering.question import Question, question_of
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.budget.device_fit import HostBudget, fitted_for_device
from bucketflow.pipeline.budget.fit import Prices, fitted
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.prediction import step_seconds
from bucketflow.pipeline.plans.problem import PlanOptions
from bucketflow.pipeline.queries.arithmetic import arithmetic_for
from bucketflow.pipeline.results.result import Result
from bucketflow.pipeline.runs.run import Run
from bucketflow.pipeline.runs.slices import slice_states
from bucketflow.pipeline.trees.costs import gpu_rates
from bucketflow.pipeline.trees.memory import step_bytes

#: Longer runs are two slices.
WHOLE_SECONDS = 8.0
CASES: dict[str, tuple[str, str, float | None]] = {
    "CELAR6-SUB0": ("wcsp/celar/CELAR6-SUB0.wcsp.xz", "optimum", 159),
    "CELAR6-SUB1": ("wcsp/celar/CELAR6-SUB1.wcsp.xz", "optimum", 2746),
    "s1423": ("wcsp/iscas89/s1423.wcsp.xz", "optimum", 231),
    "myciel5_3": ("wcsp/coloring/myciel5_3.wcsp", "optimum", 16),
    "myciel5_4": ("wcsp/coloring/myciel5_6.wcsp", "optimum", None),
    "myciel5_5": ("wcsp/coloring/myciel5_5.wcsp", "optimum", None),
    "s1494": ("wcsp/iscas89/s1494.wcsp.xz", "optimum", None),
    "CELAR6-SUB4-20": ("wcsp/celar/CELAR6-SUB4-20.wcsp.xz", "optimum", None),
    "mastermind_03_08_04": ("wcsp/mastermind/mastermind_03_08_04.wcsp.xz", "optimum", 138),
    "505": ("wcsp/spot5_tb2/505.wcsp.xz", "optimum", 21253),
    "404": ("wcsp/spot5_tb2/404.wcsp.xz", "optimum", 114),
    "pdb1hyp": ("uai/uai2008_protein/pdb1hyp.uai.xz", "partition", None),
    "ra.cnf": ("uai/uai2014/ra.cnf.uai.xz", "partition", 286.272752832),
    "Grids_28 MPE": ("uai/uai2014map/Grids_28.uai.xz", "optimum", None),
    "Grids_28 Z": ("uai/uai2014map/Grids_28.uai.xz", "partition", None),
    "linkage_14": ("uai/uai2014/linkage_14.uai.xz", "partition", None),
    "linkage_18": ("uai/uai2014/linkage_18.uai.xz", "optimum", None),
    "linkage_25": ("uai/uai2014/linkage_25.uai.xz", "optimum", None),
    "linkage_27": ("uai/uai2014/linkage_27.uai.xz", "partition", None),
    "75-26-5 MPE": ("uai/fabe_grid/75-26-5.uai.xz", "optimum", None),
    "75-26-5 Z": ("uai/fabe_grid/75-26-5.uai.xz", "partition", None),
    "Promedas_35 MPE": ("uai/uai2014map/Promedas_35.uai.xz", "optimum", None),
    "Promedas_35 Z": ("uai/uai2014map/Promedas_35.uai.xz", "partition", None),
}
#: Cases whose variables keep only their first states, and how many.
KEPT_STATES = {"myciel5_4": 4}


@dataclass(frozen=True)
class Ceilings:
    """Bytes and cells in a second, of each kind; the cells are of joins that matrix units cannot compute."""

    copy: float
    cells: dict[str, float]
    joined: dict[str, float]

    def floor(self, plan: Plan, step: Any, dtype: str) -> float:
        """Return what no execution of one step can beat."""
        moved = step_bytes(step, plan.tree.dims, plan.itemsize)
        return max(step.lowered.cells / self.cells[dtype], moved / self.copy)


@dataclass(frozen=True)
class Took:
    """Seconds of a run, those predicted and those of its floor."""

    measured: float
    predicted: float
    floor: float


def unplanned(name: str) -> Prepared:
    """Read and preprocess a case."""
    file, query, _ = CASES[name]
    path = data_folder() / file
    model = load(path)
    if name in KEPT_STATES:
        from gpu_models import shortened

        model = shortened(model, tuple(enumerate([KEPT_STATES[name]] * len(model.dims))))
    return preprocessed(question_of(model, query, evidence_beside(path)))  # type: ignore[arg-type]


def preprocessed(question: Question, devices: int = 1) -> Prepared:
    """Return what is left of a question to plan."""
    network, targets = question.reduced
    arithmetic = arithmetic_for(network)
    problem = problem_of(network, arithmetic, targets)
    return Prepared(question, Resources(Options(gpus=devices)), network, arithmetic, problem)


def planned(name: str, budget: int) -> tuple[Prices, float, float | None] | str:
    """Plan a case for a device of so many bytes.

    Returns plans, CPU seconds, and how many times a CPU's cells the plan has; or why it is refused.
    """
    start = time.process_time()
    problem = unplanned(name).problem
    options = PlanOptions(memory_bytes=budget, decode=CASES[name][1] == "optimum")
    try:
        planner = Planner(problem, options, gpu_rates(problem.semiring))
        prices = fitted_for_device(planner, "auto", HostBudget(64 << 30, False, 1 << 62, lambda: 1e9))
    except BudgetError as refused:
        return str(refused)
    spent = time.process_time() - start
    try:
        host = Planner(problem, replace(options, memory_bytes=1 << 60))
        here = fitted(host, "auto", 1 << 60, lambda: 1e9).chosen
    except BudgetError:
        return prices, spent, None
    return prices, spent, share(prices.chosen.cells, here.cells)


def share(part: float, whole: float) -> float | None:
    """Return what part of a whole something is; None of nothing."""
    return part / whole if whole else None


def size(cells: float) -> str:
    """Say how many cells a plan sweeps; one whose tables are all the model's own sweeps none."""
    return f"2^{log2(cells):.1f} cells" if cells else "no cells"


def times(share: float | None) -> str:
    """Say how many times something else is; nothing has no multiple."""
    return "-" if share is None else f"{share:.2f}"


def measured_ceilings() -> Ceilings:
    """Measure what the device does in a second."""
    import gpu

    rates = {dtype: gpu.register_rate(dtype) for dtype in gpu.REGISTER_KERNELS}
    return Ceilings(gpu.copy_rate(), {**rates, "sum": gpu.matmul_rate(), "int64": rates["float64"] / 2}, rates)


@contextmanager
def polled() -> Iterator[Callable[[], int]]:
    """Poll the driver; what is yielded says by how much the device's free memory had fallen at most."""
    import cupy as cp

    from bucketflow.tasks.gpu import arrays

    arrays.free_pools()
    free, ended = cp.cuda.runtime.memGetInfo()[0], threading.Event()
    least = [free]

    def poll() -> None:
        while not ended.wait(0.002):
            least[0] = min(least[0], cp.cuda.runtime.memGetInfo()[0])

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield lambda: free - least[0]
    finally:
        ended.set()
        thread.join()


def slice_times(prepared: Prepared) -> list[tuple[float, Any]]:
    """Run two slices, the device waited for after every step; seconds of the second's steps, with the steps.

    Steps that no slice changes are not among them.
    """
    import cupy as cp

    plan = prepared.plan
    assert plan is not None
    run = Run(prepared.network, plan, prepared.problem, prepared.arithmetic, SerialPool(), 1, True, device=True)
    states = [slice_states(plan.dims, plan.sliced, 0)] * 2
    last, spent = time.perf_counter(), []

    def on_step(step: Any, _: Any) -> None:
        nonlocal last
        cp.cuda.Device().synchronize()
        now = time.perf_counter()
        spent.append((now - last, step))
        last = now

    for _ in run.program(plan.steps, plan.tree.roots, 0).run_slices(states, on_table=on_step):
        pass
    return spent[len(plan.steps) :]


def described(step: Any) -> str:
    """Say by which passes a step runs, and its axes."""
    from bucketflow.tasks.gpu.tiling.device_lowering import device_step
    from bucketflow.tasks.gpu.tiling.passes import StreamPass

    passes = ", ".join(
        f"stream w{p.stream.width} u{p.stream.unrolled} in{len(p.inputs)} v{sum(p.stream.vectors)}"
        if isinstance(p, StreamPass)
        else type(p).__name__
        for p in device_step(step.lowered).passes
    )
    axes = step.lowered.axes
    shape = " ".join(
        f"{n}:{'/'.join(map(str, s))}>{o}" for n, *s, o in zip(axes.sizes, *axes.strides, axes.out, strict=True)
    )
    return f"{passes}  {shape[:230]}"


def print_steps(prepared: Prepared, dtype: str, ceilings: Ceilings) -> float:
    """Print the steps of a slice that take long; return what all take."""
    plan = prepared.plan
    assert plan is not None
    spent, rates = slice_times(prepared), gpu_rates(prepared.problem.semiring)
    whole = sum(seconds for seconds, _ in spent)
    small = [seconds for seconds, step in spent if step.lowered.cells < 1 << 20]
    print(
        f"   a slice {whole * 1e3:.2f} ms, {len(spent)} steps; {len(small)} below 2^20 cells {sum(small) * 1e3:.2f} ms"
    )
    for seconds, step in sorted(spent, key=lambda s: -s[0])[:8]:
        if seconds < 0.05 * whole:
            break
        predicted, floor = step_seconds(step.lowered, rates, plan.itemsize), ceilings.floor(plan, step, dtype)
        print(
            f"   {seconds * 1e3:9.3f} ms, {seconds / predicted:5.1f} x predicted, {seconds / floor:6.1f} x floor, "
            f"{step.lowered.cells / seconds / 1e12:7.3f} Tcells/s  {described(step)}"
        )
    return whole


def answer(prepared: Prepared) -> tuple[float, Result]:
    """Answer a case; return the seconds by the clock, and the answer."""
    start = time.perf_counter()
    result = answered(replace(prepared, resources=Resources(Options(gpus=1))), None, None, [])
    assert isinstance(result, Result)
    return time.perf_counter() - start, result


def run(name: str, prepared: Prepared, ratio: float | None, ceilings: Ceilings) -> Took:
    """Run a case and print what it took."""
    plan, wanted = prepared.plan, CASES[name][2]
    assert plan is not None
    semiring = prepared.problem.semiring
    dtype = "sum" if semiring.name == "sum_product" else semiring.dtype
    floors = [ceilings.floor(plan, step, dtype) for step in plan.steps]
    floor = sum(floors[: plan.variant_from]) + sum(floors[plan.variant_from :]) * plan.slices
    measured, decode, told = 0.0, 0.0, "slices only"
    with polled() as used:
        if plan.predicted_seconds < WHOLE_SECONDS:
            answer(prepared)
        most = used()
    if plan.predicted_seconds < WHOLE_SECONDS:
        # who polls takes turns with Python: short runs take half as long again
        measured, result = min([answer(prepared) for _ in range(3)], key=lambda found: found[0])
        decode = result.seconds.get("decode", 0.0)
        value = result.log10 if result.value is None else float(result.value)
        told = f"{value}{'' if wanted is None else ' right' if abs(value - wanted) < 1e-6 else f' NOT {wanted}'}"
    slice_seconds = 0.0 if plan.spill else print_steps(prepared, dtype, ceilings)
    measured = measured or slice_seconds * plan.slices
    beside = "" if ratio is None else f" ({ratio:.2f} of the CPU's)"
    print(
        f"{name:20s} {dtype:7s} {size(plan.cells)}{beside}, {plan.slices} slices, "
        f"planned {prepared.seconds:.1f} CPU-s, predicted {plan.predicted_seconds:.4g} s, measured {measured:.4g} "
        f"({times(share(measured, plan.predicted_seconds))}), {times(share(measured, floor))} x floor, "
        f"decode {decode * 1e3:.1f} ms, "
        f"{most / 1e9:.2f} GB of {plan.peak_bytes / 1e9:.2f} planned, {told}",
        flush=True,
    )
    return Took(measured, plan.predicted_seconds, floor)


def print_summary(taken: Sequence[Took]) -> None:
    """Say how the runs that are not short compare with their floors, and with what was predicted."""
    long = [took for took in taken if took.measured > 0.05 and took.floor > 0.0]
    if not long:
        return
    floors, foreseen = [took.measured / took.floor for took in long], [took.measured / took.predicted for took in long]
    within = sum(0.5 <= part <= 2 for part in foreseen)
    print(
        f"{len(long)} runs over 50 ms: {geometric_mean(floors):.2f} x floor in geometric "
        f"mean, {max(floors):.2f} at most; {within} within a factor 2 of what was predicted"
    )


def shown(name: str, prepared: Prepared, ratio: float | None) -> None:
    """Print a plan."""
    plan = prepared.plan
    assert plan is not None
    beside = "" if ratio is None else f" ({ratio:.2f} of the CPU's)"
    print(
        f"{name:20s} {size(plan.cells)}{beside}, {len(plan.steps)} steps, {plan.slices} slices, "
        f"peak {plan.peak_bytes / 1e9:.2f} GB, planned {prepared.seconds:.1f} CPU-s, "
        f"predicted {plan.predicted_seconds:.4g} s",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan the cases side by side and run them one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--budget", type=float, default=70.0, help="GB of the device")
    chosen = parser.parse_args(arguments)
    names = [name for name in CASES if not chosen.names or any(name.startswith(each) for each in chosen.names)]
    workers = max(1, min(len(names), (os.cpu_count() or 2) - 1))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        plans = {name: pool.submit(planned, name, int(chosen.budget * 1e9)) for name in names}
        if not chosen.plan:
            ceilings = measured_ceilings()
            told = ", ".join(f"{dtype} {rate / 1e12:.1f}" for dtype, rate in ceilings.cells.items())
            print(f"copy {ceilings.copy / 1e12:.2f} TB/s; Tcells/s: {told}", flush=True)
        taken = []
        for name in names:
            found = plans[name].result()
            if isinstance(found, str):
                print(f"{name:20s} {found}", flush=True)
                continue
            prices, spent, ratio = found
            prepared = replace(unplanned(name), prices=prices, seconds=spent)
            if chosen.plan:
                shown(name, prepared, ratio)
            else:
                taken.append(run(name, prepared, ratio, ceilings))
        print_summary(taken)


if __name__ == "__main__":
    main()
