"""Slices beside tables spread over cards: ``python tests/bench/gpu_spread.py [--plan] [--counts 1,2,4] [--only WORD]``.

Each case has so little memory a card that its plan does not fit one. A line for each number of cards and each way says
seconds, work in cells, and the answer, which have to agree; the last ones say what the default takes, and how much of
what all the cards' memory in one would save is reached. ``--plan`` prints plans only, on a machine without a GPU;
``--find`` what twice the memory saves of the cells of slices, the best of several searches at each size of memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpu_runs import preprocessed
from parts.instances import evidence_beside
from parts.needs import cupy, data_folder

import bucketflow
from bucketflow.cluster.gpus import visible_gpus
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.budget.device_fit import HostBudget, fitted_for_device
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.models.query import Fit
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions
from bucketflow.pipeline.trees.costs import gpu_rates

WAYS: tuple[Fit, ...] = ("slice", "spread")
AUTO: Fit = "auto"
# Seconds of a search for an order, and its seed.
SEARCHES: tuple[tuple[float | None, int], ...] = ((None, 0), (1, 0), (1, 1), (3, 0))


@dataclass(frozen=True)
class SpreadCase:
    """A model, a question and the bytes of each card."""

    file: str
    query: str
    card_bytes: int


CASES = [
    SpreadCase("wcsp/celar/CELAR6-SUB1.wcsp.xz", "optimum", 4 * 10**9),
    SpreadCase("uai/uai2014map/Promedas_41.uai.xz", "optimum", 2 * 10**9),
    SpreadCase("uai/fabe_grid/75-26-5.uai.xz", "optimum", 10**9),
    SpreadCase("uai/uai2014map/Grids_28.uai.xz", "partition", 4 * 10**9),
    SpreadCase("uai/fabe_grid/90-30-5.uai.xz", "optimum", 10**9),
    SpreadCase("uai/fabe_grid/90-30-5.uai.xz", "partition", 10**9),
    SpreadCase("wcsp/spot5_tb2/505.wcsp.xz", "optimum", 5 * 10**8),
    SpreadCase("wcsp/spot5_orig/1504.wcsp.xz", "optimum", 2 * 10**9),
    SpreadCase("uai/uai2014/linkage_15.uai.xz", "optimum", 5 * 10**8),
]


def cells_of(plan: Plan) -> int:
    """Cells that all slices or boxes sweep."""
    if plan.spill is None:
        return plan.cells
    boxes = ((plan.spill.boxes(stage), stage.steps) for stage in plan.spill.stages)
    return sum(count * sum(step.lowered.cells for step in steps) for count, steps in boxes)


def print_plans(case: SpreadCase, counts: list[int], search: float) -> None:
    """Print what is planned by nominal rates."""
    model = bucketflow.load(data_folder() / case.file)
    for count in counts:
        prepared = preprocessed(question_of(model, case.query, None), count)
        semiring = prepared.problem.semiring
        for fit in WAYS if count > 1 else WAYS[:1]:
            for times in (1, count) if fit == "slice" and count > 1 else (1,):
                decode = case.query == "optimum"
                options = PlanOptions(memory_bytes=times * case.card_bytes, decode=decode, order_seconds=search)
                planner = Planner(prepared.problem, options, gpu_rates(semiring))
                around = HostBudget(0, False, 0, lambda: 1e9, cards=count)
                line = f"{case.file} {case.query} {count} x {times * case.card_bytes / 1e9:g} GB {fit:6s}"
                try:
                    plan = fitted_for_device(planner, fit, around, count).chosen
                except BudgetError as error:
                    print(f"{line}: {error}", flush=True)
                    continue
                print(f"{line}: {described(plan)}", flush=True)


def print_savings(case: SpreadCase, sizes: Sequence[float]) -> None:
    """Print the fewest cells in slices within each size of memory, found by several searches, and their ratios."""
    path = data_folder() / case.file
    problem = preprocessed(question_of(bucketflow.load(path), case.query, evidence_beside(path))).problem
    found: list[tuple[float, Plan]] = []
    for seconds, seed in SEARCHES:
        for size in sizes:
            options = PlanOptions(
                memory_bytes=int(size * 1e9), decode=case.query == "optimum", order_seconds=seconds, seed=seed
            )
            planner = Planner(problem, options, gpu_rates(problem.semiring))
            with suppress(BudgetError):
                found.append((size, fitted_for_device(planner, "slice", HostBudget(0, False, 0, lambda: 1e9)).chosen))
    best = {size: min([plan.cells for least, plan in found if least <= size], default=None) for size in sizes}
    cells = [f"{size:g} GB {cells:.3g}" for size, cells in best.items() if cells]
    ratios = [f"{a / b:.2f}" for a, b in pairwise(best.values()) if a and b]
    print(f"{case.file} {case.query}: cells {', '.join(cells)}; twice the memory {', '.join(ratios)}", flush=True)


def described(plan: Plan) -> str:
    """Return work and way of a plan."""
    figures = f"{cells_of(plan):.3g} cells, predicted {plan.seconds:.3g} s"
    if plan.spill is None:
        return f"{figures}, {plan.slices} slices"
    spill = plan.spill
    return f"{figures}, {spill.tasks} boxes in {len(spill.stages)} stages, {spill.disk_bytes:,} B of tables, " + (
        f"{spill.link_bytes:,} B over the link, peak {plan.peak_bytes:,} B a card"
    )


def print_runs(case: SpreadCase, counts: list[int], search: float) -> None:
    """Run a case each way on each number of cards, and on one with the memory of all; the second of two runs counts."""
    model, answers = bucketflow.load(data_folder() / case.file), set()
    fastest: dict[tuple[int, int, Fit], float] = {}
    for count in counts:
        runs = [(count, 1, fit) for fit in (*WAYS, AUTO)] if count > 1 else [(1, 1, WAYS[0])]
        for cards, times_memory, fit in [*runs, (1, count, WAYS[0])] if count > 1 else runs:
            memory = times_memory * case.card_bytes
            told: dict[str, Any] = {"gpus": cards, "gpu_memory": memory, "fit": fit, "method": "dense"}
            line, times = f"{case.file} {case.query} {cards} x {memory / 1e9:g} GB {fit:6s}", []
            try:
                for _ in range(2):
                    start = time.perf_counter()
                    result = bucketflow.solve(model, case.query, order_time=search, **told)
                    times.append(time.perf_counter() - start - result.seconds.get("plan", 0.0))
            except bucketflow.BucketflowError as error:
                print(f"{line}: {error}", flush=True)
                continue
            value = result.value if result.log10 is None else round(result.log10, 9)
            answers.add(value)
            assert result.plan is not None
            fastest[cards, times_memory, fit] = min(times)
            spent = {name: round(seconds, 3) for name, seconds in result.seconds.items()}
            print(f"{line}: {min(times):.3f} s {spent}, {described(result.plan)}, answer {value}", flush=True)
    for count in (n for n in counts if n > 1):
        slices, spread, whole = (
            fastest.get(key) for key in ((count, 1, "slice"), (count, 1, "spread"), (1, count, "slice"))
        )
        if slices and spread and whole and slices > whole / count:
            share = (slices - spread) / (slices - whole / count)
            print(f"{case.file} {count} cards: spread reaches {share:.0%} of what their memory in one would save")
    print("answers agree" if len(answers) == 1 else f"ANSWERS DIFFER: {answers}", flush=True)


def main() -> None:
    """Print a line for each case, number of cards and way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default="1,2,4")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose files have it")
    parser.add_argument("--memory", type=float, metavar="GB", help="of each card, in place of the case's own")
    parser.add_argument("--search", type=float, default=5.0, help="seconds of the search for an order")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--find", action="store_true")
    chosen = parser.parse_args()
    counts = [int(n) for n in chosen.counts.split(",")]
    if not (chosen.plan or chosen.find):
        cupy()
        counts = [n for n in counts if n <= len(visible_gpus())]
    for case in (case for case in CASES if chosen.only in case.file):
        if chosen.memory:
            case = SpreadCase(case.file, case.query, int(chosen.memory * 1e9))
        if chosen.find:
            print_savings(case, (0.5, 1, 2, 4, 8))
            continue
        (print_plans if chosen.plan else print_runs)(case, counts, chosen.search)


if __name__ == "__main__":
    main()
