"""What workers take beside what ``bucketflow.simulate`` predicts: ``simulations.py [--only slice] [--workers 1 2]``.

Every model is asked twice, so that the second run finds the code loaded, and the second run counts. Predicted are the
seconds in which workers have a task, all workers together; measured are CPU seconds of the workers. Of these, the
system's seconds stand apart: where most of them are for memory that a hypervisor has to supply first, no prediction
knows them. CPU seconds do not count what other processes of the machine take, as seconds on the wall would.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import bucketflow


def grid(rows: int, columns: int, kind: str) -> bucketflow.Model:
    """Functions of neighbours on a grid, four states each."""
    rng = np.random.default_rng(0)
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    pairs = [(a, b) for a in cells for b in ((a[0] + 1, a[1]), (a[0], a[1] + 1)) if b in set(cells)]
    values = [rng.integers(0, 100, (4, 4)) for _ in pairs]
    functions = [
        ([f"x{a}", f"x{b}"], each if kind == "cost" else (each + 1) / 100)
        for (a, b), each in zip(pairs, values, strict=True)
    ]
    return bucketflow.Model.build(kind, {f"x{cell}": 4 for cell in cells}, functions)  # type: ignore[arg-type]


#: Rows, columns, query, memory, and how the plan fits in it.
CASES: Mapping[str, tuple[int, int, str, str | None, str]] = {
    "partition in slices": (13, 13, "partition", "40MB", "slice"),
    "optimum in slices": (12, 14, "optimum", "8MB", "slice"),
    "marginals in slices": (11, 12, "marginals", "16MB", "slice"),
    "optimum on disk": (12, 13, "optimum", "16MB", "spill"),
    "marginals on disk": (11, 11, "marginals", "16MB", "spill"),
    "partition, parts of the tree": (12, 13, "partition", None, "auto"),
    "optimum, parts of the tree": (13, 13, "optimum", None, "auto"),
}


def cpu_seconds(client: Client) -> tuple[float, float]:
    """User and system seconds of all workers."""
    times = client.run(lambda: tuple(os.times()[:2])).values()
    return sum(user for user, _ in times), sum(system for _, system in times)


def measured(case: str, client: Client, workers: int) -> tuple[float, float, float]:
    """Return predicted seconds, and user and system seconds of the second run."""
    rows, columns, query, memory, fit = CASES[case]
    model = grid(rows, columns, "cost" if query == "optimum" else "markov")
    how: dict[str, Any] = {"memory": memory, "fit": fit, "order": "min-fill", "representation": "dense"}
    plan = bucketflow.plan(model, query, **how)
    spans = {*bucketflow.simulate(plan, workers).runs[0].spans}
    busy = sum(end - begin for worker, begin, end, _ in spans if worker != "client")
    found = 0.0, 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            before = cpu_seconds(client)
            on_disk = {"workdir": Path(folder) / "run"} if fit == "spill" else {}
            if query == "marginals":
                bucketflow.marginals(model, client=client, **how, **on_disk)
            else:
                bucketflow.solve(model, query, client=client, method="dense", **how, **on_disk)
            after = cpu_seconds(client)
        found = after[0] - before[0], after[1] - before[1]
    return busy, *found


def main() -> None:
    """Run the cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    print(f"{'workers':8}{'model':30}{'predicted':>10}{'CPU':>8}{'system':>8}{'CPU/predicted':>15}")
    for workers in asked.workers:
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            for case in CASES:
                if asked.only in case:
                    predicted, user, system = measured(case, client, workers)
                    total = user + system
                    ratio = f"{total / predicted:.2f}" if predicted else "no task"
                    figures = f"{predicted:10.2f}{total:8.2f}{system:8.2f}{ratio:>15}"
                    print(f"{workers:<8}{case:30}{figures}", flush=True)


if __name__ == "__main__":
    main()
