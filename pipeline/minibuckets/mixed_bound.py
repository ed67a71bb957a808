"""Marginal MAP from above by weighted mini-buckets whose shares and weights are made better, pass after pass.

Buckets of summed variables come first, and are split by Hölder's inequality with weights that add up to 1. Buckets of
maximised variables follow, and are split with weights of 0. After each pass up, a pass down computes the belief of the
rest about each part of a bucket. The next pass up makes the parts agree on this belief, and gives more weight to surer
parts (Liu and Ihler, Bounding the partition function using Hölder's inequality, ICML 2011; Variational algorithms for
marginal MAP, JMLR 2013; Marinescu, Lee, Dechter and Ihler, AND/OR search for marginal MAP, JAIR 2018).

Each pass up gives a valid bound for any shares and weights. Tables are natural logarithms, with -inf for impossible
assignments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import ordered_sum
from ..cost_networks.cost_network import CostTable
from .joins import SHORT_STATES, BucketPolicy, reduced
from .log_sums import ROUNDING, magnitude
from .partition import MiniBucket, Partition, Scope

# Sums of powers of logarithmic tables, with -inf for impossible assignments and one axis for each variable.


def powered(logs: Array, axes: tuple[int, ...], weight: float) -> Array:
    """Return logarithms of sums of powers ``1 / weight``, to the power ``weight``, over some axes; maxima for 0."""
    if not axes:
        return logs
    most = SHORT_STATES
    top = reduced(np.maximum, logs, axes, most)
    if not weight:
        return top
    low = np.where(top == -np.inf, 0.0, top)
    scaled = logs - low.reshape([1 if axis in axes else n for axis, n in enumerate(logs.shape)])
    scaled /= weight
    sums: Array = np.log(reduced(np.add, np.exp(scaled, out=scaled), axes, most))
    sums *= weight
    sums += low
    return sums


def conditional_entropy(belief: Array, top: float, weight: float) -> float:
    """Return the entropy of the last variable given the others, under a belief."""
    joint = np.exp((belief - top) / weight)
    rest = joint.sum(axis=-1, keepdims=True)
    return -float(np.sum(np.where(joint > 0, joint * np.log(joint / rest), 0.0)))


def spread_over(table: Array, scope: Scope, wide: Scope) -> Array:
    """Return a table with additional axes of length 1 for the missing variables of a wider scope, in the same order."""
    sizes = dict(zip(scope, table.shape, strict=True))
    return table.reshape([sizes.get(v, 1) for v in wide])


def laid_along(table: CostTable, scope: Scope) -> Array:
    """Return a table's values with its variables in the order of a scope."""
    return np.transpose(table.costs, [table.scope.index(v) for v in scope])


# First step sizes of a pass, before it starts again: how far parts of a split bucket move towards each other, and
# how far their weights move; and the minimum weight. Moving the weights is worth much more than moving the shares
# alone.
_SHARE_STEP: Final = 0.5
_LEAST_STEP: Final = 0.02
_WEIGHT_STEP: Final = 4.0
# Maxima are compared softly, as sums with this weight, and less so after each pass that was worse: without that
# 75-26-5 came to -14.4.
_HEAT: Final = 0.2
_COOLING: Final = 0.7
_LEAST_HEAT: Final = 0.005
# First step sizes of a pass, before it starts again: how far parts of a split bucket move towards each other, and
# how far their weights move; and the minimum weight. Moving the weights is worth much more than moving the shares
# alone.
_LEAST_WEIGHT: Final = 1e-3
# Passes that gain less than this fraction of the bound count as failed.
_LEAST_GAIN: Final = 1e-4

Array = NDArray[Any]


@dataclass(eq=False)
class MiniNode:
    """A mini-bucket with the results of passes.

    Parameters
    ----------
    mini : MiniBucket
    table : ndarray
        The model's own functions, an axis for each variable of the scope, the eliminated one last.
    below : tuple of MiniNode
        The nodes that send it their messages.
    weight : float
        0 for a maximum.
    """

    mini: MiniBucket
    table: Array
    below: tuple[MiniNode, ...]
    weight: float
    above: MiniNode | None = None
    size: float = 0.0
    top: float = 0.0
    share: Array | None = None
    joined: Array = field(default_factory=lambda: np.empty(0))
    up: Array = field(default_factory=lambda: np.empty(0))
    down: Array | None = None

    def join(self, common: Scope) -> None:
        """Add up functions, messages from below and the bucket's share."""
        joined = self.table
        for node in self.below:
            joined = joined + spread_over(node.up, node.mini.message, self.mini.scope)
        if self.share is not None:
            joined = joined + spread_over(self.share, common, self.mini.scope)
        self.joined = joined

    @property
    def belief(self) -> Array:
        """The join with the message from above."""
        return self.joined if self.down is None else self.joined + self.down[..., None]

    def gone(self, kept: Collection[int]) -> tuple[int, ...]:
        """Axes of variables that are not kept."""
        return tuple([axis for axis, v in enumerate(self.mini.scope) if v not in kept])


