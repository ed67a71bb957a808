"""All marginals of a model under evidence: the public function, and what it shares with compiled models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cluster.budget import peak_rss_bytes
from ..cluster.pool import Pool, SerialPool
from ..tasks.backend import compiler_pays
from ..tasks.messages import TwoSweeps
from .answer import fixed_value, objective
from .api import observed, plan_options
from .costs import Rates
from .errors import ModelError
from .execute import TASK_SECONDS
from .memory import step_bytes
from .model import Function, Model
from .options import Options
from .plan import Problem
from .pools import DaskPools
from .posteriors import Marginals
from .propagation import (
    Beliefs,
    Combiner,
    LeastCombiner,
    OneSum,
    SumCombiner,
    Target,
    all_states,
    build_sweeps,
    plan_propagation,
    slice_results,
    with_joints,
)
from .queries import Arithmetic, CostOptimum, Partition, optimum_arithmetic
from .reduce import Network, reduce_model
from .twoway import TwoWay

Array = NDArray[Any]
Names = Sequence[str] | str
Findings = Any

_THREADED_SECONDS = 0.05
# Less than what starting took.
_SMALL_BYTES = 1 << 25


@dataclass(frozen=True)
class Asked:
    """What is wanted, as indices of the model's variables and functions."""

    variables: tuple[int, ...]
    joints: tuple[tuple[int, ...], ...]
    families: tuple[int, ...]

    @property
    def involved(self) -> frozenset[int]:
        """All variables that some answer names."""
        return frozenset((*self.variables, *(v for joint in self.joints for v in joint)))


