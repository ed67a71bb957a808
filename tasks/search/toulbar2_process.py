"""A process of its own in which toulbar2 searches for an optimum: run as a script, it imports nothing of this package.

It reads one pickled dictionary from the standard input: ``dims``, ``tables`` (pairs of a scope and a flat list of
costs, the last variable fastest), ``upper`` (exclusive), ``memory_bytes`` and ``seed``. toulbar2 itself prints better
assignments and bounds, and the last line is :data:`COMPLETE` if nothing below the best total is left.
"""

from __future__ import annotations

import ctypes
import pickle
import resource
import signal
import sys
from itertools import product
from typing import Any, Final

#: The line that says that this process ends with its parent, so that it may be suspended.
BEGUN: Final = "bucketflow: begun"
#: The line that says that the search is complete.
COMPLETE: Final = "bucketflow: complete"
#: Option of ``prctl`` on Linux: the signal that this process receives when its parent ends.
_SIGNAL_OF_PARENTS_DEATH: Final = 1


def _end_with_parent() -> None:
    """Let the system kill this process as soon as its parent has ended, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)


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


def main() -> None:
    """Search the network of the standard input until the proof is complete."""
    _end_with_parent()
    print(BEGUN, flush=True)
    given = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_AS, (given["memory_bytes"],) * 2)
    from pytoulbar2 import pytb2

    pytb2.reinit()
    pytb2.option.verbose, pytb2.option.showSolutions, pytb2.option.seed = 0, 1, given["seed"]
    solver = pytb2.Solver()
    network = solver.wcsp
    try:
        network.updateUb(given["upper"])
        for v, d in enumerate(given["dims"]):
            network.makeEnumeratedVariable(f"x{v}", 0, d - 1)
        for scope, costs in given["tables"]:
            _post(network, given["dims"], scope, costs)
        network.sortConstraints()
        solver.solve()
    except pytb2.Contradiction:
        pass  # nothing below the cut-off is left
    if not pytb2.option.limited:
        print(COMPLETE, flush=True)


if __name__ == "__main__":
    main()
