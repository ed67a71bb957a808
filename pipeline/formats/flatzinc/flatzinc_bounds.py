"""Bounds propagation: implications of FlatZinc constraints for wide domains, before any table is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from math import isqrt
from typing import Any

from ..constraint_functions import NEGATED, RELATIONS, without_strict
from ..linear.integer_domains import FINITE, IntegerDomains, LinearRow, NoValueError, Propagator, tighten
from .flatzinc_syntax import FlatConstraint, Given, Operand, operands_of

Tighten = Callable[..., None]
Ends = tuple[int, int]


def linear_row(terms: Sequence[tuple[int, Operand]], relation: str, right: int) -> LinearRow:
    """Return the row of (coefficient, operand) pairs; relations may be strict."""
    relation, right = without_strict(relation, right)
    right -= sum(weight * each for weight, each in terms if isinstance(each, int))
    return LinearRow.of(((each[0], weight) for weight, each in terms if isinstance(each, tuple)), relation, right)


def rows_of(name: str, given: Sequence[Given]) -> Iterator[LinearRow]:
    """Yield the linear rows that a constraint is equivalent to, or implies; none if it is not linear."""
    kind, _, rest = name.partition("_")
    if kind in ("int", "bool") and rest in RELATIONS and len(given) == 2:
        yield linear_row([(1, given[0]), (-1, given[1])], RELATIONS[rest], 0)
    elif kind in ("int", "bool") and rest.removeprefix("lin_") in RELATIONS and len(given) == 3:
        weights, operands, right = given
        if len(weights) == len(operands):
            yield linear_row([*zip(weights, operands, strict=True), (-1, right)], RELATIONS[rest[4:]], 0)
    elif name in ("int_plus", "int_minus"):
        yield linear_row([(1, given[0]), (1 if name == "int_plus" else -1, given[1]), (-1, given[2])], "=", 0)
    elif name in ("int_negate", "bool2int"):
        yield linear_row([(1, given[0]), (1 if name == "int_negate" else -1, given[1])], "=", 0)
    elif name in _ORDERED:
        for first, second in pairwise(given[0]):
            yield linear_row([(1, first), (-1, second)], _ORDERED[name], 0)


_ORDERED = {
    "all_equal": "=",
    "alleq": "=",
    "increasing": "<=",
    "increasing_nonstrict": "<=",
    "strictly_increasing": "<",
    "decreasing": ">=",
    "strictly_decreasing": ">",
}


def propagators_of(plain: str, constraint: FlatConstraint) -> Iterator[Propagator]:
    """Yield what a constraint implies for domains; nothing for constraints that rarely bound a wide domain.

    Parameters
    ----------
    plain : str
        The name without prefixes of solvers.
    constraint : FlatConstraint
        Checked against the letters of its kind.
    """
    given = constraint.given
    variables = tuple({each[0] for each in operands_of([*given]) if isinstance(each, tuple)})
    for row in rows_of(plain, given):
        yield Propagator(tuple(v for v, _ in row.weights), partial(tighten, row=row))
    stem, _, told = plain.rpartition("_")
    if told in ("reif", "imp"):
        rows = [*rows_of(stem, given[:-1])]
        if len(rows) == 1:
            yield Propagator(variables, lambda domains: _told(domains, rows[0], given[-1], told == "reif"))
        elif stem == "set_in":
            yield Propagator(variables, lambda domains: _told_set(domains, *given))
    elif plain in _TIGHTENED:
        yield Propagator(variables, lambda domains: _TIGHTENED[plain](domains, *given))


def _ends(domains: IntegerDomains, operand: Operand) -> Ends:
    if isinstance(operand, tuple):
        return domains.low[operand[0]], domains.high[operand[0]]
    return operand, operand


def _between(domains: IntegerDomains, operand: Operand, low: int, high: int) -> None:
    if isinstance(operand, tuple):
        domains.between(operand[0], low, high)
    elif not low <= operand <= high:
        raise NoValueError


def _told(domains: IntegerDomains, row: LinearRow, truth: Operand, both: bool) -> None:
    """Tighten a row whose truth value is known, or fix the truth value if the bounds decide the row."""
    low, high = _ends(domains, truth)
    if low == 1:
        tighten(domains, row)
        return
    opposite = linear_row([(a, (v,)) for v, a in row.weights], NEGATED[row.relation], row.right)
    if high == 0:
        if both:
            tighten(domains, opposite)
        return
    least = sum(min(a * domains.low[v], a * domains.high[v]) for v, a in row.weights)
    most = sum(max(a * domains.low[v], a * domains.high[v]) for v, a in row.weights)
    if _fails(least, most, row):
        _between(domains, truth, 0, 0)
    elif both and _fails(least, most, opposite):
        _between(domains, truth, 1, 1)


def _fails(least: int, most: int, row: LinearRow) -> bool:
    if row.relation == "!=":
        return least == most == row.right
    return (row.relation != ">=" and least > row.right) or (row.relation != "<=" and most < row.right)


def _told_set(domains: IntegerDomains, own: Operand, values: Any, truth: Operand) -> None:
    if _ends(domains, truth)[0] == 1:
        _in_set(domains, own, values)


def _in_set(domains: IntegerDomains, own: Operand, values: Any) -> None:
    if isinstance(own, tuple):
        domains.within(own[0], values)
    elif own not in values:
        raise NoValueError


def _times(domains: IntegerDomains, x: Operand, y: Operand, z: Operand) -> None:
    ends = _ends(domains, x), _ends(domains, y)
    corners = [a * b for a, b in product(*ends)]
    _between(domains, z, 0 if x == y and min(corners) < 0 else min(corners), max(corners))
    low, high = _ends(domains, z)
    if x == y and high < FINITE:
        _between(domains, x, -isqrt(max(0, high)), isqrt(max(0, high)))
        return
    for own, other in ((x, y), (y, x)):
        least, most = _ends(domains, other)
        most_product = max(abs(low), abs(high))
        if most_product >= FINITE:
            return
        if least > 0 or most < 0:
            if most < 0:
                least, most, low, high = -most, -least, -high, -low
            floor = min(-(-low // least), -(-low // most))
            _between(domains, own, floor, max(high // least, high // most))
            low, high = _ends(domains, z)
        elif low > 0 or high < 0:
            _between(domains, own, -most_product, most_product)


def _quotients(domains: IntegerDomains, x: Operand, y: Operand) -> list[int]:
    """Return the quotients, towards 0, at the ends of two intervals; none if the divisor is 0."""
    least, most = _ends(domains, y)
    divisors = {each for each in (least, most, -1, 1) if each and least <= each <= most}
    if not divisors:
        raise NoValueError
    return [abs(a) // abs(b) * (1 if (a > 0) == (b > 0) else -1) for a, b in product(_ends(domains, x), divisors)]


def _div(domains: IntegerDomains, x: Operand, y: Operand, z: Operand) -> None:
    found = _quotients(domains, x, y)
    _between(domains, z, min(found), max(found))
    size = (max(map(abs, _ends(domains, z))) + 1) * max(map(abs, _ends(domains, y))) - 1
    _between(domains, x, -size, size)


def _mod(domains: IntegerDomains, x: Operand, y: Operand, z: Operand) -> None:
    (low, high), most = _ends(domains, x), max(map(abs, _ends(domains, y))) - 1
    if most < 0:
        raise NoValueError
    _between(domains, z, max(-most, min(low, 0)), min(most, max(high, 0)))


def _pow(domains: IntegerDomains, x: Operand, y: Operand, z: Operand) -> None:
    base, exponent = max(1, *map(abs, _ends(domains, x))), max(0, _ends(domains, y)[1])
    if exponent * (base.bit_length() - 1) > FINITE.bit_length():
        return
    most = base**exponent
    _between(domains, z, 0 if _ends(domains, x)[0] >= 0 else -most, most)


def _abs(domains: IntegerDomains, x: Operand, z: Operand) -> None:
    low, high = _ends(domains, x)
    _between(domains, z, max(0, low, -high), max(-low, high))
    _between(domains, x, -_ends(domains, z)[1], _ends(domains, z)[1])
    members = domains.listed(z[0]) if isinstance(z, tuple) else None
    if isinstance(x, tuple) and members is not None and 2 * len(members) < domains.size(x[0]):
        domains.within(x[0], {sign * value for value in members for sign in (1, -1)})


def _extreme(
    extreme: Callable[[Iterable[int]], int], domains: IntegerDomains, z: Operand, operands: Sequence[Operand]
) -> None:
    """Narrow the least (``min``) or the greatest (``max``) of operands, and the operands."""
    if not operands:
        return
    ends = [_ends(domains, each) for each in operands]
    _between(domains, z, extreme(low for low, _ in ends), extreme(high for _, high in ends))
    for each in operands:
        (low, high), (least, greatest) = _ends(domains, each), _ends(domains, z)
        _between(domains, each, least if extreme is min else low, greatest if extreme is max else high)


def _element(domains: IntegerDomains, index: Operand, entries: Sequence[Operand], output: Operand) -> None:
    _between(domains, index, 1, len(entries))
    low, high = _ends(domains, output)
    reached = range(_ends(domains, index)[0], _ends(domains, index)[1] + 1)
    places = [
        k for k in reached if _ends(domains, entries[k - 1])[0] <= high and _ends(domains, entries[k - 1])[1] >= low
    ]
    if not places:
        raise NoValueError
    _between(domains, index, places[0], places[-1])
    _between(
        domains,
        output,
        min(_ends(domains, entries[k - 1])[0] for k in places),
        max(_ends(domains, entries[k - 1])[1] for k in places),
    )
    if len(places) == 1:
        _between(domains, entries[places[0] - 1], *_ends(domains, output))
    constants = {each for k in places if isinstance(each := entries[k - 1], int)}
    if all(isinstance(entries[k - 1], int) for k in places) and isinstance(output, tuple):
        domains.within(output[0], constants)


def _table(domains: IntegerDomains, operands: Sequence[Operand], entries: Sequence[int]) -> None:
    if operands and len(entries) % len(operands) == 0:
        for k, each in enumerate(operands):
            _in_set(domains, each, frozenset(entries[k :: len(operands)]))


def _closed(domains: IntegerDomains, operands: Sequence[Operand], cover: Sequence[int], *_: Any) -> None:
    for each in operands:
        _in_set(domains, each, frozenset(cover))


def _inside(domains: IntegerDomains, first: Sequence[Operand], second: Sequence[Operand]) -> None:
    for own, other in ((first, second), (second, first)):
        for each in own:
            _between(domains, each, 1, len(other))


def _number(domains: IntegerDomains, number: Operand, operands: Sequence[Operand], *_: Any) -> None:
    _between(domains, number, 0, len(operands))


def _word(domains: IntegerDomains, operands: Sequence[Operand], _: int, symbols: int, *__: Any) -> None:
    for each in operands:
        _between(domains, each, 1, symbols)


_TIGHTENED: Mapping[str, Tighten] = {
    "int_times": _times,
    "int_div": _div,
    "int_mod": _mod,
    "int_pow": _pow,
    "int_abs": _abs,
    "int_max": lambda domains, x, y, z: _extreme(max, domains, z, [x, y]),
    "int_min": lambda domains, x, y, z: _extreme(min, domains, z, [x, y]),
    **dict.fromkeys(("array_int_maximum", "maximum"), partial(_extreme, max)),
    **dict.fromkeys(("array_int_minimum", "minimum"), partial(_extreme, min)),
    **dict.fromkeys((f"array_{var}{kind}_element" for var in ("", "var_") for kind in ("int", "bool")), _element),
    "set_in": _in_set,
    "table": _table,
    "global_cardinality_closed": _closed,
    "global_cardinality_low_up_closed": _closed,
    "inverse": _inside,
    **dict.fromkeys(("among", "nvalue"), _number),
    "count": lambda domains, operands, _, number: _number(domains, number, operands),
    "count_eq": lambda domains, operands, _, number: _number(domains, number, operands),
    "regular": _word,
}
