"""One optimum in a process of its own: ``optima_child.py SOLVER FILE EVIDENCE SECONDS MEMORY`` prints a line of JSON.

A solver is ``bucketflow`` (its own provers only), ``bucketflow without PROVER``, or a configuration of
toulbar2. Seconds are the process's CPU seconds, for everybody.
"""

from __future__ import annotations

import json
import math
import sys
import time
from time import process_time
from typing import Any

import bucketflow
from bucketflow.pipeline.proofs.prover_registry import ALL_PROVERS, using

#: What a unit of toulbar2's costs is of a natural logarithm.
_RESOLUTION = 1e-7


def bucketflow_answer(path: str, evidence: str, seconds: float, memory: int) -> dict[str, Any]:
    """Solve through the public function, one thread; without a limit, and with no memory given, as by default."""
    limits = {"time": None if math.isinf(seconds) else seconds, "memory": memory or None}
    model = bucketflow.load(path)
    start = process_time()
    time.perf_counter = process_time
    result = bucketflow.solve(model, evidence=evidence or None, threads=1, **limits)
    spent = process_time() - start
    proof, costs = result.proof, model.kind == "cost"
    value = result.value if costs else result.log10
    bound = value if proof is None else proof.lower if costs else proof.upper
    return {
        "seconds": spent,
        "proved": result.status != "bounded",
        "value": None if value is None else float(value),
        "bound": None if bound is None else float(bound),
        "way": "dense" if proof is None else proof.method,
        "tried": {} if proof is None else dict(proof.tried),
    }


def toulbar2_answer(configuration: str, path: str, evidence: str, seconds: float) -> dict[str, Any]:
    """Solve with toulbar2, which reads the file itself; what its solution means is evaluated on our model."""
    import pytoulbar2.pytb2 as tb2
    from pytoulbar2 import CFN

    problem = CFN(verbose=-1, vac=int("VAC" in configuration))
    problem.Option.useRASPS = int("RASPS" in configuration)
    if "-B=1" in configuration:
        problem.Option.btdMode = 1
        problem.Option.setVarOrder("-3")
    if evidence:
        problem.Option.evidence_file = evidence
    problem.Read(path)
    start = process_time()
    found = problem.Solve(timeLimit=math.ceil(seconds))
    spent = process_time() - start
    proved, bound = not tb2.option.limited, float(problem.GetDDualBound())
    value = None if found is None else float(found[1])
    if tb2.option.uai:
        # costs are counted from another origin than logarithms are
        better = None if value is None else (value - bound) * _RESOLUTION / math.log(10)
        value = None if found is None else bucketflow.load(path).log10_value([int(a) for a in found[0]])
        bound = math.inf if value is None or better is None else value + better
    return {
        "seconds": spent,
        "proved": proved,
        "value": value,
        "bound": value if proved else bound,
        "way": "",
        "tried": {},
    }


def main() -> None:
    """Answer in one line."""
    solver, path, evidence, seconds, memory = sys.argv[1:]
    ours, _, left_out = solver.partition(" without ")
    if ours == "bucketflow":
        with using(entry for entry in ALL_PROVERS if not entry.package and entry.name != left_out):
            found = bucketflow_answer(path, evidence, float(seconds), int(memory))
    else:
        found = toulbar2_answer(solver, path, evidence, float(seconds))
    print(json.dumps({**found, "total": process_time()}))


if __name__ == "__main__":
    main()
