"""Derivatives of log Z by the entries of tables, from the beliefs of a two-way sweep (Darwiche, JACM 2003).

Entries of 0 need multipliers: messages to several functions in one propagation, without division. A message to a leaf
of the tree is the sum of everything except the leaf itself (Shafer and Shenoy 1990). No state may be removed beforehand
because the functions make it impossible: the propagation uses the model's tables, with only the findings applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.steps.caches import Remembered
from ...tasks.steps.number_limits import LEAST_FACTOR
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.sweeps.scaled import QuickSumProduct, Scaled, measured
from ...tasks.sweeps.sweep import freed_tables, sweep
from ..answering.question import Question
from ..errors import BudgetError, ModelError
from ..machine.resources import Resources
from ..orders.depth_first import sweep_cells
from ..plans.planner import Planner
from ..plans.problem import PlanOptions, Problem
from ..plans.two_way_steps import LeafMessages, leaf_messages
from ..queries.beliefs import BeliefRequest
from ..results.posteriors import Marginals
from ..trees.costs import tree_cost
from ..trees.memory import Sizing, sweep_peak
from ..trees.tree import Tree


class _Messages(NamedTuple):
    """The steps of both sweeps, the tables that are freed after each step, and the bytes of all tables."""

    messages: LeafMessages
    freed: tuple[tuple[int, ...], ...]
    peak_bytes: int


# Wall seconds. A joint propagation predicted to take longer is not run, because its plan was made without the
# function's states.
_MOST_SECONDS: Final = 600.0


# Questions that differ only in the states of their findings share a plan.
_TREES: Final[Remembered[Tree]] = Remembered(4)
_MESSAGES: Final[Remembered[_Messages]] = Remembered(4)


def multipliers(
    question: Question, functions: Sequence[int], resources: Resources, most_cells: float = math.inf
) -> dict[int, Array] | None:
    """Return the factor of each entry of some functions in Z, divided by Z; Z includes the findings.

    Parameters
    ----------
    question : Question
        A question about a sum, whose findings are possible.
    functions : sequence of int
        With variables.
    resources : Resources
    most_cells : float
        Maximum cells that one sweep of buckets may have.

    Returns
    -------
    dict of int to ndarray or None
        For each function an array with an axis for each variable. None if the tables do not fit in memory, or have too
        many cells.
    """
    model = question.model
    dims = tuple([1 if v in question.hard else n for v, n in enumerate(model.dims)])
    own = [f for f, function in enumerate(model.functions) if function.scope]
    soft = sorted(question.soft.keys() - question.hard.keys())
    scopes = (*(tuple(model.functions[f].scope) for f in own), *((v,) for v in soft))
    if 8 * sum(prod(dims[v] for v in scope) for scope in scopes) > resources.host_bytes:
        return None
    if sweep_cells(dims, scopes, resources.asked.seed) > most_cells:
        return None
    ends = {f: leaf for leaf, f in enumerate(own) if f in set(functions)}
    problem = Problem(dims, scopes, SUM_PRODUCT, 8, targets=())
    planned = _planned(problem, tuple(ends.values()), resources)
    if planned is None:
        return None
    leaves = {}
    for leaf, (scope, layout) in enumerate(zip(scopes, planned.messages.layouts, strict=False)):
        table = _at_findings(question, own[leaf]) if leaf < len(own) else question.soft[scope[0]]
        moved = np.transpose(np.asarray(table, np.float64), [scope.index(v) for v in layout])
        leaves[leaf] = measured(np.array(moved, order="C").reshape(-1))
    tables = _swept(planned, leaves, dims, resources)
    return {f: _multiplier(question, f, leaf, planned.messages, tables) for f, leaf in ends.items()}


def _planned(problem: Problem, ends: tuple[int, ...], resources: Resources) -> _Messages | None:
    """Plan both sweeps; None where they do not fit memory, or take too long."""
    asked = resources.asked
    order: Any = asked.order if isinstance(asked.order, str) else "auto"
    options = PlanOptions(order=order, order_seconds=asked.order_time, seed=asked.seed)
    planner = Planner(problem, options)
    try:
        tree = _TREES.of((), (problem, options), planner.tree)
    except BudgetError:
        return None
    if 8 * max(tree.cells) > resources.host_bytes or tree_cost(tree, planner.rates, 8).seconds > _MOST_SECONDS:
        return None
    found = _MESSAGES.of((tree,), (problem, ends), lambda: _messages(tree, problem, ends))
    return found if found.peak_bytes <= resources.host_bytes else None


def _messages(tree: Tree, problem: Problem, ends: tuple[int, ...]) -> _Messages:
    """Lower both sweeps, and count the bytes of their tables."""
    found = leaf_messages(tree, problem, ends)
    # tables that are read after the last step
    kept = frozenset((*tree.roots, *(left[0] for left in found.leaving.values() if left is not None)))
    freed = freed_tables(found.steps, kept)
    held = 8 * sum(tree.cells[: tree.n_leaves])
    return _Messages(found, freed, held + sweep_peak(found.steps, Sizing(problem.dims, 8), kept, freed=freed))


def _swept(
    planned: _Messages, leaves: dict[int, Scaled], dims: tuple[int, ...], resources: Resources
) -> dict[int, Scaled]:
    steps = planned.messages.steps
    compiled = compiler_pays(sum([step.lowered.cells for step in steps]))
    return sweep(steps, leaves, QuickSumProduct(dims, compiled), planned.freed, threads=resources.threads)


def _at_findings(question: Question, f: int) -> Array:
    """Return a function with one state of each variable that is observed."""
    function = question.model.functions[f]
    table = function.dense(question.model.dims)
    return np.asarray(table[tuple(_place(question, v) for v in function.scope)])


def _place(question: Question, v: int) -> slice:
    state = question.hard.get(v)
    return slice(None) if state is None else slice(state, state + 1)


def _multiplier(question: Question, f: int, leaf: int, planned: LeafMessages, tables: dict[int, Scaled]) -> Array:
    """Return the message to a function over the sum of its part of the forest; 0 where findings say otherwise."""
    model, scope = question.model, question.model.functions[f].scope
    dims = planned.tree.dims
    total = tables[planned.root(leaf)].log_value()
    left = planned.leaving[leaf]
    made = np.zeros([model.dims[v] for v in scope])
    if left is None:
        values: Array = _exp(np.zeros([1] * len(scope)) - total)
    else:
        node, axes = left
        table = tables[node]
        with np.errstate(divide="ignore"):
            logs = table.values if table.logs else np.log(table.values)
        flat = _exp(logs + (table.log_scale - total))
        places = [axes.index(v) for v in scope if v in axes]
        shaped = flat.reshape([dims[v] for v in axes]).transpose(places)
        values = shaped.reshape([dims[v] if v in axes else 1 for v in scope])
    made[tuple(_place(question, v) for v in scope)] = values
    return made


def _exp(logs: Array) -> Array:
    """Return exponentials, infinite where they are above all floats."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs))


