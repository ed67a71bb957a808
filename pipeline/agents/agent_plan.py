"""The plan of each agent: its tables, the steps that eliminate its variables, and its message. Sizes only. Pure.

Tables of an agent are numbered: first its functions, then the tables of its children's messages, then its steps'
tables. Its variables are numbered in the order of axes: the ancestors' variables from the root on, then its own, in
reverse elimination order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.semiring import Semiring, min_plus
from ...tasks.steps.step import Step, make_step
from ..minibuckets.partition import MiniBucket, Partition, Size, partition
from ..models.dcop import Dcop
from ..queries.arithmetic import MAX_INPUTS
from .pseudo_tree import PseudoTree

Scope = tuple[int, ...]

WORK = min_plus("int64", MAX_INPUTS)
"""In what agents compute where parts of buckets are matched: no sum of two totals is too large."""


@dataclass(frozen=True)
class Matching:
    """How the parts of a bucket are matched.

    Parameters
    ----------
    minima : tuple of Step
        Least costs of each part by the states of the common variables.
    shares : tuple of int
        Numbers of the tables that the parts get besides.
    """

    minima: tuple[Step, ...]
    shares: tuple[int, ...]


@dataclass(frozen=True)
class AgentPlan:
    """One agent's part.

    Parameters
    ----------
    variables : tuple of int
        The model's indices of its separator and its own variables, in the order of axes.
    own : int
        How many of them are its own: the last.
    dims : tuple of int
        Domain sizes of the variables.
    sizes : tuple of int
        The same sizes, but 1 for variables that are fixed while it works.
    functions, observed : tuple of int
        The model's functions that are its own, and its own variables whose state is given.
    incoming : tuple of (int, tuple of int)
        Children, and the numbers of the tables that each sends.
    axes : tuple of tuple of int
        Of every table, in its own numbers of variables.
    buckets : tuple of tuple of MiniBucket
        For each own variable, in the order of elimination.
    steps : tuple of Step
    outgoing : tuple of int
        Numbers of the tables that it sends.
    context : tuple of int
        Variables (of the model) that its parent fixes in every request.
    iterated : tuple of int
        Variables (of the model) that it goes through itself, one assignment after the other.
    matchings : tuple of Matching or None
        For each bucket its matching, None for unsplit buckets; empty if nothing is matched.
    """

    variables: Scope
    own: int
    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    functions: tuple[int, ...]
    observed: Scope
    incoming: tuple[tuple[int, tuple[int, ...]], ...]
    axes: tuple[Scope, ...]
    buckets: tuple[tuple[MiniBucket, ...], ...]
    steps: tuple[Step, ...]
    outgoing: tuple[int, ...]
    context: Scope = ()
    iterated: Scope = ()
    matchings: tuple[Matching | None, ...] = ()

    @property
    def owned(self) -> Scope:
        """Its own variables, as the model numbers them."""
        return self.variables[len(self.variables) - self.own :]

    @property
    def separator(self) -> Scope:
        """Variables of its ancestors that its messages are about, as the model numbers them."""
        return self.variables[: len(self.variables) - self.own]

    @cached_property
    def sent(self) -> tuple[Scope, ...]:
        """Scopes of the tables that it sends, as the model numbers them; a number alone is no table."""
        return tuple(tuple(self.variables[v] for v in self.axes[table]) for table in self.outgoing if self.axes[table])

    @cached_property
    def message_cells(self) -> int:
        """Cells of a message."""
        return sum(math.prod(self.sizes[v] for v in self.axes[table]) for table in self.outgoing)

    @cached_property
    def made_cells(self) -> int:
        """Cells of all tables that its steps make."""
        return sum(step.lowered.out_cells for step in self.steps)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the tables that it decides by."""
        return tuple(table for bucket in self.buckets for mini in bucket for table in mini.tables)

    @cached_property
    def checks(self) -> int:
        """Look-ups in tables that the steps of one message take."""
        minima = [step for matching in self.matchings if matching is not None for step in matching.minima]
        return sum(step.lowered.cells * len(step.inputs) for step in (*self.steps, *minima))

    @cached_property
    def matched_cells(self) -> int:
        """Cells of all tables that matching holds at once, and of shares; 0 where nothing is matched."""
        if not self.matchings:
            return 0
        common = [step.lowered.out_cells for matching in self.matchings if matching for step in matching.minima]
        return sum(math.prod(self.sizes[v] for v in axes) for axes in self.axes) + 4 * sum(common)

    @cached_property
    def value_checks(self) -> int:
        """Look-ups that deciding on its own variables takes."""
        tables = [sum(len(mini.tables) for mini in bucket) for bucket in self.buckets]
        return sum(size * count for size, count in zip(reversed(self.dims), tables, strict=False))

    @property
    def exact(self) -> bool:
        """Whether no bucket was split."""
        return all(len(bucket) < 2 for bucket in self.buckets)


