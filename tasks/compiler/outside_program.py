"""A script that runs one program of other authors: Ganak, which counts, or toulbar2, which searches for an optimum.

It imports nothing of this package and no installed packages, so that it starts in some 20 milliseconds. It reads one
pickled dictionary from the standard input: ``program`` is a function of this module, ``folder`` holds the program's
package, ``memory_bytes`` limits the address space. The function reads the other entries, and prints lines.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import sys
from itertools import product
from typing import Any, Final

#: The line that toulbar2's search prints when it is complete.
COMPLETE: Final = "bucketflow: complete"


def main() -> None:
    """Run the program of the standard input's job; the first line says that this process may be suspended."""
    if sys.platform == "linux":  # even a suspended process ends with its parent
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    print(flush=True)
    job = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    sys.path.append(job["folder"])
    globals()[job["program"]](job)


def count_clauses(job: dict[str, Any]) -> None:
    """Count with Ganak; print ``value`` and a hexadecimal number, or ``error`` and its message.

    Parameters
    ----------
    job : dict
        ``variables``: their number; ``clauses``: lists of literals as DIMACS has them; ``counted``: variables;
        ``weights``: pairs of a literal and its weight, None for a count; ``seed``.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # Ganak hands over counts as decimal digits
    try:
        import pyganak

        weights = job["weights"]
        counter = _counter(pyganak.Counter if weights is None else pyganak.WeightedCounter, job)
        for literal, weight in weights or ():
            counter.set_lit_weight(literal, weight)
        found = counter.count()
        if found == 0.0 and weights is not None and _counter(pyganak.Counter, job | {"counted": [1]}).count():
            print("error the sum is too small for a float", file=answers)
        else:
            print("value", hex(found) if weights is None else float(found).hex(), file=answers)
    except (MemoryError, RuntimeError, OverflowError) as error:
        print("error", " ".join((str(error) or type(error).__name__).split()), file=answers)
    answers.flush()
    os._exit(0)  # frees no table one by one


def _counter(kind: Any, job: dict[str, Any]) -> Any:
    counter = kind(seed=job["seed"])
    counter.new_vars(job["variables"])
    counter.add_clauses(job["clauses"])
    counter.set_sampling_set(job["counted"])
    return counter


def search_optimum(job: dict[str, Any]) -> None:
    """Search with toulbar2, which prints better assignments and bounds; then :data:`COMPLETE` if nothing is better.

    Parameters
    ----------
    job : dict
        ``dims``, ``tables`` (pairs of a scope and a flat list of costs, the last variable fastest), ``upper``
        (exclusive) and ``seed``.
    """
    from pytoulbar2 import pytb2

    pytb2.reinit()
    pytb2.option.verbose, pytb2.option.showSolutions, pytb2.option.seed = 0, 1, job["seed"]
    solver = pytb2.Solver()
    network = solver.wcsp
    try:
        network.updateUb(job["upper"])
        for v, d in enumerate(job["dims"]):
            network.makeEnumeratedVariable(f"x{v}", 0, d - 1)
        for scope, costs in job["tables"]:
            _post(network, job["dims"], scope, costs)
        network.sortConstraints()
        solver.solve()
    except pytb2.Contradiction:
        pass  # nothing below the cut-off is left
    if not pytb2.option.limited:
        print(COMPLETE, flush=True)


def _post(network: Any, dims: list[int], scope: tuple[int, ...], costs: list[float]) -> None:
    """Add a function: toulbar2 has one call for each number of variables, and lists tuples beyond three."""
    if len(scope) == 1:
        network.postUnaryConstraint(*scope, costs)
    elif len(scope) == 2:
        network.postBinaryConstraint(*scope, costs)
    elif len(scope) == 3:
        network.postTernaryConstraint(*scope, costs)
    else:
        place = network.postNaryConstraintBegin(list(scope), 0, len(costs) - costs.count(0.0))
        for states, cost in zip(product(*(range(dims[v]) for v in scope)), costs, strict=True):
            if cost:
                network.postNaryConstraintTuple(place, list(states), int(cost))
        network.postNaryConstraintEnd(place)


if __name__ == "__main__":
    main()
