"""Comparison of the panel's answers with the answers of the unchanged tree, for `tuned_numbers`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: The time of a panel, or of a question, has changed if it differs from all unchanged runs by this factor, and a
#: question's by this many seconds.
_PANEL_FACTOR, _QUESTION_FACTOR, _LEAST_SECONDS = 1.10, 1.25, 0.04
#: Relative difference of answers that rounding explains.
_ROUNDED = 1e-9

Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Unchanged:
    """Runs of the unchanged tree, with which others are compared."""

    runs: Sequence[Answers]

    def verdict(self, found: Answers | str) -> tuple[str, dict[str, Any]]:
        """Return the verdict, and by question the reasons."""
        if isinstance(found, str):
            return "refused", {"": found}
        moved: dict[str, dict[str, Any]] = {"refused": {}, "ANSWER CHANGED": {}, "decision changed": {}}
        for name, one in found.items():
            known = [run[name] for run in self.runs]
            if "failed" in one:
                if not any("failed" in each for each in known):
                    moved["refused"][name] = one["failed"]
            elif not any(_same(one["answer"], each.get("answer")) for each in known):
                moved["ANSWER CHANGED"][name] = [known[0].get("answer"), one["answer"]]
            else:
                fields = {f for f in one["decisions"] if one["decisions"][f] not in [_of(each, f) for each in known]}
                steady = sorted(f for f in fields if all(_of(each, f) == _of(known[0], f) for each in known))
                if steady:
                    moved["decision changed"][name] = steady
        verdict = next((verdict for verdict, names in moved.items() if names), "")
        times = self.times(found)
        return verdict or ("time changed" if times else "nothing moves"), {**moved[verdict or "refused"], **times}

    def times(self, found: Answers) -> dict[str, float]:
        """Return the questions whose seconds changed, with the ratio to the nearest unchanged run."""
        ratios = {
            "panel seconds": (panel_seconds(found), [panel_seconds(run) for run in self.runs], _PANEL_FACTOR, 0.0)
        }
        for name, one in found.items():
            known = [run[name]["seconds"] for run in self.runs]
            ratios[f"{name} seconds"] = (one["seconds"], known, _QUESTION_FACTOR, _LEAST_SECONDS)
        changed = {}
        for name, (seconds, known, factor, least) in ratios.items():
            near = min(max(seconds, min(known)), max(known))
            if max(seconds, near) > factor * min(seconds, near) + least:
                changed[name] = round(seconds / near, 2)
        return changed


def _of(one: dict[str, Any], field: str) -> Any:
    return one.get("decisions", {}).get(field)


def panel_seconds(answers: Answers) -> float:
    """Return the CPU seconds of all questions."""
    return math.fsum(one["seconds"] for one in answers.values())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDED, abs_tol=_ROUNDED)
    return bool(one == other)