Array = NDArray[Any]
# A probability of a smaller entry's states may be below all floats, though the derivative is not.
_SMALL: Final = 1e-100
WIDE_ORDERS: Final = -math.log10(LEAST_FACTOR)
"""If two assignments differ by at least this number of orders of magnitude, parts of a sum may be below all floats."""

Answer = Callable[[Question], Marginals]
"""Propagates a question."""


def derivatives_of(question: Question, found: Marginals, answer: Answer, resources: Resources) -> dict[int, Array]:
    """Return d ln Z / d entry for every entry of every function that has variables, by the index of the function.

    If an entry is above 0, its derivative is the probability of its states divided by the entry. Functions with entries
    of 0, or with entries so small that the probability may vanish, need one more propagation. It computes the
    multipliers of all their entries together. If this propagation does not fit in memory, each function takes its own
    propagation, of the model without that function.

    Parameters
    ----------
    question : Question
    found : Marginals
        With the families of all functions.
    answer : callable
    resources : Resources

    Raises
    ------
    ModelError
        If the evidence is impossible, because ln 0 has no derivatives.
    """
    if found.status == "infeasible":
        raise ModelError("the evidence is impossible: the logarithm of 0 has no derivatives")
    made, zeros = {}, []
    wide = question.model.orders_of_magnitude > WIDE_ORDERS
    for f, belief in found.families.items():
        values = question.model.functions[f].dense(question.model.dims)
        lost = wide and bool(((belief < LEAST_FACTOR) & (values > 0.0)).any())
        if not lost and (values > _SMALL).all():
            made[f] = belief / values
        else:
            zeros.append(f)
    # the model without one function is smaller than all tables together with their impossible states
    most_cells = math.inf if len(zeros) > 1 else found.plan.cells if found.plan else 0.0
    multiplied = multipliers(question, zeros, resources, most_cells) if zeros else {}
    if multiplied is None:
        multiplied = {f: _without(question, f, found, answer) for f in zeros}
    return dict(sorted((made | multiplied).items()))


def _without(question: Question, f: int, found: Marginals, answer: Answer) -> Array:
    """Return the multipliers of a function's entries over Z: the joint of its scope without the function."""
    model = question.model
    scope, functions = model.functions[f].scope, [*model.functions]
    del functions[f]
    # a network without one of its distributions is none; projections and what follows from others do not matter here
    rest = replace(model, kind="markov", functions=tuple(functions), projection=None)
    own = answer(replace(question, model=rest, asked=BeliefRequest((), (scope,), ())))
    assert own.log10_evidence is not None
    assert found.log10_evidence is not None
    (joint,) = own.joint.values()
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(10.0 ** (np.log10(joint) + own.log10_evidence - found.log10_evidence))
