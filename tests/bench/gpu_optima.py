"""Optima by rows on a GPU: ``python tests/bench/gpu_optima.py [--bound S] [--prove S] [--only NAME …] [--cpu]``.

For each instance first mini-buckets alone, which grow to 2^30 cells and more while the time lasts, then the rounds of
``--method rows``: layers of up to 10^8 rows beside mini-buckets whose tables stay on the device. Seconds are wall
seconds of the whole call; the least totals of rounds are in the units of the search. ``--cpu`` shows the same without
a device.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Iterator

from parts.instances import Question, questions
from parts.needs import cupy, data_folder

import bucketflow

#: The ends of their paths.
NAMES = """
    Grids_28 Grids_23 75-26-5 90-38-5 uai2014/linkage_15 CELAR6-SUB0 celar/CELAR6-SUB1 celar/CELAR6-SUB3
    CELAR6-SUB4 wcsp_11
"""
_ROUNDS = "bucketflow.pipeline.proofs.provers.row_layers"


class Lines(logging.Handler):
    """Prints what the search by rows logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        print(f"    {record.getMessage()}", flush=True)


def named(names: list[str]) -> Iterator[Question]:
    """Yield the optima that are asked for, in the order of their names."""
    everything = [q for q in questions(data_folder()) if q.query == "optimum"]
    for name in names:
        yield from [q for q in everything if f"/{q.name}".partition(".")[0].endswith(f"/{name}")][:1]


def bound(question: Question, seconds: float, gpus: int | None) -> None:
    """Print a line about the largest mini-buckets."""
    start = time.perf_counter()
    found = bucketflow.bound(bucketflow.load(question.path), evidence=question.evidence, time=seconds, gpus=gpus)
    for each in found.rounds[-1:]:
        sizes = f"2^{math.log2(each.largest):.1f} cells in one, 2^{math.log2(each.cells):.1f} in all"
        print(f"    mini-buckets: {sizes}, {each.seconds:.2f} s for the last", flush=True)
    print(f"  bound {found.lower} … {found.upper}, {time.perf_counter() - start:.1f} s", flush=True)


def prove(question: Question, seconds: float, gpus: int | None) -> None:
    """Print the rounds by rows, and how they ended."""
    start, model = time.perf_counter(), bucketflow.load(question.path)
    found = bucketflow.solve(model, evidence=question.evidence, method="rows", time=seconds, gpus=gpus)
    assert found.proof is not None
    ends = found.proof.lower, found.proof.upper
    shown = f"{ends[0]}" if found.status == "optimal" else f"{ends[0]} … {ends[1]}"
    print(f"  rows {found.status} {shown}, {time.perf_counter() - start:.1f} s", flush=True)


def main() -> None:
    """Bound and prove one instance after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", type=float, default=8.0, metavar="SECONDS", help="for mini-buckets alone")
    parser.add_argument("--prove", type=float, default=20.0, metavar="SECONDS", help="for rows")
    parser.add_argument("--only", nargs="+", default=NAMES.split(), metavar="NAME", help="the ends of paths")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    gpus = None if options.cpu else 1
    if gpus:
        cupy()
    logger = logging.getLogger(_ROUNDS)
    logger.setLevel(logging.INFO)
    logger.addHandler(Lines())
    for question in named(options.only):
        print(question.name, flush=True)
        bound(question, options.bound, gpus)
        prove(question, options.prove, gpus)


if __name__ == "__main__":
    main()
