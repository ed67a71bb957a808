"""Many small questions: batches and a server beside loops over the command line and over ``solve`` in Python.

Run by hand: ``python tests/bench/batches.py --rows 5000``. Shell loops are sampled; ``--no-batches`` skips batches.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import psutil
from rich.console import Console
from rich.table import Table

import bucketflow

_DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))
_MODELS = ("alarm", "asia", "insurance", "child", "hailfinder")
_COSTS = "wcsp/spot5/29.wcsp"
_COST_PART = 6
_QUERIES = ("optimum", "partition", "marginals")
_OBSERVED = 3

Question = tuple[str, str, str]


def questions(count: int) -> list[Question]:
    """Random questions on small Bayesian networks and a small network of costs: path, query, evidence."""
    draw = random.Random(0)
    models = {name: bucketflow.load(_DATA / "bn" / f"{name}.bif.gz") for name in _MODELS}
    costs = bucketflow.load(_DATA / _COSTS)
    found = []
    for k in range(count):
        if k % _COST_PART == 0:
            variable = draw.randrange(len(costs.names))
            found.append((costs.source, "optimum", f"{costs.names[variable]}={draw.randrange(costs.dims[variable])}"))
            continue
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


def shell_loop(rows: list[Question], *more: str) -> None:
    """One command after the other."""
    script = "\n".join(f"{shlex.join([*command_of(row), *more])} > /dev/null" for row in rows)
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


@contextmanager
def server(*words: str) -> Iterator[tuple[str, str, psutil.Process]]:
    """A server in a process of its own: its host, token and process."""
    command = [sys.executable, "-m", "bucketflow", "serve", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield told["url"].removeprefix("http://"), Path(told["token_file"]).read_text(), psutil.Process(process.pid)
        process.terminate()


def ask(connection: HTTPConnection, token: str, rows: list[Question]) -> list[dict[str, Any]]:
    """Ask a server some questions in one request."""
    lines = (json.dumps({"model": m, "query": q, "evidence": e}) for m, q, e in rows)
    connection.request("POST", "/questions", "\n".join(lines), {"Authorization": f"Bearer {token}"})
    return [json.loads(line) for line in connection.getresponse()]


def served(rows: list[Question], at_once: int, out: Path) -> tuple[float, float]:
    """Ask a server so many questions at once over one connection; return wall and CPU seconds, those of both sides."""
    with server() as (host, token, process):
        connection = HTTPConnection(host)
        before = process.cpu_times()
        found = list[dict[str, Any]]()

        def work() -> None:
            for k in range(0, len(rows), at_once):
                found.extend(sorted(ask(connection, token, rows[k : k + at_once]), key=lambda record: record["row"]))

        wall, own = timed(work)
        after = process.cpu_times()
        connection.close()
    out.mkdir()
    (out / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    return wall, own + after.user - before.user + after.system - before.system


def kept_warm(rows: list[Question]) -> tuple[float, float]:
    """One command after the other, which a server runs; wall and CPU seconds without those of starting it."""
    from bucketflow.pipeline.server.warm_client import folder_here, start_server, stop_server

    folder = folder_here()
    start_server(folder, 10)
    while folder.address() is None:
        time.sleep(0.01)
    shell_loop(rows[:1], "--keep-warm")
    process = next(p for p in psutil.process_iter(["cmdline"]) if "--warm-lock" in (p.info["cmdline"] or ()))
    before = process.cpu_times()
    wall, own = timed(lambda: shell_loop(rows, "--keep-warm"))
    after = process.cpu_times()
    stop_server(folder)
    return wall, own + after.user - before.user + after.system - before.system


def agreement(out: Path, loop: Path) -> int:
    """How many rows have the same answer as in the loop."""
    ours = [json.loads(line)["answer"] for line in (out / "results.jsonl").read_text().splitlines()]
    theirs = [json.loads(line) for line in loop.read_text().splitlines()]
    return sum(_same(a, b) for a, b in zip(ours, theirs, strict=True))


def _same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    if ours["status"] != theirs["status"]:
        return False
    if ours.get("value") != theirs.get("value"):
        return False
    name = "log10_evidence" if "log10_evidence" in theirs else "log10"
    return ours[name] == theirs[name] or abs(ours[name] - theirs[name]) < 1e-9 * max(1, abs(theirs[name]))


@click.command()
@click.option("--rows", default=5000, show_default=True)
@click.option("--sample", default=20, show_default=True, help="Rows of the shell loop.")
@click.option("--batches/--no-batches", default=True, help="Whether batches are asked too.")
def main(rows: int, sample: int, batches: bool) -> None:
    """Print questions per second, and check that all ways agree."""
    asked = questions(rows)
    table = Table(
        title=f"{rows:,} questions on {len(_MODELS) + 1} small networks, {len(os.sched_getaffinity(0))} cores"
    )
    for heading in ("way", "wall s", "CPU s", "questions/s", "CPU ms/question", "times the Python loop"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    with TemporaryDirectory() as place:
        folder = Path(place)
        write_list(folder / "list.csv", asked)
        write_list(folder / "few.csv", asked[:50])
        batch(folder / "few.csv", folder / "warm", 0)  # compiled code is loaded from its cache from here on
        found: dict[str, tuple[float, float]] = {}
        wall, cpu = timed(lambda: shell_loop(asked[:sample]))
        found[f"shell loop ({sample} sampled)"] = wall * rows / sample, cpu * rows / sample
        wall, cpu = kept_warm(asked[:sample])
        found[f"shell loop, --keep-warm ({sample} sampled)"] = wall * rows / sample, cpu * rows / sample
        found["Python loop"] = timed(lambda: python_loop(folder / "list.csv", folder / "loop.jsonl"))
        for at_once in (rows, 1):
            out = folder / f"served{at_once}"
            name = "server, one request" if at_once > 1 else "server, a request a question"
            found[name] = served(asked, at_once, out)
            assert agreement(out, folder / "loop.jsonl") == rows
        for workers in (0, 1, 2) if batches else ():
            out = folder / f"out{workers}"
            found[f"batch, {workers or 'no'} workers"] = timed(
                lambda w=workers, o=out: batch(folder / "list.csv", o, w)
            )
            assert agreement(out, folder / "loop.jsonl") == rows
        if batches:
            found["batch again"] = timed(lambda: batch(folder / "list.csv", folder / "out0", 0))
    loop = found["Python loop"][0]
    for name, (wall, cpu) in found.items():
        table.add_row(
            name, f"{wall:.1f}", f"{cpu:.1f}", f"{rows / wall:.1f}", f"{cpu / rows * 1000:.2f}", f"{loop / wall:.2f}"
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
