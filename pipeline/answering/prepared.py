"""A question that is planned and ready to run: the one place where its way is chosen, up the tree or both ways."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...cluster.pool import begun_devices
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import RowPolicy
from ...tasks.steps.semiring import Semiring
from ..budget.fit import Prices, fitted
from ..errors import BudgetError, ModelError
from ..machine.rates import cached_rates, is_worth_measuring, measured_disk_rate
from ..machine.resources import Resources
from ..orders.tree_search import HOPELESS_SECONDS
from ..plans.plan import Plan, remembered_with_rates
from ..plans.planner import HopelessError, Planner
from ..plans.problem import UNLIMITED_BYTES, PlanningPolicy, PlanOptions, Problem
from ..preprocessing.leaf_rows import leaf_rows, possible
from ..preprocessing.preprocess import Network
from ..queries.arithmetic import Arithmetic, ScaledPartition, arithmetic_for, optimum_arithmetic
from ..trees.costs import Rates
from ..trees.tree import Target, Tree
from .placement import divided, verify_kept, verify_workers_memory
from .question import Question

if TYPE_CHECKING:
    from ..budget.device_fit import HostBudget
    from ..queries.counting import CountPlan

#: Rows joined in one second.
ROWS_PER_SECOND: Final = RowPolicy().rows_per_second
# Less than what starting took.
_SMALL_BYTES = 1 << 25
# Where no plan of all cells fits, rows are joined for about a minute.
PATIENCE: Final = 3e8
# Where all cells are asked for, for a second or two.
SHORT_PATIENCE: Final = 1.5e7


@dataclass(frozen=True)
class Prepared:
    """A question that is planned and ready to run.

    Parameters
    ----------
    question : Question
    resources : Resources
        Where it runs; without devices where those cannot compute it.
    network : Network
    arithmetic : Arithmetic
    problem : Problem
    prices : Prices or None
        None where nothing is left to eliminate.
    seconds : float
        Spent on preprocessing and planning.
    stored : mapping or None
        The stored facts of the plan in a run directory.
    why_rows : str
        Why tables are rows, if they are.
    most_work : float
        Rows that joins may have.
    most_primes : float
        A count that needs more primes ends after its first sweep, and is priced again.
    notes : tuple of str
        What the caller should know of the planning.
    """

    question: Question
    resources: Resources
    network: Network
    arithmetic: Arithmetic[Any]
    problem: Problem
    prices: Prices | None = None
    seconds: float = 0.0
    stored: Mapping[str, Any] | None = None
    why_rows: str = ""
    most_work: float = inf
    most_primes: float = inf
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan | None:
        """The plan that runs."""
        return self.prices.chosen if self.prices else None

    @property
    def count_plan(self) -> CountPlan:
        """How the possible assignments of the network are counted."""
        return self.question.chained.count_plan

    @property
    def memory_bytes(self) -> int:
        """The budget of the model and the tables of a task."""
        return self.stored["memory_bytes"] if self.stored else self.resources.memory_bytes


def known_rates(semiring: Semiring) -> Rates:
    """Return the known rates of this machine, without a measurement."""
    return cached_rates(semiring) or Rates()


def prepare(
    question: Question,
    resources: Resources,
    stored: Mapping[str, Any] | None = None,
    rates: Callable[[Semiring], Rates] = known_rates,
    patient: bool = True,
) -> Prepared:
    """Preprocess and plan a question.

    Parameters
    ----------
    stored : mapping, optional
        The plan of an earlier run, to be made again.
    rates : callable
        This machine's rates for a semiring, for predictions.
    patient : bool
        Whether joins by rows may take about a minute where no plan of all cells fits.

    Raises
    ------
    BudgetError
        If no acceptable plan fits the budgets.
    """
    start = time.perf_counter()
    found = replace(unplanned(question, resources), stored=stored)
    if found.network.leaves and len(found.problem.last) < len(found.network.dims):
        found = _with_plan(found, rates, patient)
        verify_kept(found.plan, resources)
    return replace(found, seconds=time.perf_counter() - start)


def unplanned(question: Question, resources: Resources) -> Prepared:
    """Preprocess a question, and choose its numbers."""
    network, targets = question.chained.reduced
    if question.outer is not None:
        return _unplanned_inner(question, resources, network)
    arithmetic = arithmetic_for(network)
    if targets is not None and not arithmetic.fits_doubles:
        resources = resources.without_devices()
    return Prepared(question, resources, network, arithmetic, problem_of(network, arithmetic, targets))


def _unplanned_inner(question: Question, resources: Resources, network: Network) -> Prepared:
    """Prepare the elimination of all variables except the outer variables. It runs in this process.

    Raises
    ------
    ModelError
        If tables of rows were asked for.
    """
    if resources.asked.representation == "rows":
        raise ModelError("the inner sum or maximum needs dense tables; leave out representation rows")
    assert question.outer is not None
    last = frozenset([local for v, local in network.local.items() if v in question.outer])
    summed = question.query == "mmap"
    arithmetic: Arithmetic[Any] = ScaledPartition(network) if summed else optimum_arithmetic(network)
    problem = problem_of(network, arithmetic, None)
    scopes = (*problem.scopes, *[(v,) for v in sorted(last)])
    problem = replace(problem, scopes=scopes, last=last, keeps_last=True)
    return Prepared(question, resources.in_this_process().without_devices(), network, arithmetic, problem)


def _with_plan(prepared: Prepared, rates: Callable[[Semiring], Rates], patient: bool) -> Prepared:
    """Plan by rows where that was asked for, or where all cells are refused and few of them possible."""
    asked, stored = prepared.resources.asked, prepared.stored
    if asked.representation == "rows" or (stored and stored.get("rows")):
        return planned(by_rows(prepared, leaf_rows(prepared.network), "as was asked"), rates)
    try:
        return planned(prepared, rates)
    except BudgetError as refused:
        if stored or asked.representation == "dense" or asked.fit != "auto" or prepared.problem.keeps_last:
            raise
        from ..budget.rows_fit import is_sparse
        from ..plans.row_bounds import expected_work

        counts = leaf_rows(prepared.network)
        why = f"because {possible(prepared.network, counts)} and the dense sweep was refused: {refused}"
        rows = by_rows(prepared, counts, why, PATIENCE if patient else SHORT_PATIENCE)
        tree = refused.tree if isinstance(refused, HopelessError) else None
        vain = tree is not None and expected_work(tree, counts) > RowPolicy.current().hopeless_ratio * rows.most_work
        if vain or not is_sparse(rows.problem):
            raise
        return planned(rows, rates, tree)


def by_rows(prepared: Prepared, rows: tuple[int, ...], why: str, most_work: float = inf) -> Prepared:
    """Return a prepared question with sparse tables, not planned. ``rows`` are the maximum rows of the leaves."""
    return replace(
        prepared, problem=replace(prepared.problem, rows=rows), why_rows=why, most_work=most_work, prices=None
    )


def planned(prepared: Prepared, rates: Callable[[Semiring], Rates], tree: Tree | None = None) -> Prepared:
    """Choose the way, or make the stored plan again; predict it, and cut into parts what workers share.

    Parameters
    ----------
    tree : Tree, optional
        One that a search found, for tables by rows.
    """
    problem, resources, stored = prepared.problem, prepared.resources, prepared.stored
    if stored:
        from ..budget.rows_fit import stored_plan

        prices = Prices(stored_plan(planner_of(prepared, stored["memory_bytes"]), stored))
    elif problem.rows is not None:
        prices = _rows_prices(prepared, tree)
    else:
        prices = cheapest_way(prepared)
    plan, both_ways = prices.chosen, problem.targets is not None
    if not plan.device:
        resources = resources.without_devices()
    if problem.rows is not None:
        known = Rates()
    elif not plan.device:
        known = rates(problem.semiring) if is_worth_measuring(plan.seconds) else Rates()
    else:
        known = Rates() if both_ways else resources.device_rates(problem.semiring).rates
    if known != Rates() and (stored or not plan.device):
        plan = remembered_with_rates(plan, known)
    if not stored or plan.slices == 1:  # slices stay in the groups that have receipts
        plan = divided(plan, resources, known, lambda: prepared.memory_bytes)
    verify_workers_memory(plan, resources, bool(stored))
    if prepared.question.query == "count" and not problem.keeps_last:
        from ..queries.counting import CountEstimate
        from .counts import counted_plan

        # uniform samples sweep a network of a count by their own arithmetic, once
        if isinstance(prepared.arithmetic, CountEstimate):
            longest = min(prepared.most_work / ROWS_PER_SECOND, HOPELESS_SECONDS)
            plan = counted_plan(plan, prepared.count_plan, known, prepared.memory_bytes, longest)
    return replace(prepared, resources=resources, prices=replace(prices, chosen=plan))


def _rows_prices(prepared: Prepared, tree: Tree | None) -> Prices:
    """Plan by rows, where a spill was asked for with tables on disk."""
    from ..budget.rows_fit import rows_plan, with_stored_rows

    resources = prepared.resources
    planner = planner_of(prepared, resources.memory_bytes)
    plan = rows_plan(planner, tree, prepared.most_work)
    if resources.asked.fit in ("spill", "store"):
        return Prices(with_stored_rows(plan, resources.memory_bytes))
    asked, fits = resources.asked, plan.peak_bytes <= resources.memory_bytes
    if fits or asked.fit != "auto" or asked.disk_bytes == 0 or plan.device:
        plan = replace(plan, stored_bytes=0, most_stored_bytes=0)
    return Prices(plan)


def cheapest_way(prepared: Prepared) -> Prices:
    """Choose how dense tables run: whole, in slices or from disk, on the cores of this machine or on a device.

    For marginals, the memory of the machine is measured only if the plan needs more than a small part of it.

    Parameters
    ----------
    prepared : Prepared
        The question with its network, tree problem and resources.

    Raises
    ------
    BudgetError
        If no way fits in memory and on disk.
    """
    resources, problem = prepared.resources, prepared.problem
    asked, both_ways = resources.asked, problem.targets is not None
    if both_ways and asked.memory is asked.gpu_memory is None and asked.fit != "spill":
        # a refusal names the memory that there is
        with suppress(BudgetError):
            plan = planner_of(prepared, UNLIMITED_BYTES).whole(_end_search)
            if plan.peak_bytes <= _SMALL_BYTES:
                return Prices(plan)
    if asked.remote and asked.memory is None and asked.gpus is None:
        with suppress(BudgetError):
            here = _fitted_on_cores(prepared, resources.host_bytes)
            # a plan that needs next to no memory runs anywhere, and no worker is asked
            if here.chosen.peak_bytes <= _SMALL_BYTES:
                return here
        if both_ways:  # one propagation runs in this process
            return _fitted_on_cores(prepared, min(resources.memory_bytes, resources.host_bytes))
    planner = planner_of(prepared, resources.memory_bytes)
    if not planner.options.device:
        return _fitted_on_cores(prepared, resources.memory_bytes)
    from ..budget.device_fit import fitted_for_device, fitted_propagation_for_device

    if both_ways:
        # a run directory keeps slices in their groups, and whole propagations
        devices = 1 if asked.folder is not None or asked.tasks == "steps" else resources.gpu_count
        begun = _begin_seconds(resources)
        return fitted_propagation_for_device(
            planner, asked.fit, lambda: _around(resources), devices, begun, parts=resources.distributed
        )
    device = resources.device_rates(problem.semiring)
    around = _around(resources, link_rate=device.link_bytes_per_second)
    planner, begun = replace(planner, rates=device.rates), _begin_seconds(resources)
    return fitted_for_device(planner, asked.fit, around, resources.gpu_count, begun, parts=resources.distributed)


def _fitted_on_cores(prepared: Prepared, memory_bytes: int) -> Prices:
    """Choose how tables of all cells run on cores, within a budget."""
    resources, asked = prepared.resources, prepared.resources.asked
    planner = planner_of(prepared, memory_bytes)
    return fitted(planner, asked.fit, resources.disk_bytes, partial(measured_disk_rate, asked.folder))


def _begin_seconds(resources: Resources) -> float:
    """Return the seconds until all requested GPUs compute. GPUs of a cluster are already running."""
    if resources.asked.remote or begun_devices() >= resources.gpu_count:
        return 0.0
    return PlanningPolicy.current().device_begin_seconds


def _end_search(tree: Tree) -> None:
    """End a search that takes longer than asking the machine for its memory."""
    raise BudgetError("the short search found no small plan")


def problem_of(network: Network, arithmetic: Arithmetic[Any], targets: Sequence[Target] | None) -> Problem:
    """Return the planner's problem."""
    semiring, goals = arithmetic.semiring, None if targets is None else tuple(targets)
    return Problem(
        network.dims,
        network.scopes,
        semiring,
        semiring.itemsize,
        network.model.nbytes,
        goals,
        functions=sum([len(leaf.functions) for leaf in network.leaves]),
        evaluated=len(network.model.functions),
    )


