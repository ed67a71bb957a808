"""Variables that equations express by another variable, ``d * y = p * x + q`` (affine aggregation). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import gcd, lcm

from .integer_domains import IntegerDomains, LinearRow

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
