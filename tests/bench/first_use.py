"""First answers after an installation: every kind of question with an empty cache, beside the same question again.

Run by hand: ``python tests/bench/first_use.py``; needs the public instances. The table has the functions whose code was
kept, each for its types, and the seconds by the clock that compiling took; ``--names`` lists them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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
    ("max-marginals", "marginals @wcsp/spot5/54.wcsp --max"),
    ("count", "solve frequency --query count"),
    ("count of clauses", "solve @wcsp/iscas89/c432.wcsp.xz --query count"),
    ("bound", "bound @uai/uai2014map/Grids_28.uai.xz --z 8"),
    ("bound on a partition", "bound @uai/uai2014map/Grids_28.uai.xz --query partition --z 8"),
    ("dpop", "dpop meetings"),
    ("by rows", "solve satellite --representation rows"),
    ("plan", "plan @bn/munin.bif.gz"),
)


@dataclass(frozen=True)
class Used:
    """CPU seconds of a question, first and again; what was compiled, and how long by the clock."""

    name: str
    first: float
    again: float
    compiled: Counter[str]
    compiling: float

    @property
    def more(self) -> float:
        """What the first answer took more."""
        return self.first - self.again


def cpu_seconds(command: list[str], cache: Path) -> tuple[float, float]:
    """Run a command in a process of its own; return its CPU seconds, with children's, and those of compiling."""
    environment = {**os.environ, "BUCKETFLOW_CACHE": str(cache)}
    answer, errors = cache / "answer.json", cache / "errors.txt"
    with answer.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3, 4):
        raise click.ClickException(f"{' '.join(command)}: {errors.read_text().strip()[-300:]}")
    told = json.loads(answer.read_text()) if code == 0 else {}
    seconds = told.get("seconds") if isinstance(told, dict) else None
    compiling = seconds.get("compile", 0.0) if isinstance(seconds, dict) else 0.0
    return used.ru_utime + used.ru_stime, compiling


def kept_functions(cache: Path) -> Counter[str]:
    """Count the files of machine code by module and function: one for each combination of types."""
    files = (cache / "machine-code").rglob("*.nbc")
    return Counter(f"{file.parent.name.rpartition('-')[0]}.{file.name.rpartition('-')[0]}" for file in files)


def measured(chosen: str, rounds: int) -> Iterator[Used]:
    """Ask every question whose name has a text in it."""
    for name, text in _QUESTIONS:
        if chosen not in name:
            continue
        words = [str(_DATA / word[1:]) if word.startswith("@") else word for word in text.split()]
        missing = [
            word for word, given in zip(words, text.split(), strict=True) if given[0] == "@" and not Path(word).exists()
        ]
        if missing:
            print(f"{missing[0]} is not there", file=sys.stderr)
            continue
        command = [sys.executable, "-m", "bucketflow", *words, "--json"]
        with TemporaryDirectory() as cache:
            first, compiling = cpu_seconds(command, Path(cache))
            compiled = kept_functions(Path(cache))
            again = min(cpu_seconds(command, Path(cache))[0] for _ in range(rounds))
        yield Used(name, first, again, compiled, compiling)


@click.command()
@click.option("--only", default="", help="Questions whose name has this in it.")
@click.option("--rounds", default=2, show_default=True, help="Of the question asked again; the best counts.")
@click.option("--names", is_flag=True, help="List what was compiled.")
def main(only: str, rounds: int, names: bool) -> None:
    """Print CPU seconds of whole processes, first and again."""
    table = Table(title="CPU seconds of the whole process: with an empty cache, and again")
    for heading in ("question", "first", "again", "more", "functions", "compiling s", ""):
        table.add_column(heading, justify="left" if heading in ("question", "") else "right")
    for used in measured(only, rounds):
        mark = "" if used.more <= _WANTED else f"above {_WANTED:g}"
        figures = [f"{seconds:.1f}" for seconds in (used.first, used.again, used.more)]
        table.add_row(used.name, *figures, str(used.compiled.total()), f"{used.compiling:.1f}", mark)
        for function, times in sorted(used.compiled.items()) if names else ():
            print(f"  {function} x {times}")
        print(f"{used.name}: {used.first:.1f}, {used.again:.1f}", file=sys.stderr, flush=True)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
