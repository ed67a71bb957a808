"""The default beside every forced way: ``python tests/bench/regret.py [--only or_chain] [--sample 12] [--memory 8MB]``.

Each question of the public instances is asked by default and by each way that can be asked for, each in a process of
its own with a limit of seconds, and again where the first process had loops to compile: 1,000 draws, the ten best
assignments, twenty cases (as a batch, one by one, by a compiled model, by a circuit) and marginal MAP among them. A way
is stopped once it took longer than the default. Every answer is a line of JSON in ``--out``; what stands there is not
asked again, so that a stopped bench goes on. The summary says how often the default took more than 1.5 times the best
way and 0.3 s more, how often it gave no answer where a way did, and the geometric mean of default over best. ``--old
FOLDER`` asks the default of another checkout (the folder that holds its ``bucketflow``) beside it, and the summary has
a mean for both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from select import select
from statistics import geometric_mean
from threading import Lock
from typing import Any, Literal

from parts.instances import evidence_beside, marginal_map_instances
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

Seconds = Literal["cpu", "wall"]
#: A file, a query, a file of evidence, and the memory that is given, if any.
Question = tuple[Path, str, str | None, str | None]

#: Suffixes of files that hold a model, before ``.gz`` and ``.xz``, and what is asked of them.
_PROBABILITIES = ("optimum", "partition", "marginals", "max-marginals", "samples", "best", "cases")
_COSTS = ("optimum", "count", "max-marginals", "best")
_QUERIES: dict[str, tuple[str, ...]] = {
    ".uai": _PROBABILITIES,
    ".erg": _PROBABILITIES,
    ".bif": _PROBABILITIES,
    ".net": _PROBABILITIES,
    ".wcsp": _COSTS,
    ".cfn": _COSTS,
    ".cnf": ("count", "samples", "marginals", "cases"),
    ".wcnf": ("optimum", "best"),
}
#: Options of each way by query; the default is first.
_TABLES: dict[str, dict[str, Any]] = {"dense": {"representation": "dense"}, "by-rows": {"representation": "rows"}}
_TREES: dict[str, dict[str, Any]] = {"min-fill": {"order": "min-fill"}, "buckets": {"tree": "bucket"}}
_CIRCUIT: dict[str, dict[str, Any]] = {"circuit": {"by": "circuit"}}
_COMPILED: dict[str, dict[str, Any]] = {"compiled": {"by": "compiled"}}


def _methods(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"method": name} for name in names}


_BY_ROWS = {"by-rows": _TABLES["by-rows"]}
_WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "optimum": _methods("dense", "rows", "diagram", "search") | _BY_ROWS,
    "partition": _methods("dense", "diagram", "search") | _BY_ROWS,
    "count": _methods("dense", "diagram", "search") | _BY_ROWS,
    "mmap": _methods("dense"),
    "marginals": _TABLES | _TREES | _COMPILED | _CIRCUIT,
    "max-marginals": _TABLES | _TREES,
    "samples": _TABLES | _TREES | _CIRCUIT,
    "best": _TABLES | _TREES,
    "cases": {"alone": {"by": "alone"}} | _COMPILED | _CIRCUIT,
}
#: A sweep of more cells, of the tree that a short search finds, is not waited for.
_MOST_CELLS = 2.0**44
#: Shorter times are one: starting, loading and the clock are in them.
_LEAST_SECONDS = 0.1
#: A default is slow where it takes more than so many times the best way, and so many seconds more.
_TIMES, _MORE_SECONDS = 1.5, 0.3
#: It became slower where it takes so many times what it took before, and so many seconds more.
_SLOWER = 1.2
#: A way that takes so many times what the default took is stopped.
_LONGER = 1.1
#: A process that compiled for so many seconds is asked again.
_COMPILING_SECONDS = 0.02
#: Seconds in which a child reads its model, and seconds beside its limit in which it ends.
_STARTING_SECONDS, _ENDING_SECONDS = 60.0, 3.0
#: Wall seconds for each CPU second at most, on a machine that others use.
_BUSY = 20
_TARGETS = {"lost": 0, "slow": 0.05, "mean": 1.15}


@dataclass(frozen=True)
class Asked:
    """A question on a file, answered in one way.

    Parameters
    ----------
    path : Path
    query : str
    evidence : str or None
        A file.
    way : str
        ``default``, a method, ``size`` for the cells of a tree that is found in a second, or ``old`` for the default of
        another checkout.
    options : mapping
    checkout : str or None
        Where that is.
    """

    path: Path
    query: str
    evidence: str | None
    way: str
    options: Mapping[str, Any]
    checkout: str | None = None

    def key(self, folder: Path, device: str) -> tuple[str, str, str, str]:
        """What a line is found again by."""
        named = self.path if self.query != "mmap" else Path(str(self.evidence))
        return str(named.relative_to(folder)), self.query, self.way, device


def ways(query: str, device: Mapping[str, Any], old: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each way and its options; with a device, the default without it is one more way."""
    yield "default", {**device}
    if old is not None:
        yield "old", {**device}
    for name, options in _WAYS[query].items():
        yield name, {**options, **device}
    if device:
        yield "host", {}


