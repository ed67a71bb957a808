"""Ablation of all tuned numbers: ``python tests/bench/tuned_numbers.py --out FILE --jobs 32 [--rooms tasks/steps …]``.

Each numeric constant and each field of a policy is edited in a copy of the source tree, to 8 times its value. If this
moves nothing, an eighth is tried too. Fractions above 0.05 move towards 1. A fresh process answers a panel of short
questions. Its answers, decisions and CPU seconds are compared with runs of the unchanged tree.

FILE gets one line of JSON for each variant. Variants in FILE are not run again. Verdicts: ``refused`` (an error),
``ANSWER CHANGED`` (a bug), ``decision changed``, ``time changed`` (in two runs), ``nothing moves``, and ``not read``
(the panel calls no function that reads the number). ``--summary`` counts the verdicts in FILE.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from parts.number_copies import PANEL_SECONDS, Copy
from parts.number_places import ROOMS, ROOT, Number, Reading, numbers_in, texts
from parts.number_verdicts import Unchanged, panel_seconds

from bucketflow.storage.files import cache_folder
from bucketflow.tasks.compiler.code_cache import PACKAGE, sources_digest, sources_of

#: Folders whose numbers are limits of texts and pictures, or settings of servers and clusters.
SKIPPED = re.compile(r"pipeline/(formats|cli|drawings|report|reproduce|server|examples|bridges|jobs|errors)\b|cluster/")
#: Runs of the unchanged tree at least.
_LEAST_RUNS = 4
#: If at most this many questions moved, the panel is repeated, and only questions that moved twice count.
_FEW = 3
#: Seconds before the end from which no loop is compiled again.
_RESERVE_SECONDS = 120.0


@cache
def sources() -> dict[str, tuple[str, set[str]]]:
    """Return for each module the digest that names its machine code, and the modules whose sources are in it."""
    paths = [PACKAGE / path for path in texts()]
    inside = {path: {str(one.relative_to(PACKAGE)) for one in sources_of(path)} for path in paths}
    return {str(path.relative_to(PACKAGE)): (sources_digest(path), inside[path]) for path in paths}


def tried(copy: Copy, number: Number, text: str, unchanged: Unchanged, loops: Sequence[str]) -> dict[str, Any]:
    """Edit a number in a copy, ask the panel, restore the file with its old time, and return the verdict.

    Parameters
    ----------
    loops : sequence of str
        Modules whose compiled loops contain the number. Their machine code, and no other, is compiled again.
    """
    path, digests = copy.folder / "bucketflow" / number.path, copy.folder / "digests.json"
    before, status = path.read_bytes(), path.stat()
    kept = {module: digest for module, (digest, inside) in sources().items() if inside.isdisjoint(loops)}
    digests.write_text(json.dumps(kept))
    settings = {"NUMBER_DIGESTS": str(digests), "PYTHONDONTWRITEBYTECODE": "1"}
    start = time.monotonic()
    path.write_bytes(before[: number.start] + text.encode() + before[number.end :])
    # a new time, or Python would take the bytecode of the old text
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**10))
    try:
        if loops:
            copy.ask(**settings)
        found = copy.ask(seconds=PANEL_SECONDS, **settings)
        verdict, moved = unchanged.verdict(found)
        # a busy machine moves a few questions too
        if verdict in ("time changed", "decision changed") and len(moved) <= _FEW:
            found = copy.ask(seconds=PANEL_SECONDS, **settings)
            verdict, more = unchanged.verdict(found)
            moved = {name: more[name] for name in moved if name in more}
            verdict = verdict if moved else "nothing moves"
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    facts = {"seconds": None if isinstance(found, str) else round(panel_seconds(found), 2)}
    facts |= {"wall": round(time.monotonic() - start, 1), "loops": len(loops)}
    return {"number": number.key, "was": number.text, "now": text, "verdict": verdict, "moved": moved, **facts}


class Lines:
    """The lines of the output, and the variants that need no further run."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.lines = [json.loads(line) for line in lines]

    def known(self, number: Number, text: str | None) -> dict[str, Any] | None:
        """Return the line of a variant, if there is one."""
        wanted = (number.key, number.text, text)
        return next((line for line in self.lines if (line["number"], line["was"], line["now"]) == wanted), None)

    def add(self, line: dict[str, Any]) -> None:
        """Write a line."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            self.lines.append(line)

    def summary(self) -> str:
        """Count the numbers by the strongest verdict of their variants."""
        order = ("ANSWER CHANGED", "refused", "decision changed", "time changed", "nothing moves", "not read")
        best: dict[str, str] = {}
        for line in self.lines:
            best[line["number"]] = min(best.get(line["number"], order[-1]), line["verdict"], key=order.index)
        return ", ".join(f"{count} {verdict}" for verdict, count in Counter(best.values()).most_common())


def asked(
    copies: SimpleQueue[Copy], number: Number, unchanged: Unchanged, reading: Reading, lines: Lines, end: float
) -> None:
    """Try a larger value of a number and, if that moves nothing, a smaller one."""
    if not reading.is_read(number):
        if lines.known(number, None) is None:
            lines.add({"number": number.key, "was": number.text, "now": None, "verdict": "not read", "moved": {}})
        return
    for up in (True, False):
        text = number.varied(up)
        if text is None:
            continue
        line = lines.known(number, text)
        if line is None:
            copy = copies.get()
            try:
                loops = reading.frozen(number)
                if time.monotonic() > end - (_RESERVE_SECONDS if loops else 0.0):
                    return
                line = tried(copy, number, text, unchanged, loops)
            finally:
                copies.put(copy)
            lines.add(line)
            print(f"{line['verdict']:16s} {number.key} {number.text} -> {text} {line['moved']}"[:200], flush=True)
        if line["verdict"] != "nothing moves":
            return


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="lines of JSON")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes at a time")
    parser.add_argument("--rooms", nargs="+", default=[*ROOMS], metavar="ROOM", help="folders or modules")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="start no variant after this time")
    parser.add_argument("--most", type=int, metavar="N", help="try at most N numbers, spread over the rooms")
    parser.add_argument("--summary", action="store_true", help="only count the verdicts in FILE")
    return parser.parse_args()


def main() -> None:
    """Warm the caches, measure the unchanged tree, and try all numbers."""
    options = arguments()
    lines, start = Lines(options.out), time.monotonic()
    if options.summary:
        return print(lines.summary())
    paths = dict.fromkeys(p for room in options.rooms for p in sorted([ROOT / room, *(ROOT / room).rglob("*.py")]))
    files = [p for p in paths if p.suffix == ".py" and not SKIPPED.match(str(p.relative_to(ROOT)))]
    numbers = [number for path in files for number in numbers_in(path)]
    numbers = numbers[:: max(len(numbers) // options.most, 1)][: options.most] if options.most else numbers
    with TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        first = Copy(Path(folder) / "0").filled(cache_folder())
        # compile loops that are missing in the cache
        list(pool.map(lambda part: first.ask(f"{part}/{options.jobs}"), range(options.jobs)))
        warmed = first.ask()
        assert not isinstance(warmed, str), warmed
        warm = first.folder / "cache" / "bucketflow"
        # machine code is named by its sources and its machine: the next start is faster
        shutil.copytree(warm, cache_folder(), dirs_exist_ok=True)
        others = list(pool.map(lambda job: Copy(Path(folder) / str(job)).filled(warm), range(1, options.jobs)))
        print(f"warm after {time.monotonic() - start:.0f} s, {panel_seconds(warmed):.1f} CPU-s a panel", flush=True)
        trace = Path(folder) / "trace"
        tracing = pool.submit(first.ask, NUMBER_TRACE=str(trace))
        first_runs = pool.map(Copy.ask, [first, *others] * math.ceil(_LEAST_RUNS / options.jobs))
        unchanged = Unchanged([run for run in first_runs if not isinstance(run, str)])
        tracing.result()
        reading = Reading(trace.read_text().splitlines())
        copies: SimpleQueue[Copy] = SimpleQueue()
        for copy in (first, *others):
            copies.put(copy)
        # numbers in compiled loops last: they take longest
        numbers.sort(key=lambda number: len(reading.frozen(number)) > 0)
        print(f"{len(numbers)} numbers, {sum(map(reading.is_read, numbers))} of them are read", flush=True)
        end = start + 60 * options.minutes
        list(pool.map(lambda number: asked(copies, number, unchanged, reading, lines, end), numbers))
    print(f"{lines.summary()}; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