@dataclass(frozen=True)
class FixedVariables:
    """Variables that an agent handles one state at a time: its context, and the variables that it iterates."""

    context: Scope = ()
    iterated: Scope = ()


def plan_agents(
    dcop: Dcop,
    tree: PseudoTree,
    semiring: Semiring,
    *,
    z: int | None = None,
    fixed: Mapping[int, FixedVariables] | None = None,
    single: bool = False,
    matched: bool = False,
) -> dict[int, AgentPlan]:
    """Plan every agent, children first.

    Parameters
    ----------
    dcop : Dcop
    tree : PseudoTree
    semiring : Semiring
        The semiring that steps are lowered for.
    z : int, optional
        Most variables of a mini-bucket.
    fixed : mapping of int to Fixed, optional
        By agent; see :class:`FixedVariables`.
    single : bool
        Whether a message is one table over the whole separator.
    matched : bool
        Whether parts of split buckets are matched; the steps of such agents are lowered for ``WORK``.
    """
    work = _Planning(dcop, tree, semiring, Size(variables=z), fixed or {}, single, matched)
    return {agent: work.plan(agent) for agent in reversed(tree.walk)}


def own_functions(dcop: Dcop, tree: PseudoTree) -> list[list[int]]:
    """Return the functions of each agent, those whose lowest agent it is; constants belong to no agent."""
    found: list[list[int]] = [[] for _ in dcop.agents]
    for k, function in enumerate(dcop.model.functions):
        if function.scope:
            found[max((dcop.owners[v] for v in function.scope), key=tree.depths.__getitem__)].append(k)
    return found


