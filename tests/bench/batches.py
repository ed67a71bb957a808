"""Many small questions: a batch beside a shell loop over the command line and a Python loop over ``solve``.

Run by hand: ``python tests/bench/batches.py --rows 5000``. The shell loop is sampled.
"""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import bucketflow

_DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))
_MODELS = ("alarm", "asia", "insurance", "child", "hailfinder")
_QUERIES = ("optimum", "partition", "marginals")
_OBSERVED = 3

Question = tuple[str, str, str]


def questions(count: int) -> list[Question]:
    """Random questions on small Bayesian networks: path, query, evidence."""
    draw = random.Random(0)
    models = {name: bucketflow.load(_DATA / "bn" / f"{name}.bif.gz") for name in _MODELS}
    found = []
    for _ in range(count):
        model = models[draw.choice(_MODELS)]
        chosen = draw.sample(range(len(model.names)), _OBSERVED)
        evidence = ",".join(f"{model.names[v]}={draw.randrange(model.dims[v])}" for v in chosen)
        found.append((model.source, draw.choice(_QUERIES), evidence))
    return found


def write_list(path: Path, rows: list[Question]) -> None:
    """Write a list of questions."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "query", "evidence"])
        writer.writerows(rows)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return wall and CPU seconds, those of processes that it started and awaited too."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in used)

    start, before = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - start, cpu() - before


def command_of(row: Question) -> list[str]:
    """The command line that answers a question."""
    model, query, evidence = row
    what = ["marginals", model] if query == "marginals" else ["solve", model, "--query", query]
    return [sys.executable, "-m", "bucketflow", *what, "--evidence", evidence, "--json"]


def shell_loop(rows: list[Question]) -> None:
    """One command after the other."""
    script = "\n".join(f"{shlex.join(command_of(row))} > /dev/null" for row in rows)
    subprocess.run(["sh", "-c", script], check=True)


# The loop that a careful user writes: every model is read once.
_LOOP = """
import csv, json, sys
import bucketflow
from bucketflow.pipeline.formats.read import evidence_of

models = {}
with open(sys.argv[1]) as rows, open(sys.argv[2], "w") as out:
    for row in csv.DictReader(rows):
        path = row["model"]
        model = models.get(path) or models.setdefault(path, bucketflow.load(path))
        evidence = evidence_of(model, [row["evidence"]])
        if row["query"] == "marginals":
            found = bucketflow.marginals(model, evidence=evidence)
        else:
            found = bucketflow.solve(model, row["query"], evidence=evidence)
        out.write(found.to_json() + "\\n")
"""


def python_loop(path: Path, out: Path) -> None:
    """One process that asks ``solve`` and ``marginals`` again and again."""
    subprocess.run([sys.executable, "-c", _LOOP, str(path), str(out)], check=True)


def batch(path: Path, out: Path, workers: int) -> None:
    """The command line of a batch."""
    more = ["--workers", str(workers)] if workers else []
    command = [sys.executable, "-m", "bucketflow", "batch", str(path), "--out", str(out), "--json", *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def agreement(out: Path, loop: Path) -> int:
    """How many rows have the same answer as in the loop."""
    ours = [json.loads(line)["answer"] for line in (out / "results.jsonl").read_text().splitlines()]
    theirs = [json.loads(line) for line in loop.read_text().splitlines()]
    return sum(_same(a, b) for a, b in zip(ours, theirs, strict=True))


def _same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    if ours["status"] != theirs["status"]:
        return False
    name = "log10_evidence" if "log10_evidence" in theirs else "log10"
    return ours[name] == theirs[name] or abs(ours[name] - theirs[name]) < 1e-9 * max(1, abs(theirs[name]))


@click.command()
@click.option("--rows", default=5000, show_default=True)
@click.option("--sample", default=20, show_default=True, help="Rows of the shell loop.")
def main(rows: int, sample: int) -> None:
    """Print questions per second, and check that all ways agree."""
    asked = questions(rows)
    table = Table(title=f"{rows:,} questions on {len(_MODELS)} small networks, {len(os.sched_getaffinity(0))} cores")
    for heading in ("way", "wall s", "CPU s", "questions/s", "times the Python loop"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    with TemporaryDirectory() as place:
        folder = Path(place)
        write_list(folder / "list.csv", asked)
        write_list(folder / "few.csv", asked[:50])
        batch(folder / "few.csv", folder / "warm", 0)  # compiled code is loaded from its cache from here on
        found: dict[str, tuple[float, float]] = {}
        wall, cpu = timed(lambda: shell_loop(asked[:sample]))
        found[f"shell loop ({sample} sampled)"] = wall * rows / sample, cpu * rows / sample
        found["Python loop"] = timed(lambda: python_loop(folder / "list.csv", folder / "loop.jsonl"))
        for workers in (0, 1, 2):
            out = folder / f"out{workers}"
            found[f"batch, {workers or 'no'} workers"] = timed(
                lambda w=workers, o=out: batch(folder / "list.csv", o, w)
            )
            assert agreement(out, folder / "loop.jsonl") == rows
        found["batch again"] = timed(lambda: batch(folder / "list.csv", folder / "out0", 0))
    loop = found["Python loop"][0]
    for name, (wall, cpu) in found.items():
        table.add_row(name, f"{wall:.1f}", f"{cpu:.1f}", f"{rows / wall:.0f}", f"{loop / wall:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
