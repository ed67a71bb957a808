"""How long planning takes beside what it plans: ``python tests/bench/planning.py [--sample 40] [--only Grids]``.

Every question (optimum, partition, marginals or, of costs, max-marginals) is planned within the machine's memory, a
quarter of what the whole plan needs, and 64 MB. The bound is 10% of the predicted run, but at least 0.3 CPU-s, and
3 CPU-s for what is refused; ``ratio`` is to the bound. Runs are predicted by nominal rates, which do not change.
Reading the file and compiling the search are not counted.
"""

from __future__ import annotations

import argparse
import csv
import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

from parts.instances import KINDS, evidence_beside, grid_model
from parts.needs import data_folder

from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.errors import BucketflowError, BudgetError, FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.pipeline.plans.planner import forget_plans
from bucketflow.pipeline.trees.costs import Rates

SHARE, LEAST, REFUSED = 0.1, 0.3, 3.0
#: Always among the sample: these took too long once.
NAMED = (
    "uai/fabe_grid/90-38-5.uai.xz",
    "uai/fabe_grid/90-30-5.uai.xz",
    "uai/uai2014/CSP_13.uai.xz",
    "wcsp/spot5_orig/1405.wcsp.xz",
    "wcsp/spot5_orig/408.wcsp.xz",
    "wcsp/celar/CELAR6-SUB0.wcsp.xz",
    "wcsp/celar/scen06.wcsp.xz",
    "uai/uai2014map/wcsp_11.uai.xz",
    "bn/munin.bif.gz",
    "bn/link.bif.gz",
    "bn/diabetes.bif.gz",
)
GRIDS = ((8, 40, 3), (7, 7, 8), (12, 30, 2))
_MOST_FILE_BYTES = 3 << 20


class OutOfTime(BucketflowError):
    """Planning was stopped."""


@dataclass(frozen=True)
class Row:
    """One planning: CPU seconds, seconds predicted (None: refused) and what was planned."""

    name: str
    query: str
    memory: str
    cpu: float
    predicted: float | None
    way: str

    @property
    def ratio(self) -> float:
        """CPU seconds over the bound."""
        return self.cpu / (REFUSED if self.predicted is None else max(LEAST, SHARE * self.predicted))

    def __str__(self) -> str:
        predicted = "-" if self.predicted is None else f"{self.predicted:.4g}"
        return f"{self.name}\t{self.query}\t{self.memory}\t{self.cpu:.2f}\t{predicted}\t{self.ratio:.2f}\t{self.way}"


def models(sample: int, only: str) -> Iterator[tuple[str, Model, str | None]]:
    """Yield names, models and evidence: some by the size of their largest clique, those named, and grids."""
    folder = data_folder()
    with open(folder / "MANIFEST.tsv", newline="") as file:
        rows = [r for r in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if _readable(folder, r)]
    rows.sort(key=lambda r: (float(r["log2_largest_clique"] or 0), r["path"]))
    names = dict.fromkeys((*NAMED, *[rows[i * len(rows) // sample]["path"] for i in range(sample)]))
    for name in [r["path"] for r in rows if only in r["path"]] if only else names:
        with suppress(FormatError):  # global cost functions
            yield name, load(folder / name), evidence_beside(folder / name)
    for rows_, columns, states in GRIDS:
        name = f"grid {rows_}x{columns}x{states}"
        if only in name:
            yield name, grid_model(rows_, columns, states, "markov"), None


def _readable(folder: Path, row: dict[str, str]) -> bool:
    kind = row["kind"].removesuffix("(erg)").partition("(")[0]
    small = (folder / row["path"]).stat().st_size < _MOST_FILE_BYTES
    return small and kind in KINDS and "noisy" not in row["kind"] and float(row["log2_largest_clique"] or 0) > 12


def planner(model: Model, query: str, evidence: str | None) -> Callable[[Options], Plan | None]:
    """Return what plans a question."""
    question = question_of(model, query, evidence)
    return lambda options: prepare(question, Resources(options), rates=lambda _: Rates()).plan


def measured(name: str, query: str, memory: str, plan: Callable[[], Plan | None], limit: float) -> tuple[Row, Any]:
    """Plan once; a refusal is a result, and so is running out of time."""
    forget_plans()
    gc.collect()
    signal.setitimer(signal.ITIMER_PROF, limit)
    start = time.process_time()
    found: Any = None
    try:
        found = plan()
        way = "trivial" if found is None else _way(found)
    except OutOfTime:
        way = "STOPPED"
    except BudgetError as error:
        way, found = f"refused: {error}"[:60], error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    cpu = time.process_time() - start
    predicted = found.seconds if isinstance(found, Plan) else 0.0 if way == "trivial" else None
    return Row(name, query, memory, cpu, predicted, way), found


def _way(plan: Plan) -> str:
    if plan.spill:
        return f"spilled, {len(plan.spill.stages)} stages"
    again = " again" if plan.cuts else ""
    return (f"{plan.slices} slices" if plan.slices > 1 else "whole") + again


def _stop(*_: object) -> None:
    raise OutOfTime("planning takes too long")


def rows_of(name: str, model: Model, evidence: str | None, limit: float) -> Iterator[Row]:
    """Plan all questions of a model within all budgets."""
    costs = model.kind == "cost"
    for query in ("optimum", "max-marginals") if costs else ("optimum", "partition", "marginals"):
        make = planner(model, query, evidence)
        whole, found = measured(name, query, "whole", lambda make=make: make(Options()), limit)
        yield whole
        budgets = {"64MB": 64_000_000}
        if isinstance(found, Plan):
            unbounded = found
            if found.slices > 1 or found.spill:
                unbounded = replace(found, peak_bytes=found.peak_bytes * 4)
            budgets["1/4"] = unbounded.peak_bytes // 4
        for memory, size in budgets.items():
            if isinstance(found, Plan) and found.fits(size):
                continue
            yield measured(name, query, memory, lambda make=make, size=size: make(Options(memory=size)), limit)[0]


def main() -> None:
    """Print a line for each planning, then the worst and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="instances by the size of their largest clique")
    parser.add_argument("--only", default="", help="part of the path; then all such instances")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU-s after which a planning is stopped")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _stop)
    planner(grid_model(12, 14, 3, "markov"), "partition", None)(Options(order_time=0.5))
    found = []
    print("name\tquery\tmemory\tCPU-s\tpredicted\tratio\tway", flush=True)
    for name, model, evidence in models(options.sample, options.only):
        for row in rows_of(name, model, evidence, options.limit):
            print(row, flush=True)
            found.append(row)
    seconds = [log(row.predicted) for row in found if row.predicted]
    mean = exp(sum(seconds) / max(len(seconds), 1))
    above = sorted([row for row in found if row.ratio > 1], key=lambda row: -row.ratio)
    print(f"{len(found)} planned, {sum(row.cpu for row in found):.1f} CPU-s; predicted {mean:.4g} s in geometric mean")
    print(f"{len(above)} above the bound:", *above[:20], sep="\n")


if __name__ == "__main__":
    main()
