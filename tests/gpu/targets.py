"""What was wanted of a GPU, beside what the programs that `run.py` runs have printed: one line for each target."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from rich.table import Table

Judgement = tuple[str, bool | None]
Judge = Callable[[str], Judgement | None]
"""Reads the output of a part: what was measured and whether that is enough (None: it cannot be said here), or None."""


@dataclass(frozen=True)
class Target:
    """One line: what, in the output of which part, how much is wanted, and who says whether it is there."""

    title: str
    part: str
    wanted: str
    judge: Judge


def figures(pattern: str, text: str) -> list[float]:
    """Return the first group of every match as a number."""
    return [float(found[1]) for found in re.finditer(pattern, text, re.MULTILINE)]


def at_least(text: str, *, pattern: str, bound: float) -> Judgement | None:
    """Percentages that all have to reach a bound."""
    found = figures(pattern, text)
    enough = sum(value >= bound for value in found)
    if not found:
        return None
    return f"{min(found):.0f} to {max(found):.0f} %, {enough} of {len(found)} reach it", enough == len(found)


def section(text: str, *, head: str, bound: float) -> Judgement | None:
    """The same for the indented lines below a heading of ``gpu_spill.py``."""
    below = re.search(rf"^{re.escape(head)}\n((?: .*\n?)+)", text, re.MULTILINE)
    return below and first(below[1], pattern=r"(\d+)% of what the transfers allow", bound=bound)


def first(text: str, *, pattern: str, bound: float) -> Judgement | None:
    """Percentages of which the first has to reach a bound: that of the largest shape, or of the largest tables."""
    found = figures(pattern, text)
    others = f"; {len(found) - 1} others {min(found[1:]):.0f} to {max(found[1:]):.0f} %" if found[1:] else ""
    return (f"{found[0]:.0f} %{others}", found[0] >= bound) if found else None


def ended(text: str, *, pattern: str, good: str) -> Judgement | None:
    """The last line that matches, which has to match ``good``."""
    found = [match[0].strip() for match in re.finditer(pattern, text, re.MULTILINE)]
    return (found[-1], re.search(good, found[-1]) is not None) if found else None


def model(text: str, *, name: str, seconds: float, floors: float | None = None) -> Judgement | None:
    """A case of ``gpu_models.py``: right, below some seconds, and below some times its floor."""
    line = re.search(
        rf"^{re.escape(name)} .*\n +\w+ (\S+) *(right|WRONG)?.*?: (\S+) s \(first .*?, (\S+) x floor",
        text,
        re.MULTILINE,
    )
    if line is None:
        return None
    value, right, took, times = line[1], line[2], float(line[3]), float(line[4])
    measured = f"{took:.4g} s, {times:.3g} × floor, {value}{f' {right}' if right else ''}"
    return measured, right != "WRONG" and took <= seconds and (floors is None or times <= floors)


def propagation(text: str, *, name: str) -> Judgement | None:
    """A network of ``gpu_marginals.py``, by the host's clock: 2 ms, and 20 times as fast as a core."""
    cell = r"\s*([\d.]+)×?\s*"
    rows = re.findall(rf"^│\s*{name}\s*│[^│]*│{'│'.join([cell] * 7)}│", text, re.MULTILINE)
    if not rows:
        return None
    ms, ratio = max(float(row[1]) for row in rows), min(float(row[5]) for row in rows)
    return f"{ms:.3f} ms, {ratio:.0f}×", ms <= 2 and ratio >= 20


def scaling(text: str) -> Judgement | None:
    """Efficiencies on several GPUs."""
    rows = re.findall(r"^(.*?\S) +(\d+) GPUs +[\d.]+ s, efficiency +(\d+)%", text, re.MULTILINE)
    several = [(" ".join(title.split()), count, int(share)) for title, count, share in rows if count != "1"]
    if not several:
        return ("one GPU only", None) if rows else None
    words = "; ".join(f"{title} on {count}: {share} %" for title, count, share in several)
    return words, min(share for *_, share in several) >= 85 and not re.search("WRONG|DIFFERS", text)


def sanitized(text: str) -> Judgement | None:
    """What the checkers found."""
    errors = figures(r"ERROR SUMMARY: (\d+) error", text) + figures(r"RACECHECK SUMMARY: (\d+) hazard", text)
    tests = figures(r"^(\d+) passed", text)
    if not errors:
        return None
    return f"{sum(errors):.0f} errors in {len(errors)} runs, {sum(tests):.0f} tests", not any(errors)