def _around(resources: Resources, **link: float) -> HostBudget:
    """Return the budget of the host for tables that leave a device. They are files if other processes must see them."""
    from ..budget.device_fit import HostBudget

    asked = resources.asked
    rate = partial(measured_disk_rate, asked.folder)
    files = asked.folder is not None or asked.remote
    return HostBudget(resources.task_bytes, files, resources.disk_bytes, rate, **link)


def planner_of(prepared: Prepared, memory_bytes: int) -> Planner:
    """Return the planner of a question for a memory budget, with the caller's options."""
    arithmetic, resources = prepared.arithmetic, prepared.resources
    asked = resources.asked
    order: Any = asked.order
    if not isinstance(order, str):
        order = local_order(arithmetic.network, order)
        _verify_last(prepared, order)
    options = PlanOptions(
        tree=asked.tree,
        order=order,
        order_seconds=asked.order_time,
        seed=asked.seed,
        memory_bytes=memory_bytes,
        decode=arithmetic.decodes and not arithmetic.keeps and not prepared.problem.keeps_last,
        kept=arithmetic.keeps,
        threads=1 if resources.distributed else resources.threads,
        device=asked.gpus is not None,
    )
    return Planner(prepared.problem, options)


def _verify_last(prepared: Prepared, order: Sequence[int]) -> None:
    """Refuse an order that eliminates one of the variables which are to stay before one of the others."""
    network, last = prepared.network, prepared.problem.last
    if early := [v for v in order[: len(order) - len(last)] if v in last]:
        name = network.model.names[network.variables[early[0]]]
        raise ModelError(
            f"the order eliminates {name!r} too early; give the variables of project or maximize after all others"
        )


def local_order(network: Network, names: Sequence[str]) -> list[int]:
    """Turn an order given by names into local variables; it must name all that are left to eliminate.

    Variables of chains that stand for wide functions, which have no names for users, come last.
    """
    model = network.model
    unknown = [name for name in names if name not in model.index]
    if unknown:
        model.variable(unknown[0], "the order names")
    if len(set(names)) < len(names):
        raise ModelError("the order names a variable twice")
    listed = [network.local[model.index[n]] for n in names if model.index[n] in network.local]
    own = len(model.names) - model.hidden
    listed += [local for local, v in enumerate(network.variables) if v >= own]
    missing = set(range(len(network.dims))) - set(listed)
    if missing:
        name = model.names[network.variables[min(missing)]]
        raise ModelError(f"the order omits {len(missing)} variables, {name!r} among them")
    return listed
