"""The planner's input: a problem as sizes, the caller's options, and the tuned numbers of plans. Pure: no values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import FAR_INTEGER
from ...tasks.steps.policy import Policy
from ...tasks.steps.semiring import Semiring
from ..models.query import TreeKind
from ..orders.tried_orders import OrderName
from ..trees.tree import Target

# Loading a device's libraries and kernels in this process, in seconds.
DEVICE_LOADING_SECONDS: Final = 1.0


@dataclass(frozen=True)
class PlanningPolicy(Policy):
    """The numbers behind parts for workers and further trees.

    Parameters
    ----------
    sent_bytes : int
        A message between workers; a larger one costs more to send than it saves.
    part_seconds, start_seconds : float
        Seconds to send a part, to schedule its four tasks, to fetch their results, and to start.
    device_start_seconds : float
        Starting processes for the GPUs of this machine.
    device_begin_seconds : float
        Seconds until a further GPU computes that this process has not used before.
    device_join_seconds : float
        Seconds that each question takes longer because a further GPU gets its tables and launches.
    device_step_seconds, device_slice_seconds : float
        Seconds of Python for a step of a slice whose tables have scales, and for a slice of other tables, whose steps
        are one launch: threads share the interpreter, so further GPUs do not divide them.
    device_least_gain : float
        Further GPUs that save less than this share of the time are not used.
    device_group_seconds : float
        Predicted seconds of a group of slices where threads of this process use several GPUs.
    device_link_bytes_per_second : float
        Rate between a GPU and the host, for tables that a part on a GPU leaves for other parts or for the way back.
    submit_seconds : float
        Seconds of a Dask task on its worker, and of its submission by the client.
    """

    sent_bytes: int = 1 << 28
    part_seconds: float = 0.05
    start_seconds: float = 0.5
    device_start_seconds: float = 5.0
    device_begin_seconds: float = 0.2
    device_join_seconds: float = 0.02
    device_step_seconds: float = 3e-5
    device_slice_seconds: float = 1e-4
    device_least_gain: float = 0.1
    device_group_seconds: float = 0.01
    device_link_bytes_per_second: float = 20e9
    submit_seconds: float = 5e-4


UNLIMITED_BYTES: Final = FAR_INTEGER
"""The budget of a plan that may use any amount of memory."""


@dataclass(frozen=True)
class PlanOptions:
    """The caller's options for a plan.

    Parameters
    ----------
    tree : {"refined", "bucket", "junction"}
    order : str or sequence of int
        A heuristic's name, or the local variables in elimination order.
    order_seconds : float or None
        CPU time for the search of orders and trees; None spends what the predicted run time justifies.
    seed : int
    memory_bytes : int
        Peak bytes that the plan may need.
    decode : bool
        Whether an assignment has to be found after the sweep, which keeps messages alive.
    kept : bool
        Whether all messages are kept and none is recomputed, because many assignments are read after the sweep.
    threads : int
        Threads that share a large step, each with a workspace of its own.
    device : bool
        Whether steps run on a GPU. Its kernels join small inputs on the fly, and hold temporaries meanwhile.
    by_rows : bool
        Whether tables are sparse: plans of any size, with table sizes known only when the tables are made.
    children : tuple of tuple of int, optional
        The tree of an earlier plan, to be used again instead of a search.
    stages : tuple, optional
        Of an earlier plan that spills, to be used again: head, boxed and chunked variables of each.
    """

    tree: TreeKind = "refined"
    order: OrderName | Sequence[int] = "auto"
    order_seconds: float | None = None
    seed: int = 0
    memory_bytes: int = UNLIMITED_BYTES
    decode: bool = False
    kept: bool = False
    threads: int = 1
    device: bool = False
    by_rows: bool = False
    children: tuple[tuple[int, ...], ...] | None = None
    stages: tuple[tuple[int, tuple[int, ...], frozenset[int]], ...] | None = None


@dataclass(frozen=True)
class Problem:
    """The planner's input: sizes, never values.

    Parameters
    ----------
    dims : tuple of int
        Domain sizes.
    scopes : tuple of tuple of int
        Scopes of the leaf tables.
    semiring : Semiring
    itemsize : int
        Bytes of one value in every table.
    model_bytes : int
        Bytes of the model itself while the plan runs.
    targets : tuple of tuple of int or None
        Sets of variables whose joint beliefs are wanted, each within the scope of some leaf, ascending: the plan goes
        both ways. None for one sweep.
    rows : tuple of int or None
        Maximum number of allowed assignments of each leaf table; None if not counted.
    functions, evaluated : int
        Numbers of functions in the leaf tables and in the model, which evaluates assignments, for predictions.
    last : frozenset of int
        Variables that are eliminated after all others.
    keeps_last : bool
        Whether the last variables are not eliminated, so that tables over them remain. Each then has a scope of its
        own, which no step reads.
    """

    dims: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    semiring: Semiring
    itemsize: int
    model_bytes: int = 0
    targets: tuple[Target, ...] | None = None
    rows: tuple[int, ...] | None = None
    functions: int = 0
    evaluated: int = 0
    last: frozenset[int] = frozenset()
    keeps_last: bool = False


def sliced_dims(dims: Sequence[int], sliced: Iterable[int]) -> tuple[int, ...]:
    """Return domain sizes with one state for every sliced variable."""
    sizes = list(dims)
    for v in sliced:
        sizes[v] = 1
    return tuple(sizes)