def planned_runs(text: str) -> Judgement | None:
    """The summary of ``gpu_runs.py``: 3 times the floor in geometric mean, none over 6."""
    found = re.search(
        r"^(\d+) runs over 50 ms: (\S+) x floor in geometric mean, (\S+) at most; (\d+) within", text, re.M
    )
    if found is None:
        return None
    mean, most, foreseen = float(found[2]), float(found[3]), int(found[4]) / int(found[1])
    return f"{mean:.3g} ×, {most:.3g} × at most, {foreseen:.0%} foreseen", mean <= 3 and most <= 6 and foreseen >= 0.9


PUBLISHED = {"SPOT5 54": 0.024, "SPOT5 503": 0.055, "SPOT5 404": 0.079, "SPOT5 29": 0.110, "c432": 0.261}
"""Seconds of the fastest program on a GPU that we know of."""
LIMITS = {"SPOT5 505": 10.0, "CELAR6-SUB0": 10.0, "Grids_28 MPE": 120.0, "Grids_28 Z": 120.0}
FAR = ("queen5_5_4", "75-26-5 MPE", "75-26-5 Z", "Promedas_35 MPE", "Promedas_35 Z", "Promedas_41 MPE", *LIMITS)
NETWORKS = ("water", "barley", "diabetes", "munin3", "link")
PRODUCTS = {f"min-plus {dtype}": (50, "of ceiling") for dtype in ("int16", "int32", "float64")}
PRODUCTS["sum-product float64"] = (80, "of cuBLAS")
SPILL = {
    "host-resident, streaming stage": (75, "host-resident, again:"),
    "host-resident, whole run": (75, "host-resident, in its own order:"),
    "disk-resident, whole run": (80, "disk-resident:"),
}
# The last two lines of the ladder: how many rows of each kind, and how many are over budget.
LADDER = r"^\d+ (?:right|wrong|refused|out of|over|crashed|unreadable)\b.*\n.* over budget.*"
RIGHT = r"^(?!.*(wrong|crashed|unreadable|over memory)).*\n0 over budget"


def targets() -> list[Target]:
    """Return all, in the order of the table."""
    passed = partial(ended, pattern=r"^\d+ (passed|failed).*", good=r"^(?!.*(failed|error))")
    ladder = partial(ended, pattern=LADDER, good=RIGHT)
    stream = partial(at_least, pattern=r"^(?:min|sum)-.* (\d+)% of copy", bound=80)
    found = [
        Target("tests marked gpu", "tests", "all pass", passed),
        Target("compute-sanitizer", "sanitize", "no errors", sanitized),
        Target("ladder to 2^24", "ladder", "right, within the device", ladder),
        Target("ladder from 2^24", "far ladder", "right, within the device", ladder),
        Target("streaming steps, of a copy", "kernels", "≥ 80 %", stream),
    ]
    for name, (bound, of) in PRODUCTS.items():
        judge: Judge = partial(first, pattern=rf"^{name} .*?(\d+)% {of}", bound=bound)
        found.append(Target(f"{name} products, {of}", "kernels", f"≥ {bound} %", judge))
    for title, (bound, head) in SPILL.items():
        judge = partial(section, head=head, bound=bound)
        found.append(Target(title, "spill", f"≥ {bound} % of the link or disk", judge))
    for name in NETWORKS:
        judge = partial(propagation, name=name)
        found.append(Target(f"{name}, a propagation", "propagations", "≤ 2 ms, ≥ 20× a core", judge))
    for name, seconds in PUBLISHED.items():
        found.append(Target(name, "models", f"≤ {seconds} s", partial(model, name=name, seconds=seconds)))
    for name in FAR:
        seconds = LIMITS.get(name, math.inf)
        wanted = f"≤ 3 × floor{f', ≤ {seconds:.0f} s' if name in LIMITS else ''}"
        found.append(Target(name, "models", wanted, partial(model, name=name, seconds=seconds, floors=3)))
    found.append(Target("runs over 50 ms", "runs", "≤ 3 × floor, ≤ 6 each, 90 % foreseen", planned_runs))
    several = ("scaling", "batches and slices")
    return [*found, *(Target(f"several GPUs, {part}", part, "≥ 85 %", scaling) for part in several)]


def table_of(outputs: Mapping[str, str]) -> Table:
    """Judge the outputs of the parts that ran."""
    table = Table(title="targets")
    for heading in ("target", "wanted", "measured", "met"):
        table.add_column(heading, overflow="fold")
    for target in targets():
        if target.part not in outputs:
            continue
        judged = target.judge(outputs[target.part])
        measured, met = judged or ("not measured", False)
        verdict = "–" if met is None else "met" if met else "NOT met"
        table.add_row(target.title, target.wanted, measured, verdict, style="bold" if met is False else None)
    return table
