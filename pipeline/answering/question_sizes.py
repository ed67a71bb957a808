"""Sizes of a question before anything is planned: cells of a sweep, and the memory of its tables."""

from __future__ import annotations

import math

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.number_limits import CELL_BYTES
from ..cost_networks.cost_network import COPIES, has_exact_costs
from ..machine.resources import Resources
from ..options import Options, parse_size
from ..orders.depth_first import bucket_parents
from ..orders.min_fill import min_fill_order
from ..preprocessing.preprocess import Network
from .question import Question

# A cell of a device takes this part of the time of one of this machine's cores.
_DEVICE_SPEED = 1 << 10
# Minimum memory of engines for optima.
_LEAST_BYTES = 1 << 22
# Tables below this size are not compared with the free memory, because asking for the free memory takes time.
_SMALL_BYTES = 1 << 30


def soon_swept_cells(question: Question, options: Options, most: int) -> float:
    """Return of how many cells at most networks are swept as soon as they prove not easy: ``most`` of a core's."""
    speed = 1 if options.gpus is None else _DEVICE_SPEED
    return speed * most_whole_cells(question, options, most)


def most_whole_cells(question: Question, options: Options, most: int) -> int:
    """Return the maximum cells of a sweep without slices: ``most``, or fewer under a memory limit."""
    return most if options.memory is None else min(most, spare_bytes(question, options) // CELL_BYTES)


def is_whole(question: Question, options: Options, cells: float, largest_part: int) -> bool:
    """Whether a sweep of this many cells of buckets probably fits in memory without slices.

    The largest table in memory is assumed to be the largest message of the first order divided by this number.
    """
    if options.memory is None or cells * CELL_BYTES <= (spare := spare_bytes(question, options)):
        return True
    network = question.reduced[0]
    order = min_fill_order(network.dims, network.scopes, options.seed)
    _, messages = bucket_parents(len(network.dims), network.scopes, order)
    largest = max((math.prod([network.dims[v] for v in message]) for message in messages), default=1)
    return largest * CELL_BYTES <= largest_part * spare


def tables_fit(question: Question, options: Options) -> bool:
    """Whether bounds have memory for all dense tables of the remaining model."""
    needed = _least_bytes(question.reduced[0])
    if options.memory is None:
        return needed < _SMALL_BYTES or needed <= default_memory_bytes()
    return needed <= parse_size(options.memory) - question.model.nbytes


def spare_bytes(question: Question, options: Options) -> int:
    """Return the memory of this machine beyond the model."""
    return max(Resources(options.without_folder()).host_bytes - question.model.nbytes, 0)


def rounded(question: Question) -> bool:
    """Whether costs are so large that only a sweep is exact."""
    return question.model.kind == "cost" and not has_exact_costs(question.reduced[0])


def _least_bytes(network: Network) -> int:
    """Minimum memory of bounds: copies of the tables, and some rows or nodes."""
    return 2 * COPIES * 8 * network.cells + _LEAST_BYTES
