"""Integer domains as bounds and a step, and what linear constraints imply for them (bounds propagation).

A constraint ``sum(a[j] * x[j]) <= b`` implies ``a[i] * x[i] <= b - min(sum of the other terms)``. An equation implies
both bounds, and a residue: ``a[i] * x[i]`` is congruent to ``b`` minus the other terms, modulo the gcd of ``a[j] *
step[j]`` over the other terms. An equation ``d * y = p * x + q`` expresses ``y`` by ``x`` (affine aggregation). A table
of a domain is built only when a reader needs it. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import gcd, lcm

from ....tasks.steps.number_limits import LARGEST_DECIMAL

FINITE = 10**30
"""Bounds beyond this one are not used. Sums and products of finite terms stay far below ``UNBOUNDED``."""
UNBOUNDED = FINITE**2
"""The bound of a variable without bounds. No sum of finite terms comes near it."""
# Bounds of a constraint such as x < y and y < x move by one at a time: propagation may stop early, which is sound.
_CALLS_PER_PROPAGATOR = 64


class NoValueError(Exception):
    """A variable has no value left: the constraints contradict each other."""


@dataclass(frozen=True)
class LinearRow:
    """A linear constraint over integer variables.

    Parameters
    ----------
    weights : tuple of (int, int)
        Variables, each once, with their coefficients, which are not 0.
    relation : {"<=", ">=", "=", "!="}
    right : int
    """

    weights: tuple[tuple[int, int], ...]
    relation: str
    right: int

    @classmethod
    def of(cls, terms: Iterable[tuple[int, int]], relation: str, right: int) -> LinearRow:
        """Return the row of (variable, coefficient) pairs; coefficients of the same variable are added."""
        own: dict[int, int] = {}
        for v, weight in terms:
            own[v] = own.get(v, 0) + weight
        return cls(tuple((v, weight) for v, weight in own.items() if weight), relation, right)


def ends_of(values: range | Collection[int]) -> tuple[int, int]:
    """Return the least and the greatest of some integers, without a walk over a range."""
    if isinstance(values, range):
        return min(values[0], values[-1]), max(values[0], values[-1])
    return min(values), max(values)


class IntegerDomains:
    """The domains of integer variables, which propagation reduces.

    Parameters
    ----------
    domains : sequence of range, collection of int or None
        The values of each variable; None for any integer.
    """

    def __init__(self, domains: Sequence[range | Collection[int] | None]) -> None:
        self.low: list[int] = []
        self.high: list[int] = []
        self.step: list[int] = []
        self.residue: list[int] = []
        self._members: list[tuple[int, ...] | None] = []
        self.changed: list[int] = []
        for own in domains:
            contiguous = isinstance(own, range) and own.step == 1
            members = None if own is None or contiguous else tuple(sorted(own))
            low, high = (-UNBOUNDED, UNBOUNDED) if own is None else ends_of(own)
            self.low.append(low)
            self.high.append(high)
            self.step.append(1)
            self.residue.append(0)
            self._members.append(members)

    def bounded(self, v: int) -> bool:
        """Whether a variable has both bounds."""
        return self.low[v] > -FINITE and self.high[v] < FINITE

    def fixed(self, v: int) -> bool:
        """Whether a variable has one value."""
        return self.low[v] == self.high[v]

    def size(self, v: int) -> int:
        """Return the number of values of a bounded variable, or an upper bound where values were listed."""
        members = self._members[v]
        spread = (self.high[v] - self.low[v]) // self.step[v] + 1
        return spread if members is None else min(spread, len(members))

    def values(self, v: int) -> range | tuple[int, ...]:
        """Return the values of a bounded variable, in order."""
        own = range(self.low[v], self.high[v] + 1, self.step[v])
        members = self._members[v]
        return own if members is None else tuple(value for value in members if value in own)

    def listed(self, v: int) -> tuple[int, ...] | None:
        """Return the values of a variable if they are a list rather than bounds and a step."""
        members = self._members[v]
        return None if members is None else tuple(self.values(v))

    def at_least(self, v: int, bound: int) -> None:
        """Remove the values below a bound."""
        if bound <= self.low[v] or bound <= -FINITE:
            return
        bound += (self.residue[v] - bound) % self.step[v]
        members = self._members[v]
        if members is not None:
            place = bisect_left(members, bound)
            bound = members[place] if place < len(members) else UNBOUNDED
        self._set(v, bound, self.high[v])

    def at_most(self, v: int, bound: int) -> None:
        """Remove the values above a bound."""
        if bound >= self.high[v] or bound >= FINITE:
            return
        bound -= (bound - self.residue[v]) % self.step[v]
        members = self._members[v]
        if members is not None:
            place = bisect_right(members, bound)
            bound = members[place - 1] if place else -UNBOUNDED
        self._set(v, self.low[v], bound)

    def between(self, v: int, low: int, high: int) -> None:
        """Remove the values outside an interval."""
        self.at_least(v, low)
        self.at_most(v, high)

    def within(self, v: int, values: Collection[int]) -> None:
        """Remove the values that are not listed."""
        if isinstance(values, range) and values.step == 1 and values:
            self.between(v, values[0], values[-1])
            return
        own = range(self.low[v], self.high[v] + 1, self.step[v])
        members = self._members[v]
        if members is None and self.bounded(v) and len(values) >= len(own):
            kept = tuple(value for value in own if value in values)
            if len(kept) == len(own):
                return
        else:
            kept = tuple(value for value in members or sorted(values) if value in own and value in values)
            if members is not None and len(kept) == len(members):
                return
        if not kept:
            raise NoValueError
        self._members[v] = kept
        self._set(v, kept[0], kept[-1])

    def congruent(self, v: int, modulus: int, residue: int) -> None:
        """Remove the values that are not congruent to a residue (Chinese remainder theorem)."""
        step, own = self.step[v], self.residue[v]
        common = gcd(step, modulus)
        if (residue - own) % common:
            raise NoValueError
        factor = modulus // common
        if factor == 1 or step * factor > LARGEST_DECIMAL or not self.bounded(v):
            return
        times = (residue - own) // common * pow(step // common, -1, factor) % factor
        self.step[v] = step * factor
        self.residue[v] = (own + step * times) % self.step[v]
        low, high = self.low[v], self.high[v]
        low += (self.residue[v] - low) % self.step[v]
        high -= (high - self.residue[v]) % self.step[v]
        self._set(v, low, high)
        if self._members[v] is not None:
            self.at_least(v, low)
            self.at_most(v, high)

    def _set(self, v: int, low: int, high: int) -> None:
        if low > high:
            raise NoValueError
        self.low[v], self.high[v] = low, high
        self.changed.append(v)


def tighten(domains: IntegerDomains, row: LinearRow) -> None:
    """Remove values that no solution of a linear constraint has (bounds propagation).

    Parameters
    ----------
    domains : IntegerDomains
        Changed in place.
    row : LinearRow
        Weights, relation and right side.
    """
    ends = [(v, a, *sorted((a * domains.low[v], a * domains.high[v]))) for v, a in row.weights]
    if row.relation == "!=":
        free = [(v, a) for v, a, low, high in ends if low != high]
        left = row.right - sum(low for _, _, low, high in ends if low == high)
        if not free and left == 0:
            raise NoValueError
        if len(free) == 1 and left % free[0][1] == 0:
            v, value = free[0][0], left // free[0][1]
            if value == domains.low[v]:
                domains.at_least(v, value + 1)
            elif value == domains.high[v]:
                domains.at_most(v, value - 1)
        return
    least, most = sum(low for *_, low, _ in ends), sum(high for *_, high in ends)
    if (row.relation != ">=" and least > row.right) or (row.relation != "<=" and most < row.right):
        raise NoValueError
    for v, a, low, high in ends:
        if row.relation != ">=":
            _at_most(domains, v, a, row.right - least + low)
        if row.relation != "<=":
            _at_most(domains, v, -a, most - high - row.right)
    if row.relation == "=":
        # an equation also fixes remainders: 2x + 2y = 7 has no solution
        _residues(domains, row)
        if len(row.weights) == 2:
            for (v, a), (other, b) in (row.weights, row.weights[::-1]):
                members = domains.listed(other)
                if members is not None and len(members) < domains.size(v):
                    others = [row.right - b * value for value in members]
                    domains.within(v, {rest // a for rest in others if rest % a == 0})


def _at_most(domains: IntegerDomains, v: int, a: int, bound: int) -> None:
    """Impose ``a * x[v] <= bound``."""
    if a > 0:
        domains.at_most(v, bound // a)
    else:
        domains.at_least(v, -(bound // -a))


def _residues(domains: IntegerDomains, row: LinearRow) -> None:
    """Impose the residues that an equation implies."""
    steps = [0 if domains.fixed(v) else a * domains.step[v] for v, a in row.weights]
    offsets = [a * (domains.low[v] if domains.fixed(v) else domains.residue[v]) for v, a in row.weights]
    total = sum(offsets)
    before = [*accumulate(steps, gcd, initial=0)]
    behind = [*accumulate(reversed(steps), gcd, initial=0)][::-1]
    for k, (v, a) in enumerate(row.weights):
        modulus = gcd(before[k], behind[k + 1])
        common = gcd(a, modulus)
        left = row.right - total + offsets[k]
        if not common:
            continue
        if left % common:
            raise NoValueError
        if (rest := modulus // common) > 1:
            domains.congruent(v, rest, left // common * pow(a // common, -1, rest) % rest)


@dataclass(frozen=True)
class Propagator:
    """The implications of a constraint for domains.

    Parameters
    ----------
    variables : tuple of int
        The variables of the constraint.
    tighten : callable
        Called with the domains; removes values and raises ``NoValueError`` if none is left.
    """

    variables: tuple[int, ...]
    tighten: Callable[[IntegerDomains], None]


def propagate(domains: IntegerDomains, propagators: Sequence[Propagator], tick: Callable[[], None]) -> None:
    """Call propagators until none removes a value, or their calls are spent.

    Parameters
    ----------
    domains : IntegerDomains
    propagators : sequence of Propagator
    tick : callable
        Called before each propagator; it may raise to stop.

    Raises
    ------
    NoValueError
        If a variable has no value left.
    """
    watching: dict[int, list[int]] = {}
    for number, each in enumerate(propagators):
        for v in each.variables:
            watching.setdefault(v, []).append(number)
    queue, queued = deque(range(len(propagators))), [True] * len(propagators)
    for _ in range(_CALLS_PER_PROPAGATOR * len(propagators)):
        if not queue:
            return
        tick()
        number = queue.popleft()
        queued[number] = False
        domains.changed.clear()
        propagators[number].tighten(domains)
        for v in {*domains.changed}:
            for other in watching.get(v, ()):
                if not queued[other]:
                    queued[other] = True
                    queue.append(other)


_LARGEST = 10**12
View = tuple[int, int, int, int]
"""x, p, q and d > 0 of ``d * y = p * x + q``."""


@dataclass
class AffineViews:
    """Expresses variables by others, so that constraints over many variables become constraints over few.

    An equation of two variables stays a constraint of the model: it alone makes its variable the value that the
    expression says. All other constraints may be rewritten.
    """

    _views: dict[int, View] = field(default_factory=dict)
    definitions: dict[LinearRow, LinearRow] = field(default_factory=dict)
    """Equation that defines a view → the same equation of two variables, by views that were known before."""

    @classmethod
    def of(cls, rows: Sequence[LinearRow], domains: IntegerDomains, wide: Collection[int]) -> AffineViews:
        """Collect the views of equations in which a wide variable occurs, until there are no more."""
        views = cls()
        pending = [row for row in rows if row.relation == "=" and any(v in wide for v, _ in row.weights)]
        while True:
            before = len(pending)
            pending = [row for row in pending if not views._learn(row, domains)]
            if len(pending) == before:
                return views

    def _learn(self, row: LinearRow, domains: IntegerDomains) -> bool:
        """Make a view of an equation, if two variables are left in it."""
        if row in self.definitions:
            return True
        known = self.substituted(row)
        if len(known.weights) != 2:
            return False
        (x, a), (y, b) = known.weights
        if domains.size(x) > domains.size(y):
            (x, a), (y, b) = (y, b), (x, a)
        sign = 1 if b > 0 else -1
        view = _reduced(x, -a * sign, known.right * sign, abs(b))
        if max(abs(view[1]), abs(view[2]), view[3]) > _LARGEST:
            return False
        self._views[y] = view
        self.definitions[row] = known
        return True

    def _view(self, v: int) -> View:
        """Return a variable as an expression of a variable that has no expression itself."""
        x, p, q, d = self._views.get(v, (v, 1, 0, 1))
        while x in self._views:
            inner, more, offset, divisor = self._views[x]
            x, p, q, d = _reduced(inner, p * more, p * offset + q * divisor, d * divisor)
        if x != v:
            self._views[v] = x, p, q, d
        return x, p, q, d

    def substituted(self, row: LinearRow) -> LinearRow:
        """Return an equivalent row by variables without views, with coefficients that have no common divisor.

        A row without variables remains where the views decide the constraint.
        """
        views = [(weight, self._view(v)) for v, weight in row.weights]
        scale = lcm(*(view[3] for _, view in views))
        right = scale * row.right - sum(weight * scale // d * q for weight, (_, _, q, d) in views)
        terms = ((x, weight * scale // d * p) for weight, (x, p, _, d) in views)
        return divided(LinearRow.of(terms, row.relation, right))


def divided(row: LinearRow) -> LinearRow:
    """Return a row whose coefficients are divided by their greatest common divisor."""
    common = gcd(*(weight for _, weight in row.weights))
    if common <= 1:
        return row
    right, rest = divmod(row.right, common)
    if rest and row.relation in ("=", "!="):
        return LinearRow((), row.relation, 1)  # 0 = 1 never holds, 0 != 1 always
    right += 1 if rest and row.relation == ">=" else 0
    return LinearRow(tuple((v, weight // common) for v, weight in row.weights), row.relation, right)


def _reduced(x: int, p: int, q: int, d: int) -> View:
    common = gcd(p, q, d)
    return x, p // common, q // common, d // common
