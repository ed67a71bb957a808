"""What runs take beside what was predicted: ``python tests/bench/predictions.py [--sample 60] [--only linkage]``.

Every question (optimum, partition, marginals or, of costs, max-marginals) is planned within the machine's memory and a
quarter of what the whole plan needs, and its plan of all cells runs three times, or once where it takes long. A line
has the fewest CPU seconds, those predicted and their ratio. Runs that are predicted to take longer than ``--longest``
are left out. Below is how many runs over 50 ms took between half and twice of what was predicted. Predictions go by
``bucketflow calibrate``, where that measured this machine.
"""

from __future__ import annotations

import argparse
import csv
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from parts.instances import KINDS, evidence_beside
from parts.needs import data_folder

from bucketflow.pipeline.answering.placement import temporary_folder
from bucketflow.pipeline.answering.prepared import Prepared, prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.plans.planner import forget_plans

LEAST, TIMES = 0.05, 2.0
#: Shorter predictions are not run: they are below the least time.
SHORTEST = LEAST / 5
#: Plans of fewer bytes are not made again for a quarter of them.
LEAST_BYTES = 1 << 25


@dataclass(frozen=True)
class Row:
    """One run: CPU seconds measured and predicted, and how it went."""

    name: str
    query: str
    memory: str
    measured: float
    predicted: float
    way: str

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted

    def __str__(self) -> str:
        figures = f"{self.measured:.4f}\t{self.predicted:.4f}\t{self.ratio:.2f}"
        return f"{self.name}\t{self.query}\t{self.memory}\t{figures}\t{self.way}"


def instances(sample: int, only: str) -> Iterator[Path]:
    """Yield files of the manifest, evenly by the size of their largest clique."""
    folder = data_folder()
    with open(folder / "MANIFEST.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [r for r in rows if r["kind"].removesuffix("(erg)").partition("(")[0] in KINDS and only in r["path"]]
    sized = sorted((float(r["log2_largest_clique"] or 0), r["path"]) for r in rows)
    paths = [path for size, path in sized if size > 10]
    count = len(paths) if only else min(sample, len(paths))
    for i in range(count):
        yield folder / paths[i * len(paths) // count]


def rows_of(path: Path, longest: float) -> Iterator[Row]:
    """Run all questions of a model, within the machine's memory and within a quarter of what they need."""
    model = load(path)
    costs = model.kind == "cost"
    for query in ("optimum", "max-marginals") if costs else ("optimum", "partition", "marginals"):
        question = question_of(model, query, evidence_beside(path))  # type: ignore[arg-type]
        memory: dict[str, int | None] = {"whole": None}
        while memory:
            name, size = memory.popitem()
            forget_plans()
            with suppress(BudgetError):
                prepared = prepare(question, Resources(Options(memory=size, threads=1)))
                plan = prepared.plan
                if plan is None or not SHORTEST < plan.predicted_seconds < longest:
                    continue
                if size is None and plan.peak_bytes > LEAST_BYTES and plan.way == "memory":
                    memory["1/4"] = plan.peak_bytes // 4
                yield Row(path.name, query, name, measured(prepared), plan.predicted_seconds, plan.way)


def measured(prepared: Prepared) -> float:
    """Return the fewest CPU seconds of some runs."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 3.0:
        gc.collect()
        with temporary_folder(prepared.plan, prepared.resources) as folder:
            start = time.process_time()
            answered(prepared, None, folder, [])
            times.append(time.process_time() - start)
    return min(times)


def summary(rows: Sequence[Row]) -> str:
    """Say how many predictions of long runs hold."""
    ratios = [row.ratio for row in rows if row.measured > LEAST]
    if not ratios:
        return "no run over 50 ms"
    within = sum(1 / TIMES <= ratio <= TIMES for ratio in ratios)
    return (
        f"{len(ratios)} runs over 50 ms: {within} within a factor {TIMES:g} of what was predicted "
        f"({within / len(ratios):.0%}); measured / predicted {median(ratios):.2f} in the median, "
        f"{min(ratios):.2f} to {max(ratios):.2f}"
    )


def main() -> None:
    """Print a line for each run, and how many predictions hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="instances by the size of their largest clique")
    parser.add_argument("--only", default="", help="part of the path; then all such instances")
    parser.add_argument("--longest", type=float, default=5.0, help="predicted seconds of the longest run")
    options = parser.parse_args()
    found = []
    print("name\tquery\tmemory\tmeasured\tpredicted\tratio\tway", flush=True)
    for path in instances(options.sample, options.only):
        with suppress(FormatError):  # global cost functions
            for row in rows_of(path, options.longest):
                print(row, flush=True)
                found.append(row)
    print(summary(found))


if __name__ == "__main__":
    main()
