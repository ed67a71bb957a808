"""The planner: from a network's scopes to a frozen list of steps with exact byte counts.

Pure: it sees sizes, never a table. The plan is what ``bucketflow plan`` prints, what the executor runs and
what the tests measure against.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod
from typing import Literal

from ..tasks.quick import make_step
from ..tasks.semiring import Semiring
from ..tasks.sweep import Step
from .costs import Rates, TreeCost, step_seconds, tree_cost
from .errors import BudgetError
from .layouts import choose_layouts
from .memory import Sizing, leaf_bytes, partition, parts_below, step_bytes, sweep_peak, table_bytes
from .ordering import OrderName, elimination_order, search_tree
from .slicing import slice_and_refine, slice_count, slice_tree
from .stages import Spill
from .trees import Tree, schedule

TreeKind = Literal["refined", "bucket", "junction"]

# Beyond this many slices, or this much repeated work, conditioning is no answer to a small budget.
MAX_SLICES = 1 << 20
MAX_SLICE_OVERHEAD = 64.0

# Planning time for rearranging a tree for its slices, at most.
REARRANGING_SECONDS = 4.0

# A message between workers; a larger one costs more to send than it saves.
MAX_SENT_BYTES = 1 << 28


@dataclass(frozen=True)
class PlanOptions:
    """What the caller asks of a plan.

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
    threads : int
        Threads that share a large step, each with a workspace of its own.
    children : tuple of tuple of int, optional
        The tree of an earlier plan, to be used again instead of a search.
    """

    tree: TreeKind = "refined"
    order: OrderName | Sequence[int] = "auto"
    order_seconds: float | None = None
    seed: int = 0
    memory_bytes: int = 1 << 62
    decode: bool = False
    threads: int = 1
    children: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Problem:
    """What the planner is given: sizes, never values.

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
        What the model itself occupies while the plan runs.
    """

    dims: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    semiring: Semiring
    itemsize: int
    model_bytes: int = 0


@dataclass(frozen=True, repr=False)
class Plan:
    """A frozen description of everything that will run, and what it costs.

    Parameters
    ----------
    tree : Tree
        With domain sizes as inside one slice (one state for a sliced variable).
    dims : tuple of int
        Domain sizes without slicing.
    layouts : tuple of tuple of int
        Axis order of every node's table.
    steps : tuple of Step
        In execution order.
    cuts : frozenset of int
        Nodes whose table is kept while the parts below them are dropped and, for the assignment, swept again
        with the variables above them fixed. Empty: one part, whose messages are all kept for the decoding.
    sliced : tuple of int
        Variables that are conditioned on; the steps run once for each of their joint states.
    leaf_bytes, model_bytes, peak_bytes : int
        Leaf tables, the model itself, and everything together at the worst moment.
    cost : TreeCost
        Of one slice.
    unsliced_cells : int
        Cells of the best plan without slicing.
    variant_from : int
        The steps before this one do not depend on the slice.
    spill : Spill or None
        How the steps run with their large tables on disk; None for a plan in memory.
    """

    tree: Tree
    dims: tuple[int, ...]
    layouts: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    cuts: frozenset[int]
    sliced: tuple[int, ...]
    itemsize: int
    leaf_bytes: int
    model_bytes: int
    peak_bytes: int
    cost: TreeCost
    unsliced_cells: int
    variant_from: int = 0
    spill: Spill | None = None

    @property
    def slices(self) -> int:
        """Number of independent sub-problems."""
        return prod(self.dims[v] for v in self.sliced)

    @property
    def cells(self) -> int:
        """Cells swept over all slices."""
        return self.cost.cells * self.slices

    @property
    def read_bytes(self) -> int:
        """Bytes read by the steps of all slices."""
        return self.cost.read_cells * self.itemsize * self.slices

    @property
    def written_bytes(self) -> int:
        """Bytes written by the steps of all slices."""
        return self.cost.written_cells * self.itemsize * self.slices

    @property
    def seconds(self) -> float:
        """Predicted run time on one core."""
        return self.spill.seconds if self.spill else self.cost.seconds * self.slices

    @property
    def tasks(self) -> int:
        """Number of pieces of work that may run independently."""
        if self.spill:
            return self.spill.tasks
        return (len(self.cuts) + 1) * self.slices

    @property
    def slice_overhead(self) -> float:
        """Work of all slices over the work without slicing."""
        return self.cells / max(self.unsliced_cells, 1)

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures as labelled lines for a person."""
        rows = [
            ("variables", f"{len(self.dims)} to eliminate in {len(self.steps)} steps"),
            ("width", str(self.cost.width)),
            ("largest table", f"{format_cells(self.cost.largest_table_cells)} cells of {self.itemsize} bytes"),
            ("cells", format_cells(self.cells)),
            ("read / written", f"{format_bytes(self.read_bytes)} / {format_bytes(self.written_bytes)}"),
            ("peak memory", format_bytes(self.peak_bytes)),
        ]
        if self.sliced:
            rows.append(("slices", f"{self.slices:,}, {self.slice_overhead:.2f} times the work"))
        if self.spill:
            moved = f"{format_bytes(self.spill.written_bytes)} written, {format_bytes(self.spill.read_bytes)} read"
            rows.append(("disk", f"{format_bytes(self.spill.disk_bytes)} at a time, {moved}"))
        if self.cuts:
            rows.append(("decoding", f"{len(self.cuts) + 1} parts, swept twice to save memory"))
        return [*rows, ("tasks", f"{self.tasks:,}"), ("predicted", f"{self.seconds:.3g} s on one core")]

    def __repr__(self) -> str:
        return "\n".join(f"{label:<14}  {text}" for label, text in self.rows())

    def _repr_html_(self) -> str:
        body = "".join(f"<tr><th>{label}</th><td>{text}</td></tr>" for label, text in self.rows())
        return f"<table>{body}</table>"

    @cached_property
    def parts(self) -> dict[int, list[Step]]:
        """The steps below each cut, in execution order; those that end at the roots under -1, last."""
        return parts_below(self.tree, self.steps, self.cuts)


