"""Reading, format by format: ``python tests/bench/formats.py [SUFFIX …]``.

All models of ``BUCKETFLOW_DATA`` are read once, in this process, after one of each format that is not counted. A line
says how many files of a format there are, how many were read and how many refused, their size once unpacked, CPU
seconds, megabytes of text a second, and the CPU seconds of a peer's reader on the same files where one is installed
that has the format: toulbar2's or pyAgrum's. Below are large files that are made here: a million tuples, clauses or
entries.
"""

from __future__ import annotations

import gzip
import lzma
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow

PACKED = {".gz": gzip.open, ".xz": lzma.open}
#: Suffixes of files beside models: evidence, answers, facts.
BESIDE = {
    ".evid",
    ".query",
    ".MAP",
    ".MAR",
    ".PR",
    ".MMAP",
    ".map",
    ".ub",
    ".tsv",
    ".csv",
    ".json",
    ".md",
    ".col",
    ".gr",
}
NUMBERS = 10**6


@dataclass
class Read:
    """What reading the files of a format took."""

    files: int = 0
    read: int = 0
    refused: list[str] = field(default_factory=list)
    nbytes: int = 0
    seconds: float = 0.0
    peer: float | None = None


def plain_suffix(path: Path) -> str:
    """Return the suffix without that of compression."""
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def unpacked(path: Path, folder: Path) -> Path:
    """Return the file itself, or a copy that is not compressed."""
    if path.suffix not in PACKED:
        return path
    found = folder / path.stem
    with PACKED[path.suffix](path, "rb") as source:
        found.write_bytes(source.read())
    return found


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peer_of(suffix: str) -> Callable[[Path], object] | None:
    """Return another program's reader of a format, if it is installed."""
    if suffix == ".cfn" and find_spec("pytoulbar2"):
        from pytoulbar2 import CFN

        return lambda path: CFN(verbose=-1).Read(str(path))
    if suffix in (".bif", ".net", ".bifxml", ".uai") and find_spec("pyagrum"):
        import pyagrum

        return lambda path: pyagrum.loadBN(str(path))
    return None


def read(paths: Iterable[Path], suffix: str) -> Read:
    """Read the files of a format, and by a peer those that were read."""
    found, peer = Read(), peer_of(suffix)
    with TemporaryDirectory(prefix="bucketflow-") as place:
        for path in paths:
            plain = unpacked(path, Path(place))
            if not found.files:
                with suppress(bucketflow.BucketflowError):
                    bucketflow.load(plain)  # imports are not counted
            found.files += 1
            try:
                found.seconds += timed(lambda plain=plain: bucketflow.load(plain))  # type: ignore[misc]
            except bucketflow.BucketflowError as error:
                found.refused.append(str(error))
                continue
            found.read += 1
            found.nbytes += plain.stat().st_size
            if peer is not None:
                with suppress(Exception):  # of another program: what it cannot read is not compared
                    found.peer = (found.peer or 0.0) + timed(lambda plain=plain: peer(plain))  # type: ignore[misc]
    return found


def large_files(folder: Path) -> list[Path]:
    """Write files of a million numbers or more."""
    rng = np.random.default_rng(0)

    def written(name: str, head: str, rows: Any, form: str, tail: str = "") -> Path:
        path = folder / name
        with open(path, "w") as file:
            file.write(head)
            np.savetxt(file, rows, fmt=form)
            file.write(tail)
        return path

    states = np.argwhere(np.ones((100, 100, 100), bool))
    tuples = np.column_stack([states, rng.integers(0, 1000, NUMBERS)])
    clauses = rng.integers(1, 100_001, (NUMBERS, 3)) * rng.choice([-1, 1], (NUMBERS, 3))
    return [
        written("tuples.wcsp", f"large 3 100 1 9999\n100 100 100\n3 0 1 2 0 {NUMBERS}\n", tuples, "%d"),
        written("entries.uai", f"MARKOV\n3\n100 100 100\n1\n3 0 1 2\n{NUMBERS}\n", rng.random((1000, 1000)), "%.6f"),
        written("clauses.cnf", f"p cnf 100000 {NUMBERS}\n", np.column_stack([clauses, np.zeros(NUMBERS, int)]), "%d"),
    ]


def line(name: str, found: Read) -> Sequence[str]:
    """Lay out a line of the table."""
    rate = found.nbytes / 1e6 / max(found.seconds, 1e-9)
    peer = "-" if found.peer is None else f"{found.peer:.2f}"
    numbers = f"{found.nbytes / 1e6:.1f}", f"{found.seconds:.2f}", f"{rate:.0f}", peer
    return name, str(found.files), str(found.read), str(len(found.refused)), *numbers


def main() -> None:
    """Read everything and print the table."""
    wanted, by_suffix = set(sys.argv[1:]), defaultdict[str, list[Path]](list)
    for path in sorted(data_folder().rglob("*")):
        suffix = plain_suffix(path)
        if path.is_file() and suffix and suffix not in BESIDE and (not wanted or suffix in wanted):
            by_suffix[suffix].append(path)
    table = Table(title="Reading")
    for heading in ("format", "files", "read", "refused", "MB", "CPU s", "MB/s", "peer, CPU s"):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    refused = []
    for suffix, paths in sorted(by_suffix.items()):
        found = read(paths, suffix)
        table.add_row(*line(suffix, found))
        refused += found.refused
    if not wanted:
        with TemporaryDirectory(prefix="bucketflow-") as place:
            for path in large_files(Path(place)):
                table.add_row(*line(path.name, read([path], path.suffix)))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for each in refused:
        console.print(each, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
