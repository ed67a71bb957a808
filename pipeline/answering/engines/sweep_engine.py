"""The sweep: every cell of all tables, whole, in slices or spilled, on this machine, its devices or workers."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from ....tasks.compiler.working_time import working_seconds
from ....tasks.gpu.cold_kernels import AVOIDED_START
from ....tasks.gpu.memory import LongStepError
from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import CELL_BYTES
from ....tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT
from ...errors import BudgetError, format_bytes
from ...machine.resources import Resources
from ...orders.depth_first import sweep_cells
from ...orders.last_variables import cells_left, trees_with_last
from ...orders.min_fill import least_width
from ...orders.tree_search import TreeSearch
from ...plans.plan import MorePrimesError, Plan, with_primes
from ...plans.problem import UNLIMITED_BYTES
from ...plans.tree_planner import TreePlanner
from ...preprocessing.leaf_rows import is_listed
from ...preprocessing.preprocess import Network
from ...results.remaining_time import ProgressEvent
from ...trees.costs import Rates, gpu_rates, residue_rates, tree_cost
from ...trees.tree import Tree
from ..placement import compile_seconds_of, with_less_device_memory
from ..prepared import Prepared, planner_of, prepare, unplanned
from ..question import is_whole, spare_bytes
from ..row_trials import all_cells_seconds, in_slices
from ..running import Answer, in_run_folder, in_temporary_folder, planned_in, written
from .engine import Stop, TurnEnded
from .engine_options import Certainty, Device, EnginePrice, Estimate
from .request import QueryRequest


class _EndedError(Exception):
    """Another engine answered first."""


@dataclass
class SweepEngine:
    """A question as a sweep, which is priced better and better before it runs."""

    request: QueryRequest
    prepared: Prepared | None = None
    in_folder: bool = True
    why_host: str = ""
    compile_seconds: float = 0.0

    def estimate(self) -> Estimate:
        """Price the buckets of an order that is found at once."""
        request = self.request
        if request.is_trivial or request.has_stored_plan:
            return EnginePrice(0.0, certainty="planned")
        if not self._may_bound and (needed := CELL_BYTES * self._cells_left) > request.resources.host_bytes:
            gone = len(request.network.dims) - len(self._last(request.network))
            return self._advised(
                BudgetError(
                    f"the problem that remains once {gone} variables are eliminated needs {format_bytes(needed)}, "
                    f"allowed {format_bytes(request.resources.host_bytes)}; try a larger --memory"
                )
            )
        cells, policy = self._first_cells, request.policy
        one = cells / policy.saved_by_trees / Rates().cells_per_second
        hopeless = one > policy.most_saved * policy.patience_seconds and request.options.gpus is None
        # a single sweep is too long already: then the number of sweeps, which takes long to predict, is of no interest
        seconds = one if hopeless else self._sweeps(Rates()) * one
        if not is_whole(request.question, request.options, cells, policy.largest_part):
            seconds *= policy.sliced_overhead
        seconds += self._wide_cells * policy.table_cell_seconds + self._seconds_left
        rates = self._device_rates
        sweeps = 1.0 if hopeless else self._sweeps(rates)
        there = sweeps * cells / policy.saved_by_trees / rates.cells_per_second
        price = self._cheaper(seconds, there, 0, "rough")
        return replace(price, least_seconds=self._least_cells / Rates().cells_per_second) if hopeless else price

    @property
    def _least_cells(self) -> float:
        """Return the cells that the largest step of any sweep has at least."""
        network = self.request.network
        return math.ldexp(1.0, min(least_width(len(network.dims), network.scopes) + 1, sys.float_info.max_exp - 1))

    @cached_property
    def _first_cells(self) -> float:
        """Cells of the buckets of an order that is found at once."""
        network = self.request.network
        return sweep_cells(network.dims, network.scopes, self.request.options.seed, self._last(network))

    @cached_property
    def _cells_left(self) -> int:
        """Cells of the tables over the outer variables that remain, in any order, once all others are eliminated."""
        network = self.request.network
        if not (last := self._last(network)):
            return 0
        return cells_left(network.dims, network.scopes, last)

    @property
    def _seconds_left(self) -> float:
        """Predicted seconds until the remaining tables are a model of their own."""
        return self._cells_left * self.request.policy.cell_left_seconds

    def better_price(self, aim: Certainty) -> Estimate:
        """Price the tree of a short search, or plan."""
        if aim == "searched" and self.prepared is None:
            return self._searched_price()
        try:
            self._refuse_late()
            return self._price_of(self.plan())
        except BudgetError as error:
            return EnginePrice(self.request.seconds, certainty="planned") if self._may_bound else self._advised(error)

    def plan(self) -> Prepared:
        """Plan the sweep, once."""
        if self.prepared is None:
            resources = self.request.resources
            if self._is_over_before_a_device_starts:
                with suppress(BudgetError):
                    self.prepared = self._planned(resources.without_devices())
                    self.why_host = "the sweep ran on the CPU, because this takes less time than starting a device"
            self.prepared = self.prepared or self._unless_compiling_is_longer(self._planned(resources))
        return self.prepared

    def _unless_compiling_is_longer(self, prepared: Prepared) -> Prepared:
        """Return a plan, or a plan for this machine's cores if they end before the kernels of a device are compiled.

        The seconds that earlier sweeps took on the cores count towards compiling, as towards the start of a device.

        Raises
        ------
        BudgetError
            If no device can launch a step of the plan, and no plan fits this machine's memory.
        """
        plan, request, refusal = prepared.plan, self.request, ""
        in_this_process = not (prepared.resources.distributed or (request.folder is not None and self.in_folder))
        if plan is None or not plan.device or not in_this_process or request.has_stored_plan:
            return prepared
        try:
            compiling = compile_seconds_of(plan, prepared.problem.semiring, prepared.resources)
            why = "the sweep ran on the CPU, because this takes less time than compiling the kernels of a device"
        except LongStepError as error:
            refusal = str(error)
            compiling, why = math.inf, f"the sweep ran on the CPU: {refusal}"
        if not compiling:
            return prepared
        self.compile_seconds = AVOIDED_START.remaining(compiling)
        if self._searched_seconds.here < all_cells_seconds(plan) + self.compile_seconds:
            try:
                here = self._planned(request.resources.without_devices())
            except BudgetError:
                if refusal:
                    raise BudgetError(refusal) from None
            else:
                self.why_host, self.compile_seconds = why, 0.0
                return here
        AVOIDED_START.pay(compiling)
        return prepared

    def _planned(self, resources: Resources) -> Prepared:
        request = self.request
        if request.folder is not None and self.in_folder:
            return planned_in(request.folder, resources.asked, request.patient)
        return prepare(request.question, resources, patient=request.patient)

    @property
    def _is_over_before_a_device_starts(self) -> bool:
        """Whether this machine's cores are through before a device has loaded its libraries."""
        request, policy = self.request, self.request.policy
        by_rows = request.options.representation == "rows" or request.question.outer is not None
        if by_rows or request.is_trivial or request.has_stored_plan or not request.resources.device_sleeps:
            return False
        # Cores that take this long over the best of trees lose against any device, whatever it has to load and compile.
        # Shorter sweeps wait for a short search, because trees can save more: 4,700 times in linkage_14.
        longest = policy.saved_by_trees * policy.device_start_seconds
        if self._sweeps(Rates()) * self._first_cells / policy.most_saved / Rates().cells_per_second > longest:
            return False
        price = self.estimate()
        assert isinstance(price, EnginePrice)
        return (self._searched_price() if price.device == "gpu" else price).device == "host"

    def run(self, seconds: float, stop: Stop = bool) -> Answer | TurnEnded:
        """Sweep to the end; where a device runs out of memory all the same, again within half of it.

        If the first sweep of a count shows that all sweeps would take more than ``seconds``, the count ends there with
        a new price.
        """
        try:
            return self._run(stop, seconds)
        except _EndedError:
            return TurnEnded("another engine answered first", hopeless=True)
        except MorePrimesError as error:
            return self._repriced(*error.args)

    def _repriced(self, primes: int) -> TurnEnded:
        """Price a count again after its number of primes became known."""
        assert self.prepared is not None
        assert self.prepared.plan is not None
        assert self.prepared.prices is not None
        assert self.prepared.plan.evaluations is not None
        before = self.prepared.plan.evaluations.likely.primes
        prices = replace(self.prepared.prices, chosen=with_primes(self.prepared.plan, primes))
        self.prepared = replace(self.prepared, prices=prices, most_primes=math.inf)
        why = f"the count takes {primes} primes, {before} were predicted"
        return TurnEnded(why, price=self._price_of(self.prepared))

    def _run(self, stop: Stop, seconds: float) -> Answer:
        request = self.request

        def look(event: ProgressEvent) -> None:
            if stop():
                raise _EndedError
            if request.progress is not None:
                request.progress(event)

        progress = look if stop is not bool else request.progress
        if request.question.outer is not None:
            return self._left()
        prepared = self.plan()
        if request.folder is not None and self.in_folder:
            return in_run_folder(request.folder, prepared, progress)
        prepared = replace(prepared, most_primes=_primes_within(prepared.plan, seconds))
        while True:
            try:
                with AVOIDED_START.counted(bool(self.why_host)):
                    return in_slices(prepared, lambda once: in_temporary_folder(once, progress, request.notes))
            except MemoryError as error:
                resources = with_less_device_memory(prepared.plan, prepared.resources, error)
                within = resources.asked.gpu_memory
                request.notes.append(
                    f"the device ran out of memory ({error}); the query was planned again within {within}"
                )
                prepared = self.prepared = prepare(request.question, resources, patient=request.patient)

    def _left(self) -> Answer:
        """Eliminate the inner variables and answer what is left; a run directory keeps the answer."""
        folder = self.request.folder
        if folder is None:
            return self._answered_left()
        if not folder.is_used:  # bounds may answer before there is a plan
            folder.keep_question(self.request.options, self.request.effort)
        return written(folder, self._answered_left)

    def _answered_left(self) -> Answer:
        from .model_left import answered_left

        request = self.request
        try:
            self._refuse_late()
            prepared = self.plan()
            if self._may_bound and prepared.plan is not None and prepared.plan.seconds > request.seconds:
                raise BudgetError(f"the sum takes {prepared.plan.seconds:.3g} s, allowed {request.seconds:.3g} s")
            return answered_left(request, prepared)
        except BudgetError as error:
            if not self._may_bound:
                raise BudgetError(self._advised(error)) from None
            from .inner_bounds import InnerBounds

            return InnerBounds(request, str(error)).run()

    def _advised(self, error: BudgetError) -> str:
        """Return the reason why a sweep was refused, and for marginal MAP an option that would answer nevertheless."""
        is_mmap = self.request.question.query == "mmap"
        return f"{error}; --time gives a lower and an upper bound instead" if is_mmap else str(error)

    def _refuse_late(self) -> None:
        """Refuse to plan sums that no search for a tree brings within the time that is given.

        Raises
        ------
        BudgetError
            With both numbers.
        """
        allowed = self.request.seconds
        if not self._may_bound or self.prepared is not None or not math.isfinite(allowed):
            return
        price = self.estimate()
        assert isinstance(price, EnginePrice)
        if price.seconds > self.request.policy.most_saved * allowed:
            raise BudgetError(f"the sum would take about {price.seconds:.2g} s, allowed {allowed:.3g} s")

    @property
    def _may_bound(self) -> bool:
        """Whether marginal MAP may be answered by two bounds."""
        return self.request.question.query == "mmap" and self.request.effort.limited

    def _last(self, network: Network) -> frozenset[int]:
        """Return a network's variables that are eliminated after all others."""
        outer = self.request.question.outer or frozenset()
        return frozenset([local for v, local in network.local.items() if v in outer])

    def _sweeps(self, rates: Rates) -> float:
        """Return the number of sweeps in units of a sweep in floats; a sweep modulo a prime counts as several."""
        if not self._primes:
            return 1.0
        slower = rates.cells_per_second / residue_rates(rates).cells_per_second
        return 1.0 + slower * self._primes

    @cached_property
    def _primes(self) -> int:
        """Modulo how many primes a count is expected to be swept after its first sweep."""
        question = self.request.question
        if question.query != "count" or question.count_plan.is_small:
            return 0
        return min(question.count_plan.most_primes, question.count_plan.expected_primes)

    @property
    def _wide_cells(self) -> int:
        """Cells of tables that are made of rows, such as long clauses."""
        network = self.request.network
        functions = network.model.functions
        return sum(
            math.prod([network.dims[v] for v in leaf.scope])
            for leaf in network.leaves
            if any(functions[f].rows is not None and not is_listed(network, f) for f in leaf.functions)
        )

    @property
    def _device_start_seconds(self) -> float:
        """Remaining seconds until the device has started, less what earlier questions spent to avoid the start.

        A process that asks again and again starts its device once its cores took as long as the start: it spends at
        most twice what it would spend if it knew the number of its questions.
        """
        if not self.request.resources.device_sleeps:
            return 0.0
        return AVOIDED_START.remaining(self.request.policy.device_start_seconds)

    @property
    def _device_rates(self) -> Rates:
        return gpu_rates(MIN_PLUS if self.request.network.query == "optimum" else SUM_PRODUCT)

    def _cheaper(self, here: float, there: float, nbytes: int, certainty: Certainty) -> EnginePrice:
        """Return the price on this machine's cores, or on its device if that is lower."""
        there += self._device_start_seconds
        if self.request.options.gpus is None or here <= there:
            return EnginePrice(here, nbytes, certainty)
        return EnginePrice(there, 0, certainty, "gpu")

    def _searched_price(self) -> EnginePrice:
        found = self._searched_seconds
        there = found.there
        start = there + self._device_start_seconds
        # kernels that were compiled before do not matter if the cores take a minute longer
        if start < found.here < start + self.request.policy.patience_seconds:
            there += self._first_compile_seconds
        price = self._cheaper(found.planning + found.here, found.planning + there, found.nbytes, "searched")
        return replace(price, planning_seconds=found.planning)

    @cached_property
    def _searched_seconds(self) -> _SearchedSeconds:
        """Predicted seconds over the trees of a short search."""
        request = self.request
        policy, here = request.policy, self._searched(Rates())
        seconds = self._sweeps(Rates()) * here.seconds + self._seconds_left
        if request.options.memory is not None and here.nbytes > (
            spare := spare_bytes(request.question, request.options)
        ):
            seconds *= policy.sliced_times(here.largest_bytes, int(spare))
        there = math.inf
        if request.options.gpus is not None:
            rates = self._device_rates
            there = self._sweeps(rates) * self._searched(rates).seconds
        return _SearchedSeconds(seconds, there, max(here.spent, policy.planning_part * seconds), here.nbytes)

    def _searched(self, rates: Rates) -> _Searched:
        """Return the result of a short search by some rates."""
        request = self.request
        network, _ = request.question.chained.reduced  # as it is planned
        dims, scopes = tuple(network.dims), tuple(map(tuple, network.scopes))
        short, seed = request.policy.short_search_seconds, request.options.seed
        return _searched(dims, scopes, self._last(network), seed, short, rates)

    @cached_property
    def _first_compile_seconds(self) -> float:
        """Predicted seconds of compiling the kernels of a device that has not started: over the tree of a short search.

        Once it has started, the kernels of the plan itself are known.
        """
        request = self.request
        if not request.resources.device_sleeps:
            return 0.0
        prepared = unplanned(request.question, request.resources.without_devices())
        tree = self._searched(self._device_rates).tree
        planner = planner_of(prepared, UNLIMITED_BYTES).with_options(device=True)
        plan = TreePlanner(prepared.problem, planner.options).of(tree)
        return AVOIDED_START.remaining(compile_seconds_of(plan, prepared.problem.semiring, prepared.resources))

    def _price_of(self, prepared: Prepared) -> EnginePrice:
        plan = prepared.plan
        if plan is None:
            return EnginePrice(0.0, certainty="planned")
        device = _device_of(plan, prepared)
        start = self._device_start_seconds + self.compile_seconds if device == "gpu" else 0.0
        return EnginePrice(all_cells_seconds(plan) + self._seconds_left + start, _host_bytes(plan), "planned", device)


