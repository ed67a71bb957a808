"""Seconds of an iteration of EM on drawn rows with missing cells: ``python tests/bench/fits.py [--gpus 1] [--peers]``.

The rows are drawn from a network, and a part of their cells is hidden. Each device learns from the same random tables.
It also learns once before the clock starts. The seconds of an iteration are the difference of a long and a short run,
divided by their difference in iterations. ``--peers`` adds pyAgrum.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow

_SHORT, _LONG, _PEER = 1, 11, 2
"""Iterations of a short run, of a long run, and of a peer's long run."""


def drawn_rows(model: bucketflow.Model, count: int, missing: float) -> np.ndarray:
    """Return drawn states, of shape (rows, variables), with -1 for a hidden cell."""
    states = bucketflow.sample(model, count, seed=1).states
    return np.where(np.random.default_rng(0).random(states.shape) < missing, -1, states)


def seconds_of(start: bucketflow.Model, rows: np.ndarray, gpus: int | None) -> tuple[list[float], float]:
    """Return wall and CPU seconds of an iteration, wall seconds of the first fit, and the last log-likelihood."""
    cells = dict(zip(start.names, rows.T.astype(np.int64), strict=True))
    took = []
    for iterations in (_LONG, _SHORT, _LONG):
        wall, cpu = time.perf_counter(), time.process_time()
        fitted = bucketflow.fit(start, cells, iterations=iterations, tolerance=0.0, gpus=gpus)
        took.append((time.perf_counter() - wall, time.process_time() - cpu))
    (first, _), short, long = took  # the first run compiles loops or kernels
    return [*((b - a) / (_LONG - _SHORT) for a, b in zip(short, long, strict=True)), first], fitted.log_likelihood


def peer_seconds(start: bucketflow.Model, rows: np.ndarray) -> tuple[list[float], float]:
    """Return the same measurements of pyAgrum, without reading the rows."""
    import pyagrum

    network, took = bucketflow.to_pyagrum(start), []
    with TemporaryDirectory() as folder:
        table = Path(folder) / "rows.csv"
        with open(table, "w", newline="") as file:
            labels = [["?" if s < 0 else start.label(v, int(s)) for v, s in enumerate(row)] for row in rows]
            csv.writer(file).writerows([start.names, *labels])
        learner = pyagrum.BNLearner(str(table), network, ["?"])
        for iterations in (_SHORT, _PEER):
            learner.useEM(1e-12, 0.0)
            learner.EMsetMaxIter(iterations)
            wall, cpu = time.perf_counter(), time.process_time()
            learner.learnParameters(network)
            took.append((time.perf_counter() - wall, time.process_time() - cpu))
    short, long = took
    return [*((b - a) / (_PEER - _SHORT) for a, b in zip(short, long, strict=True)), short[0]], math.nan


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["alarm"], help="networks of bn/")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--missing", type=float, default=0.2, help="probability that a cell is missing")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    table = Table("network", "device", "iteration, s", "iteration, CPU-s", "first fit, s", "log-likelihood")
    for name in given.names:
        model = bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz")
        rows = drawn_rows(model, given.rows, given.missing)
        start = bucketflow.fit(
            model, dict(zip(model.names, rows.T.astype(np.int64), strict=True)), start="random", iterations=0
        ).model
        devices = {"CPU": None} | ({f"{given.gpus} GPU": given.gpus} if given.gpus else {})
        lines = {device: seconds_of(start, rows, gpus) for device, gpus in devices.items()}
        lines |= {"pyAgrum": peer_seconds(start, rows)} if given.peers else {}
        for device, (seconds, value) in lines.items():
            table.add_row(name, device, *(f"{each:.3g}" for each in seconds), f"{value:.9g}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
