"""Which optima are swept at once, without a thought of bounds."""

from __future__ import annotations

from dataclasses import replace
from os.path import exists

from ...cluster.memory import default_memory_bytes
from ..cost_networks.cost_network import cost_network
from ..machine.resources import Resources
from ..options import Options, ProofOptions, parse_size
from ..orders.depth_first import sweep_cells
from ..preprocessing.preprocess import Network, fixed_value
from .question import Question

# A sweep of so many cells is over before anything else has begun; of so many where memory is so limited that not all
# of them fit, as it may take slices then.
_QUICK_CELLS, _QUICK_IN_SLICES = 1 << 28, 1 << 25
_CELL_BYTES = 8
# So many times as many are swept as soon as a glance of bounds has not closed the gap.
_SOON = 1 << 4
#: Preparation has the network's tables so many times, 8 bytes a cell.
COPIES = 8
# Ways that find an optimum want more than nothing.
_LEAST_BYTES = 1 << 22
# Nobody is asked whether there is so little memory.
_SMALL_BYTES = 1 << 30


def is_swept(question: Question, options: Options, effort: ProofOptions) -> bool:
    """Whether every cell is swept, without a thought of bounds."""
    by_rows = options.representation == "rows" and effort.method == "auto"
    if question.query != "optimum" or ((effort.method == "dense" or by_rows) and not effort.limited):
        return True
    network, _ = question.reduced
    if fixed_value(network) is None or not network.leaves:
        return True
    if effort.limited or effort.method != "auto":
        at_leisure = effort.time is None and effort.gap is None and effort.method in ("auto", "dense")
        return at_leisure and _rounded(question)
    plain = options.order == "auto" and options.tree == "refined" and options.fit == "auto"
    quick = min(_QUICK_CELLS, max(most_whole_cells(question, options, _QUICK_CELLS), _QUICK_IN_SLICES))
    if not plain or stored_plan(options) or sweep_cells(network.dims, network.scopes, options.seed) <= quick:
        return True
    return not tables_fit(question, options) or _rounded(question)


def soon_swept_cells(question: Question, options: Options) -> int:
    """Return of how many cells at most networks are swept as soon as they prove not easy."""
    return most_whole_cells(question, options, _SOON * _QUICK_CELLS)


def most_whole_cells(question: Question, options: Options, most: int) -> int:
    """Return how many cells are swept without slices, whatever their tables: ``most``, or as many as a limit takes."""
    return most if options.memory is None else min(most, spare_bytes(question, options) // _CELL_BYTES)


def tables_fit(question: Question, options: Options) -> bool:
    """Whether bounds have memory for the tables of what is left of the model, all dense."""
    needed = _least_bytes(question.reduced[0])
    if options.memory is None:
        return needed < _SMALL_BYTES or needed <= default_memory_bytes()
    return needed <= parse_size(options.memory) - question.model.nbytes


def spare_bytes(question: Question, options: Options) -> int:
    """Return what a model leaves of this machine's memory."""
    return max(Resources(replace(options, workdir=None)).host_bytes - question.model.nbytes, 0)


def _rounded(question: Question) -> bool:
    """Whether costs are so large that only a sweep is exact."""
    return question.model.kind == "cost" and not cost_network(question.reduced[0])[1].exact


def stored_plan(options: Options) -> bool:
    """Whether a run directory holds a plan of a sweep."""
    if options.folder is None or not exists(options.folder / "plan.json"):
        return False
    from .run_folder import opened

    with opened(options.folder) as rundir:
        stored = rundir.read_plan()
    return stored is not None and stored["plan"] is not None


def _least_bytes(network: Network) -> int:
    """What bounds take at least: copies of the tables, and some rows or nodes."""
    return 2 * COPIES * 8 * network.cells + _LEAST_BYTES