def marginals(
    model: Model,
    *,
    evidence: Findings = None,
    query_vars: Names = "all",
    joint: Iterable[Names] = (),
    families: bool = False,
    maximum: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Marginals:
    """Compute the posterior marginals of a model.

    Collection and distribution over one tree (Lauritzen and Spiegelhalter 1988; Shafer and Shenoy 1990;
    Darwiche 2003), without storing a clique.

    Parameters
    ----------
    model : Model
    evidence : mapping, path or None
        Variable name → state label or index, or → one likelihood a state (soft evidence); or a file.
    query_vars : "all" or sequence of str
        The variables whose marginals are wanted.
    joint : sequence of str, or several of them
        Sets of variables whose joint distribution is wanted.
    families : bool
        Whether the joint of every function's scope is wanted too.
    maximum : bool
        Max-marginals instead: for each state the best assignment that has it.
    progress : callable, optional
        Called with (bytes done, bytes planned).
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``,
        ``client`` and ``gpus=1``, as in :func:`bucketflow.solve`.

    Raises
    ------
    ModelError
        If the evidence or a name does not fit the model, or a sum over a cost network is asked for.
    BudgetError
        If no acceptable plan fits ``memory``.
    """
    start = time.perf_counter()
    if model.kind == "cost" and not maximum:
        raise ModelError("a cost network has no marginal probabilities; ask for its max-marginals")
    chosen = in_memory(**options)
    if chosen.gpu_count and maximum:
        raise ModelError("max-marginals are computed on CPUs; leave gpus out")
    hard, soft = split_evidence(model, evidence)
    asked = asked_of(model, query_vars, joint, families)
    network = reduce_model(with_likelihoods(model, soft), "optimum" if maximum else "partition", hard, asked.involved)
    targets = local_targets(network, asked)
    network = with_joints(network, targets) if network.feasible else network
    arithmetic = optimum_arithmetic(network) if maximum else Partition(network)
    plan = plan_for(network, arithmetic, targets, chosen) if network.leaves else None
    planned = time.perf_counter()
    beliefs = propagate(network, plan, arithmetic, chosen, progress)
    found = dressed(model, network, arithmetic, asked, beliefs)
    seconds = {"plan": planned - start, "run": time.perf_counter() - planned}
    return replace(found, plan=plan, seconds=seconds, peak_rss_bytes=peak_rss_bytes())


def in_memory(**options: Any) -> Options:
    """Check that nothing is asked for that propagation does not do: tables on disk, several GPUs."""
    chosen = Options(**options)
    given = [name for name in ("disk", "workdir") if getattr(chosen, name) is not None]
    if given:
        raise ModelError(f"marginals are computed in memory; {given[0]!r} does not apply")
    if chosen.gpus is not None and (chosen.gpu_count > 1 or chosen.scheduler or chosen.client or chosen.workers):
        raise ModelError("marginals are computed on one GPU of this machine; write gpus=1, without workers")
    return chosen


def split_evidence(model: Model, evidence: Findings) -> tuple[dict[int, int], dict[int, Array]]:
    """Separate observed states from likelihood vectors, both by variable index."""
    if not isinstance(evidence, Mapping):
        return observed(model, evidence), {}
    vectors = {
        name: e for name, e in evidence.items() if isinstance(e, Sequence | np.ndarray) and not isinstance(e, str)
    }
    hard = observed(model, {name: state for name, state in evidence.items() if name not in vectors})
    soft = {}
    for name, values in vectors.items():
        if name not in model.index:
            raise ModelError(f"evidence names {name!r}, which is not a variable of the model")
        soft[model.index[name]] = likelihood(model, model.index[name], values)
    return hard, soft


def likelihood(model: Model, variable: int, values: Any) -> Array:
    """Check a likelihood vector."""
    vector = np.asarray(values, dtype=np.float64)
    name, size = model.names[variable], model.dims[variable]
    if vector.shape != (size,):
        raise ModelError(f"the likelihood of {name!r} has {vector.size} values for {size} states")
    if not (np.isfinite(vector).all() and (vector >= 0.0).all()):
        raise ModelError(f"the likelihood of {name!r} has a value that is negative or not finite")
    return vector


def with_likelihoods(model: Model, soft: Mapping[int, Array]) -> Model:
    """Add soft evidence as one more function for each of its variables (Pearl 1988, virtual evidence)."""
    if not soft:
        return model
    if model.kind == "cost":
        raise ModelError("a cost network takes no likelihoods; observe a state instead")
    return replace(model, functions=(*model.functions, *(Function((v,), w) for v, w in soft.items())))


def asked_of(model: Model, query_vars: Names, joint: Iterable[Names], families: bool) -> Asked:
    """Turn names into indices."""
    names = model.names if query_vars == "all" else [query_vars] if isinstance(query_vars, str) else query_vars
    groups = list(joint)
    if groups and all(isinstance(name, str) for name in groups):
        groups = [tuple(name for name in groups if isinstance(name, str))]
    unknown = [n for group in (names, *groups) for n in group if n not in model.index]
    if unknown:
        raise ModelError(f"{unknown[0]!r} is not a variable of the model")
    joints = [tuple(dict.fromkeys(model.index[n] for n in group)) for group in groups]
    indices = tuple(range(len(model.functions))) if families else ()
    scopes = [f.scope for f in model.functions] if families else []
    every = dict.fromkeys((*joints, *(s for s in scopes if s)))
    return Asked(tuple(dict.fromkeys(model.index[n] for n in names)), tuple(every), indices)


def local_targets(network: Network, asked: Asked) -> list[Target]:
    """What has to be read from the tree: the parts of the asked sets that are left in the network."""
    sets = [(v,) for v in asked.variables] + list(asked.joints)
    targets = (local_part(network, variables) for variables in sets)
    return list(dict.fromkeys(t for t in targets if t))


def local_part(network: Network, variables: Iterable[int]) -> Target:
    """Local indices, ascending, of those variables that are still in the network."""
    local = network.local
    return tuple(sorted([local[v] for v in variables if v in local]))


def plan_for(network: Network, arithmetic: Arithmetic[Any], targets: Sequence[Target], options: Options) -> TwoWay:
    """Plan both sweeps; the machine is asked for its memory only where the plan needs more than next to nothing."""
    semiring = arithmetic.semiring
    problem = Problem(network.dims, network.scopes, semiring, semiring.itemsize, network.model.nbytes)
    if options.memory is None:
        small = plan_options(network, replace(options, memory=1 << 62))
        plan = plan_propagation(problem, targets, small, Rates())
        if plan.peak_bytes <= _SMALL_BYTES:
            return plan
    return plan_propagation(problem, targets, plan_options(network, options), Rates())


def propagate(
    network: Network,
    plan: TwoWay | None,
    arithmetic: Arithmetic[Any],
    options: Options,
    progress: Callable[[int, int], None] | None = None,
) -> Beliefs:
    """Run both sweeps, slice by slice, and add the functions without variables."""
    fixed = fixed_value(network)
    if fixed is None:
        return Beliefs(None, {})
    constant = fixed if isinstance(arithmetic, Partition | CostOptimum) else -fixed
    if plan is None:
        return Beliefs(constant, {})
    sweeps = build_sweeps(network, plan, arithmetic, compiler_pays(plan.cells))
    if options.gpu_count:
        from .gpu_marginals import propagate_on_gpu

        beliefs = propagate_on_gpu(plan, sweeps, options.memory_bytes)
        return beliefs if beliefs.total is None else replace(beliefs, total=beliefs.total + fixed)
    combiner = combiner_for(plan, arithmetic)
    with _pool(plan, options) as pool:
        for states, tables in _swept(plan, sweeps, pool, options, progress):
            total = arithmetic.total([tables[r] for r in plan.tree.roots])
            combiner.add(total, slice_results(plan, tables, states))
    beliefs = combiner.beliefs()
    return beliefs if beliefs.total is None else replace(beliefs, total=beliefs.total + constant)


def combiner_for(plan: TwoWay, arithmetic: Arithmetic[Any]) -> Combiner:
    """Choose how the slices of a query add up."""
    if isinstance(arithmetic, Partition) and plan.slices == 1:
        return OneSum(plan.dims)
    shapes = {target: tuple(plan.dims[v] for v in target) for target in plan.results}
    if isinstance(arithmetic, Partition):
        return SumCombiner(shapes)
    return LeastCombiner(shapes, float(arithmetic.semiring.zero))


def _swept(
    plan: TwoWay,
    sweeps: TwoSweeps[Any],
    pool: Pool,
    options: Options,
    progress: Callable[[int, int], None] | None,
) -> Any:
    """Yield the states and the tables of every slice."""
    threads = options.thread_count if plan.seconds > _THREADED_SECONDS else 1
    done = moved = 0
    if progress is not None:
        moved = sum(step_bytes(step, plan.tree.dims, plan.itemsize) for step in plan.steps)
    shared = pool.put(sweeps)
    calls = ((shared, states, threads if isinstance(pool, SerialPool) else 1) for states in all_states(plan))
    for states, tables in zip(all_states(plan), pool.stream(run_sweeps, calls), strict=True):
        done += moved
        if progress is not None:
            progress(done, moved * plan.slices)
        yield states, tables


def run_sweeps(sweeps: TwoSweeps[Any], states: Mapping[int, int], threads: int) -> dict[int, Any]:
    """Task: both sweeps of one slice."""
    return sweeps.run(states, threads=threads)


def _pool(plan: TwoWay, options: Options) -> AbstractContextManager[Pool]:
    if not options.distributed or plan.slices == 1 or plan.seconds < 2 * TASK_SECONDS:
        return nullcontext(SerialPool())
    return DaskPools(options)


def dressed(
    model: Model,
    network: Network,
    arithmetic: Arithmetic[Any],
    asked: Asked,
    beliefs: Beliefs,
    findings: Mapping[int, Array] | None = None,
) -> Marginals:
    """Turn beliefs over what was left of the model into answers over all of it.

    ``findings`` are likelihoods that were not known when the model was reduced.
    """
    findings = findings or {}
    maximum = not isinstance(arithmetic, Partition)
    loose = 0.0 if maximum else loose_log(network, findings)
    if beliefs.total is None or loose == -math.inf:
        return Marginals(model, "infeasible", maximum, log10_evidence=None if model.kind == "cost" else -math.inf)
    least, log10 = None, None
    if isinstance(arithmetic, CostOptimum):
        least = int(beliefs.total) + arithmetic.scale.offset
        if model.top is not None and least >= model.top:
            return Marginals(model, "infeasible", maximum)
    else:
        ln = -beliefs.total if maximum else beliefs.total + loose
        log10 = ln / math.log(10)

    def answer(variables: tuple[int, ...]) -> Array:
        table = expanded(network, variables, beliefs.tables, findings, maximum=maximum)
        if not maximum:
            return table
        return np.exp(-table) if least is None else costs_above(model, table, least)

    return Marginals(
        model,
        "ok",
        maximum,
        tables=_single_tables(network, asked.variables, beliefs.tables, answer),
        joint={tuple(model.names[v] for v in group): answer(group) for group in asked.joints},
        families={f: answer(model.functions[f].scope) for f in asked.families if model.functions[f].scope},
        log10_evidence=log10,
        value=None if least is None else objective(model, least),
    )


def _single_tables(
    network: Network,
    variables: Iterable[int],
    tables: Mapping[Target, Array],
    answer: Callable[[tuple[int, ...]], Array],
) -> dict[str, Array]:
    """Answer for each variable; those of probabilities with all states left are as they are."""
    names, local, whole = network.model.names, network.local, network.whole
    if network.query != "partition":
        return {names[v]: answer((v,)) for v in variables}
    return {names[v]: tables[(local[v],)] if v in whole else answer((v,)) for v in variables}


def costs_above(model: Model, above: Array, least: int) -> Array:
    """Turn costs above the least one into objective values; those that reach ``top`` are forbidden."""
    total = above + least
    if model.top is not None:
        total = np.where(total >= model.top, math.inf, total)
    scaled = total / 10.0**model.decimals
    return -scaled if model.maximize else scaled


def loose_log(network: Network, findings: Mapping[int, Array]) -> float:
    """Return ln of what the variables outside the network sum to: those without functions or with one state."""
    total = math.log(network.free_states)
    for v in findings:
        if v not in network.local:
            weight = findings[v][network.domains[v]].sum()
            total += math.log(weight / len(network.domains[v])) if weight > 0.0 else -math.inf
    return total


def expanded(
    network: Network,
    variables: tuple[int, ...],
    tables: Mapping[Target, Array],
    findings: Mapping[int, Array],
    *,
    maximum: bool,
) -> Array:
    """Spread a belief over all states of some of the model's variables.

    A pruned or unobserved state gets probability 0 (infinite energy); a variable without functions is uniform,
    or as found.
    """
    if len(variables) == 1 and not maximum and variables[0] not in network.local and variables[0] not in findings:
        return network.uniform[variables[0]].copy()
    outside = math.inf if maximum else 0.0
    target = local_part(network, variables)
    if len(variables) == len(target) == 1:
        (v,), table = variables, tables[target]
        if len(table) == network.model.dims[v]:
            return table
        spread = np.full(network.model.dims[v], outside)
        spread[network.domains[v]] = table
        return spread
    if len(variables) == 1 and not maximum:
        states = network.domains[variables[0]]
        weights = findings[variables[0]][states]
        spread = np.zeros(network.model.dims[variables[0]])
        spread[states] = weights / (weights.sum() or 1.0)
        return spread
    table = tables[target] if target else np.full((), 0.0 if maximum else 1.0)
    order = [target.index(network.local[v]) for v in variables if v in network.local]
    sizes = [len(network.domains[v]) for v in variables]
    shape = [n if v in network.local else 1 for v, n in zip(variables, sizes, strict=True)]
    inside = np.broadcast_to(table.transpose(order).reshape(shape), sizes)
    if not maximum:
        for axis, v in enumerate(variables):
            if v not in network.local:
                weights = findings[v][network.domains[v]] if v in findings else np.ones(sizes[axis])
                inside = inside * (weights / (weights.sum() or 1.0)).reshape([-1] + [1] * (len(sizes) - axis - 1))
    if sizes == [network.model.dims[v] for v in variables]:
        return np.array(inside)
    full = np.full([network.model.dims[v] for v in variables], outside)
    full[np.ix_(*(network.domains[v] for v in variables))] = inside
    return full