class _Planning:
    """The state of planning."""

    def __init__(
        self,
        dcop: Dcop,
        tree: PseudoTree,
        semiring: Semiring,
        size: Size,
        fixed: Mapping[int, FixedVariables],
        single: bool,
        matched: bool,
    ) -> None:
        self.dcop, self.tree, self.semiring = dcop, tree, semiring
        self.size, self.fixed, self.single, self.matched = size, fixed, single, matched
        self.functions = own_functions(dcop, tree)
        self.orders = _own_orders(dcop, tree, self.functions)
        # the place of a variable on every branch: from the root on, within an agent the first eliminated last
        above = sorted(tree.walk, key=tree.depths.__getitem__)
        walk = (v for agent in above for v in reversed(self.orders[agent]))
        self.rank = {v: place for place, v in enumerate(walk)}
        self.sent: dict[int, tuple[Scope, ...]] = {}

    def plan(self, agent: int) -> AgentPlan:
        """Plan the tables, eliminations and outgoing messages of an agent, once its children are planned.

        Parameters
        ----------
        agent : int
            Index of an agent; the messages of its children are known.
        """
        model, own = self.dcop.model, self.orders[agent]
        functions = tuple(self.functions[agent])
        observed = tuple(v for v in own if v in model.evidence)
        scopes = [*(model.functions[f].scope for f in functions), *((v,) for v in observed)]
        incoming = []
        for child in self.tree.children[agent]:
            incoming.append((child, tuple(range(len(scopes), len(scopes) + len(self.sent[child])))))
            scopes += self.sent[child]
        above = {v for scope in scopes for v in scope}.difference(own)
        variables = (*sorted(above, key=self.rank.__getitem__), *reversed(own))
        dims = tuple(model.dims[v] for v in variables)
        fixed = self.fixed.get(agent, FixedVariables())
        sizes = tuple(1 if v in (*fixed.context, *fixed.iterated) else model.dims[v] for v in variables)
        local = {v: place for place, v in enumerate(variables)}
        # tables are laid out by local numbers: variables above first, in the order of ranks, own variables last
        axes = [tuple(sorted(local[v] for v in scope)) for scope in scopes]
        split = partition(dims, axes, range(len(dims))[::-1], self.size)
        buckets = split.buckets[: len(own)]
        matchings = self._matchings(split, buckets, len(axes)) if self.matched else ()
        steps, outgoing = self._steps(split, buckets, matchings, len(axes), sizes)
        axes += [step.axes for step in steps]
        plan = AgentPlan(
            *(variables, len(own), dims, sizes, functions, observed, tuple(incoming), tuple(axes), buckets),
            *(steps, outgoing, fixed.context, fixed.iterated, matchings),
        )
        self.sent[agent] = plan.sent
        return plan

    def _matchings(
        self, split: Partition, buckets: Sequence[tuple[MiniBucket, ...]], tables: int
    ) -> tuple[Matching | None, ...]:
        """Return the matchings of split buckets, numbered after all other tables; empty without split buckets."""
        if all(len(bucket) < 2 for bucket in buckets):
            return ()
        number = tables + sum(map(len, buckets))
        found: list[Matching | None] = []
        for bucket in buckets:
            if len(bucket) < 2:
                found.append(None)
                continue
            common, minima = split.shared(bucket), []
            for mini in bucket:
                inputs = tuple(split.scopes[table] for table in mini.tables)
                minima.append(make_step(number, mini.tables, inputs, common, split.dims, WORK))
                number += 1
            found.append(Matching(tuple(minima), tuple(range(number, number + len(bucket)))))
            number += len(bucket)
        return tuple(found)

    def _steps(
        self,
        split: Partition,
        buckets: Sequence[tuple[MiniBucket, ...]],
        matchings: Sequence[Matching | None],
        tables: int,
        sizes: Sequence[int],
    ) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Return one step for each mini-bucket, and the numbers of the tables that remain as the message.

        Parameters
        ----------
        split : Partition
            Mini-buckets of the agent's own variables.
        buckets : sequence of tuple of MiniBucket
            The mini-buckets of each own variable, in the order of elimination.
        matchings : sequence of Matching or None
            Moment matching of each bucket; empty without matching.
        tables : int
            Number of tables before the first step.
        sizes : sequence of int
            Number of states of each local variable, 1 for fixed variables.
        """
        steps: list[Step] = []
        semiring = WORK if matchings else self.semiring
        for k, bucket in enumerate(buckets):
            matching = matchings[k] if matchings else None
            for place, mini in enumerate(bucket):
                joined = mini.tables
                scopes = tuple(split.scopes[table] for table in joined)
                if matching is not None:
                    joined, scopes = (*joined, matching.shares[place]), (*scopes, matching.minima[place].axes)
                steps.append(make_step(tables + len(steps), joined, scopes, mini.message, sizes, semiring))
        read = {table for step in steps for table in step.inputs}
        left = tuple(table for table in range(tables + len(steps)) if table not in read)
        # DPOP sends one table to the parent, so the remaining tables are joined
        if self.single and len(left) > 1:
            inputs = tuple(split.scopes[table] for table in left)
            axes = tuple(sorted({v for scope in inputs for v in scope}))
            steps.append(make_step(tables + len(steps), left, inputs, axes, sizes, self.semiring))
            left = (steps[-1].node,)
        return tuple(steps), left


def _own_orders(dcop: Dcop, tree: PseudoTree, functions: Sequence[Sequence[int]]) -> dict[int, Scope]:
    """Return the order in which each agent eliminates its variables: the one whose tables join smallest goes first."""
    return {agent: tuple(joins) for agent, joins in _own_joins(dcop, tree, functions)}


def _own_joins(
    dcop: Dcop, tree: PseudoTree, functions: Sequence[Sequence[int]]
) -> Iterator[tuple[int, dict[int, set[int]]]]:
    """Yield agents, children before their parents, and the variables that are joined to eliminate each of its own."""
    separators: dict[int, set[int]] = {}
    for agent in reversed(tree.walk):
        scopes = [set(dcop.model.functions[f].scope) for f in functions[agent]]
        scopes += [separators[child] for child in tree.children[agent]]
        yield agent, _smallest_first(dcop.model.dims, dcop.owned[agent], [scope for scope in scopes if scope])
        separators[agent] = set().union(*scopes).difference(dcop.owned[agent])


def joint_states(dcop: Dcop, tree: PseudoTree, most: float = math.inf) -> float:
    """Return how many joint states of variables all agents go through; inf where they are more than ``most``."""
    total = 0
    for _, joins in _own_joins(dcop, tree, own_functions(dcop, tree)):
        total += sum(math.prod(dcop.model.dims[v] for v in join) for join in joins.values())
        if total > most:
            return math.inf
    return total


def _smallest_first(dims: Sequence[int], own: Sequence[int], scopes: list[set[int]]) -> dict[int, set[int]]:
    left, order = dict.fromkeys(own), dict[int, set[int]]()
    while left:
        joins = {v: set().union(*(scope for scope in scopes if v in scope)) for v in left}
        chosen = min(left, key=lambda v: (math.prod(dims[u] for u in joins[v]), v))
        del left[chosen]
        order[chosen] = joins[chosen]
        scopes = [scope for scope in scopes if chosen not in scope]
        scopes += [joins[chosen] - {chosen}] if joins[chosen] else []
    return order