def questions(folder: Path, only: Sequence[str]) -> list[Question]:
    """Return every query of every file whose name has one of some texts in it, each with the evidence beside it.

    That of marginal MAP is the file that names the variables to maximise over.
    """
    found = [
        (path, "mmap", str(outer), None)
        for name, path, outer in marginal_map_instances(folder)
        if path is not None and (not only or any(text in f"{name} mmap" for text in only))
    ]
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        plain = path.with_suffix("") if path.suffix in (".gz", ".xz") else path
        for query in _QUERIES.get(plain.suffix, ()):
            name = f"{path.relative_to(folder)} {query}"
            if not only or any(text in name for text in only):
                found.append((path, query, evidence_beside(path) if plain.suffix in (".uai", ".erg") else None, None))
    return found


def some_of_each(chosen: Sequence[Question], count: int, rng: random.Random) -> Iterator[Question]:
    """Draw so many questions of each folder and query."""
    groups = defaultdict(list)
    for each in chosen:
        groups[each[0].parent, each[1]].append(each)
    for group in groups.values():
        yield from rng.sample(group, min(count, len(group)))


def run(asked: Asked, limit: float, clock: Seconds) -> dict[str, Any]:
    """Ask in a process of its own, which is killed with all that it started once the limit is over."""
    told: dict[str, Any] = {"path": str(asked.path), "query": asked.query, "evidence": asked.evidence, "way": asked.way}
    told |= {"seconds": limit} if asked.query == "mmap" else {}
    told |= {"cpu_limit": limit} if clock == "cpu" else {}
    child = Path(__file__).parent / "parts" / "regret_child.py"
    command = [sys.executable, str(child), json.dumps({**told, "options": dict(asked.options)})]
    environment = dict(os.environ) if asked.checkout is None else {**os.environ, "PYTHONPATH": asked.checkout}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )
    try:
        _wait_for_a_line(process, _STARTING_SECONDS)
        out, err = process.communicate(timeout=(_BUSY if clock == "cpu" else 1) * limit + _ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"end": "out of time", "wall": time.perf_counter() - began}
    if process.returncode == -signal.SIGXCPU:
        return {"end": "out of time", "wall": time.perf_counter() - began, "cpu": limit}
    if process.returncode:
        return {"end": "failed", "why": err.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found if found.get(clock, 0.0) <= limit else {**found, "end": "out of time"}


def _wait_for_a_line(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until a child has printed something, or ended; its output stays to be read."""
    assert process.stdout is not None
    if not select([process.stdout], [], [], seconds)[0]:
        raise subprocess.TimeoutExpired(process.args, seconds)


class Answers:
    """Lines of answers by what was asked, in a file that a stopped bench goes on with."""

    def __init__(self, out: Path) -> None:
        self._out, self._lock = out, Lock()
        lines = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
        self._lines = {(line["name"], line["query"], line["way"], line["device"]): line for line in lines}

    def of(self, key: tuple[str, str, str, str], limit: float, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the line of a key, asked for and written where there is none, or one that had less time."""
        line = self._lines.get(key)
        if line is None or (line["end"] == "out of time" and line.get("limit", math.inf) < limit):
            line = {**dict(zip(("name", "query", "way", "device"), key, strict=True)), "limit": limit, **ask()}
            with self._lock, open(self._out, "a") as file:
                file.write(json.dumps(line) + "\n")
        return line


def compiled(ask: Callable[[], dict[str, Any]], on_gpus: bool) -> dict[str, Any]:
    """Ask; again where loops were compiled, as what only the first process compiles is no choice of the default.

    The kernels of a GPU are compiled without being counted, so there every way is asked twice.
    """
    found = ask()
    return ask() if on_gpus or found.get("compiled", math.inf) > _COMPILING_SECONDS else found


def all_ways(question: Question, folder: Path, arguments: argparse.Namespace, answers: Answers) -> list[dict[str, Any]]:
    """Ask one question in every way; nothing more once the bench's time is over."""
    path, query, evidence, memory = question
    device = {} if arguments.gpus is None else {"gpus": arguments.gpus}
    label = ("cpu" if arguments.gpus is None else f"gpus {arguments.gpus}") + (f" {memory}" if memory else "")
    given = {} if memory is None else {"memory": memory}
    small, lines, limit = True, [], arguments.limit
    for way, options in [("size", {}), *ways(query, device, arguments.old)]:
        if (arguments.ways and way not in ("size", *arguments.ways)) or (way == "dense" and not small):
            continue
        if time.monotonic() > arguments.until:
            return []
        checkout = arguments.old if way == "old" else None
        asked = Asked(path, query, evidence, way, {**options, **given}, checkout)
        within = arguments.limit if way in ("default", "old") else limit
        ask = partial(run, asked, within, arguments.clock)
        fair = ask if way == "size" else partial(compiled, ask, bool(device))
        line = answers.of(asked.key(folder, label), within, fair)
        if way == "size":
            small = line.get("cells", math.inf) <= _MOST_CELLS
            continue
        if way == "default" and line["end"] == "answered":
            limit = min(limit, max(_LONGER * float(line[arguments.clock]), _LEAST_SECONDS))
        lines.append(line)
    return lines


def asked_again(folder: Path, arguments: argparse.Namespace, out: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of each question and way, from the file or as they are answered."""
    chosen = questions(folder, arguments.only)
    if arguments.query:
        chosen = [each for each in chosen if each[1] in arguments.query]
    if arguments.per_folder is not None:
        chosen = list(some_of_each(chosen, arguments.per_folder, random.Random(arguments.seed)))
    chosen = [(*each[:3], memory) for each in chosen for memory in arguments.memory or [None]]
    if arguments.sample is not None:
        chosen = random.Random(arguments.seed).sample(chosen, min(arguments.sample, len(chosen)))
    answers = Answers(out)
    cores = sorted(os.sched_getaffinity(0))
    shares = Queue[set[int]]()
    for job in range(arguments.jobs):
        shares.put(set(cores[job :: arguments.jobs]) or set(cores))
    # what a thread starts inherits its cores
    with ThreadPoolExecutor(arguments.jobs, initializer=lambda: os.sched_setaffinity(0, shares.get())) as pool:
        asked = [pool.submit(all_ways, each, folder, arguments, answers) for each in chosen]
        for future in as_completed(asked):
            yield from future.result()


@dataclass(frozen=True)
class Regret:
    """A question that some way answered.

    Parameters
    ----------
    name, query : str
    default, old : float or None
        Seconds, also those of another checkout's default; None where it gave no answer.
    best : float
    way : str
        The fastest one.
    agree : bool
        Whether all answers are the same.
    """

    name: str
    query: str
    default: float | None
    best: float
    way: str
    agree: bool
    old: float | None = None

    @property
    def slow(self) -> bool:
        """Whether the default took much longer than the best way."""
        return self.default is not None and self.default > _TIMES * self.best + _MORE_SECONDS

    def ratio(self, seconds: float) -> float:
        """Return seconds over those of the best way, both at least as long as a start."""
        return max(seconds, _LEAST_SECONDS) / max(self.best, _LEAST_SECONDS)


def regrets(lines: Iterable[Mapping[str, Any]], by: Seconds) -> list[Regret]:
    """Compare the ways of each question that one of them answered."""
    grouped: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for line in lines:
        if line["end"] == "answered":
            memory = line["device"].partition(" ")[2]
            grouped[f"{line['name']} {memory}".strip(), line["query"]][line["way"]] = line
    found = []
    for (name, query), answers in grouped.items():
        way = min((w for w in answers if w != "old"), key=lambda w: float(answers[w][by]), default=None)
        if way is None:
            continue
        default, old = (float(answers[w][by]) if w in answers else None for w in ("default", "old"))
        values = [line["value"] for line in answers.values()]
        found.append(Regret(name, query, default, float(answers[way][by]), way, all_same(values), old))
    return found


def all_same(values: Sequence[Any]) -> bool:
    """Whether values are the same text, or numbers that differ by rounding only."""
    first = values[0]
    for value in values:
        if isinstance(value, str) or isinstance(first, str) or value is None or first is None:
            if value != first:
                return False
        elif not math.isclose(value, first, rel_tol=1e-6, abs_tol=1e-6):
            return False
    return True


def summary(found: Sequence[Regret], by: Seconds) -> Table:
    """Say how often the default was the worse choice."""
    names = ("query", "answered", "lost", "slow", "old / best", "default / best", "worst", "disagree")
    table = Table(*names, title=f"by {by} seconds")
    for query in (*dict.fromkeys(each.query for each in found), "all"):
        of = [each for each in found if query in ("all", each.query)]
        ratios = [each.ratio(each.default) for each in of if each.default is not None]
        before = [each.ratio(each.old) for each in of if each.old is not None]
        old, new = (f"{geometric_mean(some):.3f}" if some else "-" for some in (before, ratios))
        lost, slow = len(of) - len(ratios), sum(each.slow for each in of)
        share, most = f"{slow} ({100 * slow / max(len(of), 1):.0f}%)", f"{max(ratios, default=0.0):.2f}"
        differ = str(sum(not each.agree for each in of))
        table.add_row(query, str(len(of)), str(lost), share, old, new, most, differ)
    table.caption = f"targets: lost {_TARGETS['lost']}, slow {_TARGETS['slow']:.0%}, mean {_TARGETS['mean']}"
    return table


def worst(found: Sequence[Regret]) -> Table:
    """The questions that the default lost, and where it was slow or slower than before."""
    table = Table("question", "query", "old", "default", "best", "way", title="lost or slow")
    for each in sorted(found, key=lambda one: -math.inf if one.default is None else one.best - one.default):
        slower = each.default is not None and each.old is not None
        slower = slower and each.default > _SLOWER * each.old + _MORE_SECONDS
        if each.default is None or each.slow or slower or not each.agree:
            old, default = ("none" if s is None else f"{s:.2f} s" for s in (each.old, each.default))
            note = "" if each.agree else " (answers differ)"
            table.add_row(each.name, each.query, old, default, f"{each.best:.2f} s", each.way + note)
    return table


def main() -> None:
    """Ask, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], help="files whose name and query hold this text")
    parser.add_argument("--query", action="append", default=[], help="these queries only")
    parser.add_argument("--ways", action="append", default=[], help="these ways only, such as default or dense")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of an answer")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu where the machine is busy")
    parser.add_argument("--sample", type=int, help="so many questions, drawn at random")
    parser.add_argument("--per-folder", type=int, help="so many questions of each folder and query, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="append", default=[], help="ask within this memory; several for several")
    parser.add_argument("--old", help="a folder that holds another bucketflow, whose default is asked too")
    parser.add_argument("--gpus", help="ask with so many GPUs; without them is one more way")
    parser.add_argument("--jobs", type=int, default=1, help="questions side by side, on a share of the cores each")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of the whole bench; what is left is not asked")
    parser.add_argument("--out", type=Path, default=Path("regret.jsonl"))
    arguments = parser.parse_args()
    if arguments.gpus is not None and arguments.gpus.isdigit():
        arguments.gpus = int(arguments.gpus)
    arguments.until = time.monotonic() + 60 * arguments.minutes
    lines = []
    for line in asked_again(data_folder(), arguments, arguments.out):
        lines.append(line)
        spent = ", ".join(f"{by} {line[by]:.2f} s" for by in ("cpu", "wall") if by in line)
        print(f"{line['name']} {line['query']} {line['way']}: {line['end']} {spent}", flush=True)
    console = Console()
    seconds: tuple[Seconds, ...] = ("cpu", "wall")
    for by in seconds:
        found = regrets(lines, by)
        console.print(worst(found), summary(found, by))


if __name__ == "__main__":
    main()
