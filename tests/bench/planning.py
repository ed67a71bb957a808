"""How long planning takes beside what it plans: ``python tests/bench/planning.py [--sample 40] [--only Grids]``.

Every question (optimum, partition, marginals or, of costs, max-marginals) is planned within the machine's memory, a
quarter of what the whole plan needs, and 64 MB; with ``--brief`` one question of each model, within the machine's
memory and one of these two. The bound is 10% of the predicted run, but at least 0.2 CPU-s, and
3 CPU-s for what is refused; ``ratio`` is to the bound. Runs are predicted by nominal rates, which do not change.
Reading the file and compiling the search are not counted.

With ``--long 3`` everything is planned again by a search of three seconds, and ``loss`` is how many times longer the
plan is predicted to take than the better one of both. These plans can be kept in a file (``--kept``), and are then
read from there.
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
from functools import partial
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

SHARE, LEAST, REFUSED = 0.1, 0.2, 3.0
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
    long: float | None = None

    @property
    def ratio(self) -> float:
        """CPU seconds over the bound."""
        return self.cpu / (REFUSED if self.predicted is None else max(LEAST, SHARE * self.predicted))

    @property
    def loss(self) -> float | None:
        """How many times longer it is predicted to take than after a long search; None if one of them has no plan."""
        return max(self.predicted / self.long, 1.0) if self.predicted and self.long else None

    def __str__(self) -> str:
        predicted, loss = ("-" if number is None else f"{number:.4g}" for number in (self.predicted, self.loss))
        words = (self.name, self.query, self.memory, f"{self.cpu:.2f}", predicted, f"{self.ratio:.2f}", loss, self.way)
        return "\t".join(words)


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


def rows_of(
    name: str, model: Model, evidence: str | None, limit: float, one: int | None, long: LongPlans
) -> Iterator[Row]:
    """Plan all questions of a model within all budgets, or the one of a number within two of them."""
    queries: tuple[str, ...] = ("optimum", "partition", "marginals")
    queries = ("optimum", "max-marginals") if model.kind == "cost" else queries
    for query in queries if one is None else queries[one % len(queries) :][:1]:
        make = planner(model, query, evidence)
        whole, found = measured(name, query, "whole", partial(make, Options()), limit)
        yield long.beside(whole, make, Options())
        budgets = {"64MB": 64_000_000}
        if isinstance(found, Plan):
            unbounded = found
            if found.slices > 1 or found.spill:
                unbounded = replace(found, peak_bytes=found.peak_bytes * 4)
            budgets["1/4"] = unbounded.peak_bytes // 4
        if one is not None and len(budgets) > 1:
            del budgets["64MB" if one % 2 else "1/4"]
        for memory, size in budgets.items():
            if isinstance(found, Plan) and found.fits(size):
                continue
            row, _ = measured(name, query, memory, partial(make, Options(memory=size)), limit)
            yield long.beside(row, make, Options(memory=size))


@dataclass
class LongPlans:
    """What plans of long searches are predicted to take, kept in a file.

    Parameters
    ----------
    seconds : float
        Of each search; 0 for none.
    limit : float
        CPU-s after which a planning is stopped.
    path : Path, optional
    """

    seconds: float
    limit: float
    path: Path | None = None

    def __post_init__(self) -> None:
        text = self.path.read_text() if self.path and self.path.exists() else ""
        rows = [line.split("\t") for line in text.splitlines()]
        self._known = {tuple(row[:3]): float(row[3]) if row[3] else None for row in rows}

    def beside(self, row: Row, make: Callable[[Options], Plan | None], options: Options) -> Row:
        """Return a row with what the plan of a long search is predicted to take."""
        key = row.name, row.query, row.memory
        if not self.seconds or row.predicted == 0:
            return row
        if key not in self._known:
            asked = replace(options, order_time=self.seconds)
            found, _ = measured(*key, partial(make, asked), self.limit + 4 * self.seconds)
            self._known[key] = found.predicted
            if self.path:
                with self.path.open("a") as file:
                    print(*key, "" if found.predicted is None else found.predicted, sep="\t", file=file)
        return replace(row, long=self._known[key])


def main() -> None:
    """Print a line for each planning, then the worst and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="instances by the size of their largest clique")
    parser.add_argument("--only", default="", help="part of the path; then all such instances")
    parser.add_argument("--brief", action="store_true", help="one question of each model, within two budgets")
    parser.add_argument("--long", type=float, default=0.0, help="seconds of the search that plans are compared with")
    parser.add_argument("--kept", type=Path, help="a file that keeps what those plans are predicted to take")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU-s after which a planning is stopped")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _stop)
    planner(grid_model(12, 14, 3, "markov"), "partition", None)(Options(order_time=0.5))
    found = []
    long = LongPlans(options.long, options.limit, options.kept)
    print("name\tquery\tmemory\tCPU-s\tpredicted\tratio\tloss\tway", flush=True)
    for number, (name, model, evidence) in enumerate(models(options.sample, options.only)):
        for row in rows_of(name, model, evidence, options.limit, number if options.brief else None, long):
            print(row, flush=True)
            found.append(row)
    seconds = [log(row.predicted) for row in found if row.predicted]
    mean = exp(sum(seconds) / max(len(seconds), 1))
    above = sorted([row for row in found if row.ratio > 1], key=lambda row: -row.ratio)
    print(f"{len(found)} planned, {sum(row.cpu for row in found):.1f} CPU-s; predicted {mean:.4g} s in geometric mean")
    if losses := [row.loss for row in found if row.loss is not None]:
        mean_loss = exp(sum(map(log, losses)) / len(losses))
        print(f"{len(losses)} take {mean_loss:.3f} times as long as after a long search, at most {max(losses):.3f}")
        print(*sorted([row for row in found if (row.loss or 0) > 1.2], key=lambda row: -(row.loss or 0)), sep="\n")
    within = 1 - len(above) / max(len(found), 1)
    print(f"{within:.1%} within the bound, {len(above)} above it:", *above[:40], sep="\n")


if __name__ == "__main__":
    main()
