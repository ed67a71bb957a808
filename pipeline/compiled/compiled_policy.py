"""Tuned numbers of compiled models: blocks of cases, on this machine and on devices. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class CompiledPolicy(Policy):
    """Numbers of compiled models; numbers of devices are measured with ``tests/bench/gpu_marginals.py``.

    Parameters
    ----------
    block_cells : int
        Approximate cells that a block of cases sweeps. Fewer cells do not hide the fixed cost of a step, and more cells
        leave the cache.
    observing_cells : int
        Cells of a batch over the compiled tree from which cases with observed states get separate trees. The loop for
        separate trees takes some seconds to compile, once.
    observed_saving : int
        Minimum ratio of cells between the compiled tree and a case's separate tree, whose cells are visited by several
        passes. Cases with a smaller ratio are answered over the compiled tree.
    least_observed_cells : int
        Cells that the separate tree of a case may always have.
    observed_variables : int
        Maximum variables of a model whose cases have separate trees. The time of finding an order is quadratic in them.
    device_bytes : int
        Maximum bytes of the tables of a group of cases on a device.
    device_block_seconds : float
        Minimum seconds of a block, because it is sent to a worker and its answers are sent back.
    device_factors_per_second : float
        Factors that a device multiplies in a second.
    answer_bytes : int
        Maximum bytes of the answers of a block. The answers of several blocks for each device are in memory together.
    device_start_seconds : float
        Approximate seconds until a further device is ready for its first cases. With a lower number, short batches
        start devices that take longer than they save.
    device_reading_seconds : float
        Python's seconds for the answer of one variable in a block. Devices share the interpreter, so they do not save
        this time.
    joint_states : int
        Maximum states of a joint that was not requested when the model was compiled.
    loading_seconds : float
        Seconds of computing after which compiled loops are loaded for small models too.
    searching_seconds : float
        Predicted total seconds of propagations after which a background search for a better tree begins. It takes as
        long.
    longest_search_seconds : float
        Maximum seconds of a background search. Searches repeat, each longer than the last, until a search takes this
        long. On large networks, the better trees are 2 to 3 times faster.
    least_saved : float
        Minimum fraction of a propagation that a new plan must save to replace the old plan.
    afresh_seconds : float
        Seconds of a question without a compiled model, in addition to its propagation: evidence, reduction and plan of
        a network of about ten variables.
    """

    block_cells: int = 1 << 25
    observing_cells: int = 1 << 30
    observed_saving: int = 8
    least_observed_cells: int = 1 << 16
    observed_variables: int = 4096
    device_bytes: int = 8 << 30
    device_block_seconds: float = 0.02
    device_factors_per_second: float = 5e11
    answer_bytes: int = 1 << 27
    device_start_seconds: float = 0.5
    device_reading_seconds: float = 8e-6
    joint_states: int = 1 << 20
    loading_seconds: float = 0.5
    searching_seconds: float = 0.5
    longest_search_seconds: float = 3.0
    least_saved: float = 0.05
    afresh_seconds: float = 0.01
