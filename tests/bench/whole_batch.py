"""One batch of all public instances up to a size, every query: asked, asked again, and after one file changed.

Run by hand: ``python tests/bench/whole_batch.py --log2 26 --out DIR``; stopped by ``--max-time``, the same command
goes on.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from parts.instances import Question, questions
from rich.console import Console
from rich.table import Table

from bucketflow.pipeline.models.query import QUERIES

_DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))
_DIFFERENCE = 1e-6
_TOUCHED = "bn/asia.bif.gz"
# Up to 75,266 sweeps, some 4,140 s on one core.
_LEFT_OUT = {("wcsp/spot5_vac/29_VAC.wcsp", "count")}


def asked(folder: Path, log2: float, seconds: float) -> dict[str, Question]:
    """Write the list of all questions into a folder with copies of the files; return them by name."""
    lines, named, known = [], {}, list(questions(_DATA))
    summed = {question.path for question in known if question.query == "partition"}
    for number, question in enumerate(known):
        if question.log2_clique > log2:
            continue
        source = question.path.relative_to(_DATA)
        if not (folder / source).exists():
            (folder / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(question.path, folder / source)
        costs = question.path not in summed
        several = question.query == "partition" or costs  # a model comes once for each query with known answers
        for query, kind in QUERIES.items():
            if query != question.query and not (several and query not in ("optimum", "partition")):
                continue
            if (costs and kind.not_of_costs) or (question.name, query) in _LEFT_OUT:
                continue
            name = f"{number} {question.name} {query}"
            named[name] = question
            line = {"model": str(source), "query": query, "name": name, "evidence": question.evidence}
            lines.append(line | ({"time": seconds} if query == "optimum" else {}))
    (folder / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return named


def run(folder: Path, where: list[str], memory: str, max_time: float | None) -> tuple[dict[str, Any], float]:
    """Run the batch; return its summary and the wall seconds."""
    options = list(where)
    options += ["--max-time", str(max_time)] if max_time else []
    command = [sys.executable, "-m", "bucketflow", "batch", str(folder / "list.jsonl"), "--out", str(folder / "out")]
    start = time.perf_counter()
    with open(folder / "log.jsonl", "a") as log:
        more = ["--memory", memory, "--json", "--log", "json", *options]
        done = subprocess.run([*command, *more], stdout=subprocess.PIPE, stderr=log, text=True)
    return json.loads(done.stdout), time.perf_counter() - start


def touch(path: Path) -> None:
    """Write a compressed file anew, so that its bytes differ and what is in it does not."""
    plain = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(plain, compresslevel=1, mtime=time.time_ns() // 10**9))


def wrong(folder: Path, named: dict[str, Question]) -> list[str]:
    """Names of rows whose answer differs from what is known, or from another query's on the same model."""
    values: dict[tuple[str, str, str], set[float]] = defaultdict(set)
    found = []
    for line in (folder / "out" / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        answer = row.get("answer")
        if row["status"] != "answered" or row["query"] == "count":
            continue
        value = answer.get("value")
        if value is None:
            value = answer.get("log10", answer.get("log10_evidence"))
        question = named[row["name"]]
        ours = None if answer["status"] == "infeasible" else Decimal(str(value))
        if row["query"] == question.query and not all(r.agrees(ours) for r in question.references):
            found.append(row["name"])
        both = {"marginals": "partition", "max-marginals": "optimum"}.get(row["query"], row["query"])
        values[row["model"], str(question.evidence), both].add(float("-inf") if ours is None else float(ours))
    for (model, _, query), numbers in values.items():
        if max(numbers) - min(numbers) > _DIFFERENCE * max(1.0, abs(max(numbers))):
            found.append(f"{model} {query}: {sorted(numbers)}")
    return found


def slowest(folder: Path, count: int) -> Table:
    """The rows that took the longest, and those without an answer."""
    with open(folder / "out" / "summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    table = Table(title="The longest rows, and those that were not answered")
    for heading in ("row", "status", "seconds", "message"):
        table.add_column(heading)
    unanswered = [row for row in rows if row["status"] not in ("answered", "stopped")]
    longest = sorted(rows, key=lambda row: -float(row["seconds"] or 0))[:count]
    for row in [*longest, *(row for row in unanswered if row not in longest)]:
        table.add_row(row["name"], row["status"], row["seconds"], row["message"][:150])
    return table


@click.command()
@click.option("--log2", default=26.0, show_default=True, help="Cells of the largest clique of the manifest's order.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--gpus", metavar="all|N", help="Instead of workers.")
@click.option("--memory", default="4GB", show_default=True)
@click.option("--time", "seconds", default=20.0, show_default=True, help="Of an optimum between bounds.")
@click.option("--max-time", type=float)
def main(
    log2: float, out: Path, workers: int, gpus: str | None, memory: str, seconds: float, max_time: float | None
) -> None:
    """Print what three runs of the batch came to."""
    out.mkdir(parents=True, exist_ok=True)
    named = asked(out, log2, seconds)
    where = ["--gpus", gpus] if gpus else ["--workers", str(workers)] if workers else []
    table = Table(title=f"{len(named)} questions on {len({q.path for q in named.values()})} files, {' '.join(where)}")
    for heading in ("run", "seconds", "answered", "bounded", "refused", "failed", "stopped", "known before"):
        table.add_column(heading)
    for name in ("first", "again", "one file touched"):
        if name == "one file touched":
            touch(out / _TOUCHED)
        found, wall = run(out, where, memory, max_time)
        counts = [found[key] for key in ("answered", "bounded", "refused", "failed", "stopped", "reused")]
        table.add_row(name, f"{wall:.1f}", *map(str, counts))
        if found["stopped"]:
            break
    console = Console(width=160)
    console.print(table, slowest(out, 15))
    touched = Counter(q.path == _DATA / _TOUCHED for q in named.values())[True]
    console.print(f"{touched} questions on the touched file; other answers than known:", wrong(out, named) or "none")


if __name__ == "__main__":
    main()
