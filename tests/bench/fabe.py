"""Beside FABE's times: ``python tests/bench/fabe.py [--rounds 3] [--only SUBSTR]``.

FABE (Bistaffa, IJCAI 2023) eliminates on automata. Its CPU seconds were measured on one thread, those of sixteen
cores are wall seconds, both of whole processes; of the grids no times are known. Ours are CPU seconds, the least of
all rounds, each a process with one thread, after ``bucketflow warm``: of solving, and with start and reading.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from parts import optima
from parts.instances import Question, questions
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Times:
    """Seconds on one thread here and on sixteen cores, at least so many where it was not finished; nan if unknown."""

    here: float = math.nan
    cores: float = math.nan
    unfinished: tuple[bool, bool] = (False, False)

    @property
    def both(self) -> tuple[float, ...]:
        """Those that are known."""
        return tuple(t for t in (self.here, self.cores) if not math.isnan(t))

    @property
    def texts(self) -> tuple[str, ...]:
        """As they are shown."""
        pairs = zip((self.here, self.cores), self.unfinished, strict=True)
        return tuple("–" if math.isnan(t) else f"{'> ' if more else ''}{t:g}" for t, more in pairs)


#: By the end of the path.
FABE = {
    "spot5/54": Times(0.13, 0.06),
    "spot5/503": Times(0.13, 0.06),
    "spot5/404": Times(0.09, 0.05),
    "spot5/29": Times(0.22, 0.10),
    "spot5_tb2/505": Times(15.4, 14.7),
    "iscas89/s386": Times(20, 0.08, (True, False)),
    "iscas89/c432": Times(20, 110, (True, True)),
}
#: Grids, which FABE is published with too.
GRIDS = """
    50-14-5 50-15-5 50-16-5 50-18-5 50-20-5 75-18-5 75-26-5 90-20-5 90-22-5 90-30-5 90-38-5
"""


def named(name: str) -> Question | None:
    """Return the question of an optimum by the end of its path."""
    asked = (q for q in questions(data_folder()) if q.query == "optimum")
    return next((q for q in asked if f"/{q.name}".partition(".")[0].endswith(f"/{name}")), None)


def compared(solving: float, process: float, fabe: Times) -> str:
    """Say which of ours is more than which of FABE's."""
    times = [
        (what, ours, theirs) for what, ours in (("solving", solving), ("process", process)) for theirs in fabe.both
    ]
    slower = [f"{what} {ours / theirs:.1f} x {theirs:g}" for what, ours, theirs in times if ours > theirs]
    return ", ".join(slower) or "none" if fabe.both else ""


def main() -> None:
    """Solve each, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    table = Table(title=f"seconds, least of {options.rounds}")
    for heading in ("instance", "FABE", "16 cores", "solving", "process", "ours", "by", "slower"):
        table.add_column(heading, no_wrap=True)
    for name, times in (FABE | {f"fabe_grid/{name}": Times() for name in GRIDS.split()}).items():
        question = named(name) if options.only in name else None
        if question is None:
            continue
        answers = [optima.asked(optima.OURS, question, math.inf, 0) for _ in range(options.rounds)]
        solving, process = (min(getattr(answer, kind) for answer in answers) for kind in ("seconds", "total"))
        shown = f"{solving:.2f}", f"{process:.2f}", answers[0].text, answers[0].way
        table.add_row(name, *times.texts, *shown, compared(solving, process, times))
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
