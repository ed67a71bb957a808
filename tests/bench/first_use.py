"""First answers after an installation: every kind of question with an empty cache, beside the same question again.

Run by hand: ``python tests/bench/first_use.py``; needs the public instances. The table has CPU seconds and those by the
clock of whole processes, the functions whose code was kept, each for its types, and the seconds by the clock that
compiling them took; ``--names`` lists them, and what the answer says of its seconds. ``--gpus`` asks for a device
instead, with an empty cache of CuPy's too, in which kernels are counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

_DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))
#: CPU seconds that a first answer may take longer.
_WANTED = 4.0

# What is asked, and the arguments after the command's name; files of the public instances begin with "@".
_QUESTIONS = (
    ("optimum, swept", "solve @wcsp/spot5/404.wcsp.xz"),
    ("optimum, an example", "solve satellite"),
    ("optimum, between bounds", "solve fields"),
    ("optimum, by search", "solve @wcsp/celar/CELAR7-SUB0.wcsp.xz"),
    ("optimum, hard", "solve @wcsp/celar/CELAR6-SUB0.wcsp.xz"),
    (
        "optimum, binary network",
        "solve @uai/uai2014map/Promedas_29.uai.xz --evidence @uai/uai2014map/Promedas_29.uai.evid",
    ),
    ("mpe of a Bayesian network", "solve @bn/munin.bif.gz"),
    ("partition", "solve @bn/munin.bif.gz --query partition"),
    ("partition of a Markov network", "solve @uai/uai2014/Grids_11.uai --query partition"),
    ("marginals", "marginals @bn/munin.bif.gz"),
    ("marginals, an example", "marginals diagnosis"),
    ("max-marginals", "marginals @wcsp/spot5/54.wcsp --max-marginals"),
    ("count", "solve frequency --query count"),
    ("count of clauses", "solve @wcsp/iscas89/c432.wcsp.xz --query count"),
    ("bound", "bound @uai/uai2014map/Grids_28.uai.xz --z 8"),
    ("bound on a partition", "bound @uai/uai2014map/Grids_28.uai.xz --query partition --z 8"),
    ("dpop", "dpop meetings"),
    ("by rows", "solve satellite --representation rows"),
    ("plan", "plan @bn/munin.bif.gz"),
)
_OF_DEVICES = (
    ("optimum, dense", "solve @wcsp/spot5/404.wcsp.xz --method dense"),
    ("optimum, dense, large", "solve @wcsp/celar/CELAR6-SUB0.wcsp.xz --method dense"),
    ("partition", "solve @uai/uai2014/Grids_11.uai --query partition"),
    ("marginals", "marginals @bn/munin.bif.gz"),
    ("marginals, small", "marginals @bn/munin3.bif.gz"),
)


@dataclass(frozen=True)
class Used:
    """A question first and again, and what was compiled for it."""

    name: str
    first: Process
    again: Process
    compiled: Counter[str]
    kernels: int

    @property
    def more(self) -> float:
        """CPU seconds that the first answer took more."""
        return self.first.cpu - self.again.cpu


@dataclass(frozen=True)
class Process:
    """CPU seconds of a process and its children, those by the clock, and what its answer says of the latter."""

    cpu: float
    wall: float
    told: Mapping[str, float]


def process(command: list[str], cache: Path) -> Process:
    """Run a command in a process of its own."""
    environment = {**os.environ, "BUCKETFLOW_CACHE": str(cache), "CUPY_CACHE_DIR": str(cache / "cupy")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed modules are bytecode: 0.14 of 0.4 s otherwise
    answer, errors = cache / "answer.json", cache / "errors.txt"
    start = time.perf_counter()
    with answer.open("w") as out, errors.open("w") as err:
        child = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3, 4):
        raise click.ClickException(f"{' '.join(command)}: {errors.read_text().strip()[-300:]}")
    told = json.loads(answer.read_text()) if code == 0 else {}
    seconds = told.get("seconds") if isinstance(told, dict) else None
    return Process(used.ru_utime + used.ru_stime, wall, seconds if isinstance(seconds, dict) else {})


def kept_functions(cache: Path) -> Counter[str]:
    """Count the files of machine code by module and function: one for each combination of types."""
    files = (cache / "machine-code").rglob("*.nbc")
    return Counter(f"{file.parent.name.rpartition('-')[0]}.{file.name.rpartition('-')[0]}" for file in files)


def measured(chosen: str, rounds: int, gpus: str | None) -> Iterator[Used]:
    """Ask every question whose name has a text in it."""
    for name, text in _OF_DEVICES if gpus else _QUESTIONS:
        if chosen not in name:
            continue
        words = [str(_DATA / word[1:]) if word.startswith("@") else word for word in text.split()]
        missing = [
            word for word, given in zip(words, text.split(), strict=True) if given[0] == "@" and not Path(word).exists()
        ]
        if missing:
            print(f"{missing[0]} is not there", file=sys.stderr)
            continue
        command = [sys.executable, "-m", "bucketflow", *words, "--json", *(("--gpus", gpus) if gpus else ())]
        with TemporaryDirectory() as folder:
            cache = Path(folder)
            first = process(command, cache)
            compiled, kernels = kept_functions(cache), len(list((cache / "cupy").rglob("*.cubin")))
            again = min((process(command, cache) for _ in range(rounds)), key=lambda each: each.cpu)
        yield Used(name, first, again, compiled, kernels)


@click.command()
@click.option("--only", default="", help="Questions whose name has this in it.")
@click.option("--rounds", default=2, show_default=True, help="Of the question asked again; the best counts.")
@click.option("--names", is_flag=True, help="List what was compiled, and seconds of the parts of an answer.")
@click.option("--gpus", metavar="N", help="Ask questions of devices instead.")
def main(only: str, rounds: int, names: bool, gpus: str | None) -> None:
    """Print seconds of whole processes, first and again."""
    table = Table(title="the whole process, with an empty cache and again: CPU s, and s by the clock")
    for heading in ("question", "first", "again", "more", "first", "again", "functions", "compiling s", "kernels", ""):
        table.add_column(heading, justify="left" if heading in ("question", "") else "right")
    for used in measured(only, rounds, gpus):
        mark = "" if used.more <= _WANTED else f"above {_WANTED:g}"
        first, again = used.first, used.again
        figures = [f"{seconds:.1f}" for seconds in (first.cpu, again.cpu, used.more)]
        figures += [f"{seconds:.2f}" for seconds in (first.wall, again.wall)]
        compiled = str(used.compiled.total()), f"{first.told.get('compile', 0.0):.1f}", str(used.kernels)
        table.add_row(used.name, *figures, *compiled, mark)
        if names:
            for function, times in sorted(used.compiled.items()):
                print(f"  {function} x {times}")
            print(*(f"  {which}: {dict(each.told)}" for which, each in (("first", first), ("again", again))), sep="\n")
        print(f"{used.name}: {first.wall:.1f}, {again.wall:.1f} s", file=sys.stderr, flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
