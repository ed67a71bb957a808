"""What each prover is worth: ``python tests/bench/ablation.py [--limit 25] [--only CELAR] [--without dolls …]``.

Optima that dense plans do not reach are asked with all provers, and those where a prover had a turn once more without
it, as the registry leaves it out. A prover decides an instance that is not proved in the limit without it. Counted are
CPU seconds of solving, one thread, a fresh process each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parts.instances import Question
from parts.optima import OURS, Answer, Kept, chosen
from rich.console import Console
from rich.table import Table

from bucketflow.pipeline.proofs.prover_registry import ALL_PROVERS

#: A prover had a turn that matters where it took so many CPU seconds.
_USED_SECONDS = 0.05
#: What takes so many times as long without it was made faster by it, if they differ by some tenths of a second.
_FASTER, _NOTICED_SECONDS = 1.2, 0.3


@dataclass(frozen=True)
class Trial:
    """An instance with all provers, and without one."""

    question: Question
    prover: str
    whole: Answer
    without: Answer

    @property
    def verdict(self) -> str:
        """What the prover did for the instance, or to it."""
        if self.whole.proved != self.without.proved:
            return "decides" if self.whole.proved else "PREVENTS"
        if not self.whole.proved:
            return "neither proves"
        before, after = self.whole.seconds, self.without.seconds
        if abs(after - before) < _NOTICED_SECONDS:
            return ""
        return f"{after / before:.2f} x" if after > _FASTER * before or before > _FASTER * after else ""


def used(answer: Answer, prover: str) -> bool:
    """Whether a prover had a turn that matters."""
    return answer.way == prover or (answer.tried or {}).get(prover, 0.0) >= _USED_SECONDS


def shown(answer: Answer) -> str:
    """Return CPU seconds and what completed the proof."""
    return answer.failed or f"{'' if answer.proved else '> '}{answer.seconds:.2f} {answer.way}"


def trials(questions: Sequence[Question], options: argparse.Namespace) -> list[Trial]:
    """Ask everything, the default of an instance first."""
    kept, found = Kept(options.kept), list[Trial]()
    for question in questions:
        whole = kept.asked(OURS, question, options.limit, options.memory)
        print(question.name, shown(whole), whole.tried, sep=" | ", file=sys.stderr, flush=True)
        for prover in options.without:
            if used(whole, prover):
                without = kept.asked(f"{OURS} without {prover}", question, options.limit, options.memory)
                found.append(Trial(question, prover, whole, without))
                print(f"  without {prover}", shown(without), found[-1].verdict, sep=" | ", file=sys.stderr, flush=True)
    return found


def summary(prover: str, found: Sequence[Trial]) -> str:
    """Say what a prover is worth."""
    own = [trial for trial in found if trial.prover == prover]
    named = {trial.question.path.name.partition(".")[0]: trial.verdict for trial in own if trial.verdict}
    decided = [name for name, verdict in named.items() if verdict in ("decides", "PREVENTS")]
    other = [f"{name} {verdict}" for name, verdict in named.items() if verdict.endswith("x")]
    return f"{prover}: {len(own)} instances; decides {' '.join(decided) or 'none'}; else {', '.join(other) or 'equal'}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    names = [entry.name for entry in ALL_PROVERS if not entry.package]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=25.0, metavar="SECONDS", help="CPU time of each")
    parser.add_argument("--memory", type=float, default=1.0, metavar="GB", help="budget")
    parser.add_argument("--only", default="", metavar="SUBSTR", help="part of the name")
    parser.add_argument("--sample", action="store_true", help="a few instances that take a second")
    parser.add_argument("--without", nargs="+", default=names, choices=names, metavar="PROVER", help="left out in turn")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="each N-th instance from I on, for N cores")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="answers are kept there, and not asked for again")
    return parser.parse_args()


def main() -> None:
    """Ask, and print one table."""
    options = arguments()
    part, parts = map(int, options.part.split("/"))
    found = trials(list(chosen(options))[part::parts], options)
    table = Table(title=f"CPU seconds, limit {options.limit:g}, with all provers and without one")
    for heading in ("instance", "prover", "with all", "without it", ""):
        table.add_column(heading, no_wrap=True)
    for trial in found:
        table.add_row(trial.question.name, trial.prover, shown(trial.whole), shown(trial.without), trial.verdict)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print("\n".join(summary(prover, found) for prover in options.without))


if __name__ == "__main__":
    main()