def _primes_within(plan: Plan | None, seconds: float) -> float:
    """Return the number of primes that a count may sweep in ``seconds``, at least the predicted number."""
    if plan is None or plan.evaluations is None or math.isinf(seconds):
        return math.inf
    one, two = (all_cells_seconds(with_primes(plan, primes)) for primes in (1, 2))
    return max(plan.evaluations.likely.primes, 1 + (seconds - one) // (two - one))


def _device_of(plan: Plan, prepared: Prepared) -> Device:
    """Return the device that a plan keeps busy."""
    return "gpu" if plan.device and not prepared.resources.distributed else "host"


def _host_bytes(plan: Plan) -> int:
    """Return the host memory of a plan in addition to the model."""
    if not plan.device:
        return plan.peak_bytes
    resident = plan.spill.disk_bytes if plan.spill is not None and plan.spill.resident else 0
    return plan.leaf_bytes + resident


@dataclass(frozen=True)
class _Searched:
    """Result of a short search for a tree: seconds and bytes of all its tables, and the seconds of the search."""

    seconds: float
    nbytes: int
    largest_bytes: int
    spent: float
    tree: Tree


class _SearchedSeconds(NamedTuple):
    """Predicted seconds of a sweep on the cores, on a device that has started, and of planning; bytes of all tables."""

    here: float
    there: float
    planning: float
    nbytes: int


@lru_cache(maxsize=32)
def _searched(
    dims: tuple[int, ...],
    scopes: tuple[tuple[int, ...], ...],
    last: frozenset[int],
    seed: int,
    short: float,
    rates: Rates,
) -> _Searched:
    began, search = working_seconds(), TreeSearch(dims, scopes, seconds=short, seed=seed)
    if last:
        (tree,) = trees_with_last(search, last, lambda part: [part.cheapest()], kept=True)
    else:
        tree = search.cheapest()
    nbytes, largest = (CELL_BYTES * count for count in (sum(tree.cells), max(tree.cells, default=0)))
    return _Searched(tree_cost(tree, rates).seconds, nbytes, largest, working_seconds() - began, tree)
