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
        Cells that a block of cases sweeps, about: enough to hide what a step costs, few enough to stay in the
        cache.
    observing_cells : int
        Cells of a batch, over the compiled tree, from which cases of observed states have trees of their own; the loop
        for that takes some seconds to compile, once.
    observed_saving : int
        Minimum ratio of cells between the compiled tree and this tree, because each cell is visited by several passes.
        Other cases are answered alone over the compiled tree.
    least_observed_cells : int
        Entries that the tables of a case may have all the same.
    observed_variables : int
        Most variables of a model whose cases have trees of their own: finding an order takes their square.
    device_bytes : int
        Maximum bytes of the tables of these cases.
    device_block_seconds : float
        Shortest block, beside its way to a worker and back.
    device_factors_per_second : float
        Factors that a device multiplies in a second.
    answer_bytes : int
        Most bytes of the answers of a block: several answers for each device may be on their way or wait for
        those before them.
    device_start_seconds : float
        Seconds that further devices take to be used for the first time, about: 2,000 cases of munin3 took 0.46 s on one
        H200, and 0.72 where three more were started for them, which compute a quarter each.
    device_reading_seconds : float
        Seconds that Python takes to name and place the answer of a variable in a block; devices share the interpreter.
    joint_states : int
        Maximum states of a joint that was not compiled in; each state is a case or an entry of a case.
    loading_seconds : float
        Seconds of computing after which compiled loops are loaded for small models too.
    searching_seconds : float
        After propagations with this predicted total time, a better tree is searched for beside them, for the same time,
    longest_search_seconds : float
        again whenever the total has grown by this factor, until a search took this long. On large networks, the better
        trees are 2 to 3 times faster.
    least_saved : float
        A plan that saves a smaller share of a propagation is left alone.
    afresh_seconds : float
        Seconds that an uncompiled question takes beside its propagation: evidence, reduction and plan of a network of
        some ten variables.
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