class MixedBound:
    """The state of passes over one partition.

    Parameters
    ----------
    split : Partition
        Along an order whose first variables are summed out.
    tables : sequence of CostTable
        Logarithms.
    maximized : collection of int
    """

    def __init__(self, split: Partition, tables: Sequence[CostTable], maximized: Collection[int]) -> None:
        self.split, self.maximized = split, maximized
        self.buckets: list[tuple[MiniNode, ...]] = []
        self.best, self.slack = math.inf, 0.0
        policy = BucketPolicy.current()
        self._step, self._heat, self._policy = _SHARE_STEP, _HEAT, policy
        self._build([laid_along(table, scope) for table, scope in zip(tables, split.scopes, strict=False)])
        self._saved: list[tuple[Array | None, float]] = []
        self._is_best = True

    def _build(self, tables: Sequence[Array]) -> None:
        made: dict[int, MiniNode] = {}
        number = len(tables)
        for v, bucket in zip(self.split.order, self.split.buckets, strict=True):
            nodes = []
            for mini in bucket:
                table = np.zeros([self.split.dims[u] for u in mini.scope])
                for t in mini.tables:
                    if t < len(tables):
                        table = table + spread_over(tables[t], self.split.scopes[t], mini.scope)
                below = tuple([made[t] for t in mini.tables if t in made])
                node = MiniNode(mini, table, below, 0.0 if v in self.maximized else 1 / len(bucket))
                node.size = magnitude(table) * len(mini.tables)
                for other in below:
                    other.above = node
                nodes.append(node)
                made[number] = node
                number += 1
            self.buckets.append(tuple(nodes))

    def improve(self, stop: Callable[[], bool], patience: int) -> float:
        """Return the least upper bound of passes, until it is to stop or passes gain little.

        Parameters
        ----------
        stop : callable
            Asked before each pass but the first.
        patience : int
            Ends once ``patience`` passes together gained less than a small fraction of the bound.

        Returns
        -------
        float
            A natural logarithm, rounded upwards; -inf if nothing is possible.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._improved(stop, patience)

    def _improved(self, stop: Callable[[], bool], patience: int) -> float:
        gains: list[float] = []
        while not gains or not stop():
            before, bound = self.best, self._up()
            if bound == -math.inf:
                self.best = bound
                return bound
            gains.append(before - bound if before < math.inf else math.inf)
            self._judge(bound)
            if ordered_sum(gains[-patience:]) < _LEAST_GAIN * (1 + abs(self.best)) and len(gains) >= patience:
                break
            if self.split.exact:
                break
            self._down()
        self._restore()
        return self.best

    def left(self, count: int) -> tuple[list[tuple[Scope, Array]], float]:
        """Return the messages that remain after the first buckets (logarithms over other variables, flat), and a number
        to add to them.

        Parameters
        ----------
        count : int
            How many variables were summed out.
        """
        below = [(v, bucket) for v, bucket in zip(self.split.order[:count], self.buckets[:count], strict=True)]
        made = {node for _, bucket in below for node in bucket}
        kept = [node for node in made if node.mini.message and (node.above is None or node.above not in made)]
        parts = [node.top for node in made] + [math.log(self.split.dims[v]) for v, bucket in below if not bucket]
        total = math.fsum(parts)
        logs = [(node.mini.message, node.up.reshape(-1)) for node in kept]
        return logs, total + self.slack + ROUNDING * (abs(total) + len(parts))

    def decoded(self) -> dict[int, int]:
        """Return states of the maximised variables, each the best by the messages given the states decided before."""
        states: dict[int, int] = {}
        for v, bucket in zip(reversed(self.split.order), reversed(self.buckets), strict=True):
            if v not in self.maximized:
                break
            scores = np.zeros(self.split.dims[v])
            for node in bucket:
                scores = scores + node.joined[tuple([states[u] for u in node.mini.message])]
            states[v] = int(np.argmax(scores))
        return states

    def _judge(self, bound: float) -> None:
        """Keep shares and weights that are better than all before; go back to the best ones from worse, more slowly."""
        if bound < self.best:
            self.best, self._is_best = bound, True
            self._saved = [(node.share, node.weight) for node in self._parts]
            self._step = min(self._step * 1.2, 1.0)
            return
        self._step /= 2
        self._heat = max(self._heat * _COOLING, _LEAST_HEAT)
        if self._step < _LEAST_STEP:
            self._step = _SHARE_STEP
        self._is_best = False
        self._restore()

    @property
    def _parts(self) -> list[MiniNode]:
        return [node for bucket in self.buckets if len(bucket) > 1 for node in bucket]

    def _restore(self) -> None:
        """Send messages with the best shares and weights, if the last pass had others."""
        if self._is_best:
            return
        for node, (share, weight) in zip(self._parts, self._saved, strict=True):
            node.share, node.weight = share, weight
        self._is_best = True
        self._pass(0.0)

    def _softness(self, node: MiniNode) -> float:
        """Return the weight for comparing beliefs.

        It is positive even for maxima, because shares would otherwise soon stop moving.
        """
        return max(node.weight, self._heat)

    def _up(self) -> float:
        return self._pass(1.0 if math.isinf(self.best) else self._step)

    def _pass(self, step: float) -> float:
        """Send messages up, after parts of buckets were moved towards each other by a step; return the bound."""
        parts, self.slack = [], 0.0
        for v, bucket in zip(self.split.order, self.buckets, strict=True):
            if not bucket and v not in self.maximized:
                parts.append(math.log(self.split.dims[v]))
            common = self.split.shared([node.mini for node in bucket]) if len(bucket) > 1 else ()
            for node in bucket:
                node.join(common)
            if len(bucket) > 1:
                self._agree(bucket, common, step)
            for node in bucket:
                if (top := self._send(node)) == -math.inf:
                    return top
                parts.append(top)
        total = math.fsum(parts)
        return total + self.slack + ROUNDING * (abs(total) + len(parts))

    def _agree(self, bucket: Sequence[MiniNode], common: Scope, step: float) -> None:
        """Move the parts of a bucket towards each other, on what they share; states that one excludes go from all."""
        beliefs, soft = [node.belief for node in bucket], [self._softness(node) for node in bucket]
        logs = [powered(b, n.gone(common), w) for b, n, w in zip(beliefs, bucket, soft, strict=True)]
        dead = np.logical_or.reduce([log == -np.inf for log in logs])
        if dead.all():
            bucket[0].joined = np.full_like(bucket[0].joined, -np.inf)
            return
        if step:
            tops = [float(powered(log, tuple(range(log.ndim)), w)) for log, w in zip(logs, soft, strict=True)]
            if bucket[0].weight > 0:
                self._weigh(bucket, beliefs, tops, step)
            self._shift(
                bucket, common, [np.where(dead, 0.0, log - top) for log, top in zip(logs, tops, strict=True)], step
            )
        if dead.any():
            mask = np.where(dead, -np.inf, 0.0)
            for node in bucket:
                node.joined = node.joined + spread_over(mask, common, node.mini.scope)

    def _shift(self, bucket: Sequence[MiniNode], common: Scope, logs: Sequence[Array], step: float) -> None:
        """Change shares by a step, so that they still add up to nothing."""
        total = ordered_sum(node.weight for node in bucket)
        together = np.add.reduce(logs)
        others = np.zeros_like(together)
        for node, log in zip(bucket, logs, strict=True):
            part = node.weight / total if total else 1 / len(bucket)
            before = np.zeros_like(together) if node.share is None else node.share
            share = -others if node is bucket[-1] else before + step * (part * together - log)
            others = others + share
            node.joined = node.joined + spread_over(share - before, common, node.mini.scope)
            node.share = share

    def _weigh(self, bucket: Sequence[MiniNode], beliefs: Sequence[Array], tops: Sequence[float], step: float) -> None:
        """Give weight to the parts that are surer of the variable than others."""
        own = [conditional_entropy(b, top, n.weight) for b, top, n in zip(beliefs, tops, bucket, strict=True)]
        mean = ordered_sum(node.weight * entropy for node, entropy in zip(bucket, own, strict=True))
        steps = [max(-1.0, min(1.0, _WEIGHT_STEP * step * (mean - entropy))) for entropy in own]
        raised = [max(node.weight * math.exp(s), _LEAST_WEIGHT) for node, s in zip(bucket, steps, strict=True)]
        for node, weight in zip(bucket, raised, strict=True):
            node.weight = weight / ordered_sum(raised)

    def _send(self, node: MiniNode) -> float:
        """Make a node's message, and return its contribution to the bound."""
        message = powered(node.joined, (node.joined.ndim - 1,), node.weight)
        top = float(message.max())
        if top == -math.inf:
            return top
        node.up, node.top = message - top, top
        spread = node.size + ordered_sum(magnitude(other.up) for other in node.below)
        spread += 0.0 if node.share is None else 2 * magnitude(node.share)
        self.slack += ROUNDING * (len(node.mini.tables) + node.joined.shape[-1] + 4) * (spread + abs(top) + 8)
        return top

    def _down(self) -> None:
        """Tell each node what the rest above it says of its message."""
        for bucket in reversed(self.buckets):
            for node in bucket:
                above = node.above
                if above is None:
                    continue
                soft = self._softness(above)
                log = powered(above.belief, above.gone(node.mini.message), soft)
                top = float(powered(log, tuple(range(log.ndim)), soft))
                if top == -math.inf:
                    continue
                log = (log - top) * (self._softness(node) / soft)
                node.down = np.where(node.up == -np.inf, 0.0, log - np.where(node.up == -np.inf, 0.0, node.up))