def sliced_dims(dims: Sequence[int], sliced: Iterable[int]) -> tuple[int, ...]:
    """Return domain sizes with one state for every sliced variable."""
    fixed = set(sliced)
    return tuple(1 if v in fixed else d for v, d in enumerate(dims))


def make_plan(problem: Problem, options: PlanOptions, rates: Rates) -> Plan:
    """Plan the elimination of every variable of a problem in memory.

    Raises
    ------
    BudgetError
        If no acceptable conditioning brings the plan into ``options.memory_bytes``.
    """
    plan = whole_plan(problem, options, rates)
    return plan if plan.peak_bytes <= options.memory_bytes else sliced_plan(problem, options, rates, plan)


def whole_plan(problem: Problem, options: PlanOptions, rates: Rates) -> Plan:
    """Plan without slices, whatever it needs."""
    if options.children is not None:
        tree = Tree(problem.dims, problem.scopes, options.children)
        return _plan(problem, options, rates, tree, frozenset())
    tree = search_tree(
        problem.dims,
        problem.scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
    )
    return _plan(problem, options, rates, tree, frozenset())


def sliced_plan(problem: Problem, options: PlanOptions, rates: Rates, whole: Plan) -> Plan:
    """Condition on as few variables as bring the plan into its budget, then rearrange the tree for the slices.

    Raises
    ------
    BudgetError
        If that takes too many slices or too much repeated work.
    """
    tree = whole.tree
    available = options.memory_bytes - problem.model_bytes
    limit = max(available // problem.itemsize, 1)
    while True:
        sliced = slice_tree(tree, limit, rates, itemsize=problem.itemsize, seed=options.seed)
        if slice_count(tree, sliced) > MAX_SLICES:
            raise _refusal(whole, sliced, options.memory_bytes)
        plan = _plan(problem, options, rates, tree, sliced)
        if plan.peak_bytes <= options.memory_bytes:
            break
        if limit == 1:
            raise _refusal(whole, sliced, options.memory_bytes)
        limit //= 2
    if options.tree == "refined" and isinstance(options.order, str):
        seconds = min(REARRANGING_SECONDS, plan.seconds / 4)
        again = slice_and_refine(tree, limit, rates, itemsize=problem.itemsize, seed=options.seed, seconds=seconds)
        better = _plan(problem, options, rates, *again)
        if better.peak_bytes <= options.memory_bytes and better.seconds < plan.seconds:
            plan = better
    plan = replace(plan, unsliced_cells=whole.cells)
    if plan.slice_overhead > MAX_SLICE_OVERHEAD:
        raise _refusal(whole, frozenset(plan.sliced), options.memory_bytes, plan)
    return plan


def _plan(problem: Problem, options: PlanOptions, rates: Rates, whole: Tree, sliced: frozenset[int]) -> Plan:
    itemsize = problem.itemsize
    tree = replace(whole, dims=sliced_dims(whole.dims, sliced))
    layouts = choose_layouts(tree, elimination_order(tree))
    varies = _variant_nodes(tree, sliced)
    order = sorted(schedule(tree), key=varies.__contains__)
    steps = tuple(_step(problem, tree, layouts, node) for node in order)
    fixed = leaf_bytes(tree, whole.dims, itemsize) + (leaf_bytes(tree, tree.dims, itemsize) if sliced else 0)
    variant_from = sum(node not in varies for node in order) if sliced else 0
    frontier = {i for s in steps[variant_from:] for i in s.inputs if i not in varies}
    sizing = Sizing(tree.dims, itemsize, options.threads)
    peak = sweep_peak(steps, sizing, frontier)
    cuts: frozenset[int] = frozenset()
    if options.decode:
        cuts, again = _cuts(tree, steps, sizing, options.memory_bytes - problem.model_bytes - fixed)
        peak = max(peak, again) if sliced else again
    cost = tree_cost(tree, rates, itemsize)
    return Plan(
        tree=tree,
        dims=whole.dims,
        layouts=layouts,
        steps=steps,
        cuts=cuts,
        sliced=tuple(sorted(sliced)),
        itemsize=itemsize,
        leaf_bytes=fixed,
        model_bytes=problem.model_bytes,
        peak_bytes=problem.model_bytes + fixed + peak,
        cost=cost,
        unsliced_cells=cost.cells,
        variant_from=variant_from,
    )


def with_rates(plan: Plan, rates: Rates) -> Plan:
    """Return the plan with its seconds predicted from other rates."""
    return replace(plan, cost=tree_cost(plan.tree, rates, plan.itemsize))


def relowered(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its steps lowered for another semiring of the same value size."""

    def lowered(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[Step, ...]:
        return tuple(lowered_step(s.node, s.inputs, s.input_axes, s.axes, sizes, problem) for s in steps)

    spill = plan.spill
    if spill is not None:
        stages = (replace(s, steps=lowered(s.steps, sliced_dims(spill.dims, s.boxed))) for s in spill.stages)
        spill = replace(spill, stages=tuple(stages))
    return replace(plan, steps=lowered(plan.steps, plan.tree.dims), spill=spill)


def _variant_nodes(tree: Tree, sliced: frozenset[int]) -> frozenset[int]:
    """Nodes whose table depends on the states of the sliced variables."""
    varies = [not sliced.isdisjoint(scope) for scope in tree.leaves]
    for kids in tree.children:
        varies.append(any(varies[c] for c in kids))
    return frozenset(node for node, flag in enumerate(varies) if flag)


def _step(problem: Problem, tree: Tree, layouts: Sequence[tuple[int, ...]], node: int) -> Step:
    inputs = tree.children[node - len(tree.leaves)]
    return lowered_step(node, inputs, tuple(layouts[i] for i in inputs), layouts[node], tree.dims, problem)


def lowered_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    problem: Problem,
) -> Step:
    """Fix the loops of one step for the given domain sizes."""
    return make_step(node, inputs, input_axes, axes, sizes, problem.semiring)


def _cuts(tree: Tree, steps: Sequence[Step], sizing: Sizing, available: int) -> tuple[frozenset[int], int]:
    """Where to drop messages, and the peak of messages and workspace that follows.

    Keeping all messages makes the decoding free. Where they do not fit, the tree is cut and each part swept
    again, conditioned on the variables above it, which costs at most as much as the first sweep.
    """
    everything = sweep_peak(steps, sizing, [s.node for s in steps])
    best: tuple[frozenset[int], int] = (frozenset(), everything)
    order = [s.node for s in steps]
    made = {s.node: table_bytes(sizing.sizes, s.axes, sizing.itemsize) for s in steps}
    limit = everything / 2
    while best[1] > available and limit > everything / 4096:
        cuts = partition(tree, order, made.__getitem__, limit)
        peak = recomputing_peak(tree, steps, sizing, cuts)
        best = min(best, (cuts, peak), key=lambda choice: choice[1])
        limit /= 2
    return best


def recomputing_peak(tree: Tree, steps: Sequence[Step], sizing: Sizing, cuts: frozenset[int]) -> int:
    """Peak of sweeping part by part, keeping the tables at the cuts, and then each part again to decode it."""
    held = sum(table_bytes(sizing.sizes, s.axes, sizing.itemsize) for s in steps if s.node in cuts)
    peak = 0
    for head, part in parts_below(tree, steps, cuts).items():
        inner = replace(sizing, sizes=sliced_dims(sizing.sizes, tree.scopes[head] if head >= 0 else ()))
        copies = sum(table_bytes(inner.sizes, a, inner.itemsize) for s in part for a in s.input_axes)
        again = copies + sweep_peak(part, inner, [s.node for s in part])
        peak = max(peak, held + again, held + sweep_peak(part, sizing, ()))
    return peak


def split_for(plan: Plan, width: int, seconds: float, rates: Rates, memory_bytes: int) -> Plan:
    """Cut a plan into parts of at least ``seconds`` for ``width`` workers, where that pays and fits."""
    sizes = plan.tree.dims
    if plan.spill or plan.slices > 1 or plan.seconds < 2 * seconds:
        return plan
    work = {
        s.node: step_seconds(
            s.lowered.cells, step_bytes(s, sizes, 1), s.lowered.regime == "matrix", rates, plan.itemsize
        )
        for s in plan.steps
    }
    cuts = partition(
        plan.tree, [s.node for s in plan.steps], work.__getitem__, max(seconds, plan.seconds / (4 * width))
    )
    small = {s.node for s in plan.steps if table_bytes(sizes, s.axes, plan.itemsize) <= MAX_SENT_BYTES}
    cuts = (cuts & small) | plan.cuts
    fixed = plan.model_bytes + plan.leaf_bytes
    peak = fixed + recomputing_peak(plan.tree, plan.steps, Sizing(sizes, plan.itemsize), cuts)
    return replace(plan, cuts=cuts, peak_bytes=peak) if cuts and peak <= memory_bytes else plan


def _refusal(whole: Plan, sliced: frozenset[int], allowed_bytes: int, tried: Plan | None = None) -> BudgetError:
    """Say what the plan needs, what is allowed, and what slicing would cost."""
    largest = max(table_bytes(whole.tree.dims, s.axes, whole.itemsize) for s in whole.steps)
    slices = prod(whole.dims[v] for v in sliced)
    price = "" if tried is None else f" at {tried.slice_overhead:.3g} times the work"
    return BudgetError(
        f"the plan needs {format_bytes(whole.peak_bytes)} (largest message {format_bytes(largest)}), allowed "
        f"{format_bytes(allowed_bytes)}; slicing would take at least {float(slices):.3g} slices{price}; "
        "try a larger --memory or a longer --order-time"
    )


def format_cells(count: int) -> str:
    """Write a number of cells, with its size as a power of two where it is large."""
    return f"{count:,}" if count < 10_000 else f"{float(count):.3g} (2^{log2(count):.1f})"


def format_bytes(count: int) -> str:
    """Write a number of bytes with a decimal unit, as ``--memory`` reads it."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError
