"""Constraints of FlatZinc by name: the standard constraints, and MiniZinc's global constraints with any solver's
prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import eq, gt, lt
from typing import Any

import numpy as np

from ...errors import shorten
from ...models.function import FORBIDDEN
from .. import shared_constraints as shared
from ..constraint_functions import (
    COMPARED,
    NEGATED,
    RELATIONS,
    Condition,
    ConstraintFunctions,
    Numbers,
    without_strict,
)
from ..format_policy import FormatPolicy
from ..global_functions.decomposition import GlobalFunctionError
from .flatzinc_syntax import FlatConstraint, Given, Operand, is_variable

Operands = list[Operand]


def _cumulative(
    functions: ConstraintFunctions, starts: Operands, lengths: Operands, heights: Operands, limit: Any
) -> None:
    for each in (*lengths, *heights):
        functions.linear([1], [each], ">=", 0)
    shared.add_cumulative(functions, starts, lengths, heights, Condition("le", limit))


def _disjunctive(strict: bool) -> Callable[..., None]:
    def add(functions: ConstraintFunctions, starts: Operands, lengths: Operands) -> None:
        boxes = [[each] for each in starts], [[each] for each in lengths]
        shared.add_no_overlap(functions, *boxes, zero_ignored=not strict)

    return add


def _boxes(strict: bool) -> Callable[..., None]:
    def add(functions: ConstraintFunctions, x: Operands, y: Operands, widths: Operands, heights: Operands) -> None:
        origins, lengths = ([[*pair] for pair in zip(*both, strict=True)] for both in ((x, y), (widths, heights)))
        shared.add_no_overlap(functions, origins, lengths, zero_ignored=not strict)

    return add


def _circuit(loops: bool) -> Callable[..., None]:
    def add(functions: ConstraintFunctions, successors: Operands) -> None:
        if successors:
            shared.add_circuit(functions, successors, 1, loops=loops, empty=loops)

    return add


def _bins(functions: ConstraintFunctions, limit: int, items: Operands, sizes: list[int]) -> None:
    bins = {value for each in items for value in shared.values_of(functions, each)}
    shared.add_bins(functions, items, sizes, dict.fromkeys(bins, Condition("le", limit)))


def _numbered_bins(compare: str) -> Callable[..., None]:
    """Return a constraint on the loads of bins 1, 2 and so on, where each item is in a bin."""

    def add(functions: ConstraintFunctions, loads: Operands, items: Operands, sizes: list[int]) -> None:
        for each in items:
            functions.relation([each], lambda own: (own >= 1) & (own <= len(loads)))
        shared.add_bins(functions, items, sizes, {k: Condition(compare, each) for k, each in enumerate(loads, 1)})

    return add


def _extreme_place(better: Callable[[int, int], bool]) -> Callable[..., None]:
    def add(functions: ConstraintFunctions, operands: Operands, place: Operand) -> None:
        shared.add_extreme_place(functions, operands, better, lambda k, wanted: k + 1 == wanted, place, "first")

    return add


def _precedence(functions: ConstraintFunctions, values: list[int], operands: Operands) -> None:
    if len({*values}) == len(values):
        shared.add_precedence(functions, operands, values)
        return
    for pair in pairwise(values):
        if pair[0] != pair[1]:
            shared.add_precedence(functions, operands, pair)


def _positive_precedence(functions: ConstraintFunctions, operands: Operands) -> None:
    for each in operands:
        functions.relation([each], lambda own: own <= len(operands))
    shared.add_precedence(functions, operands, range(1, len(operands) + 1))


def _knapsack(
    functions: ConstraintFunctions, weights: list[int], profits: list[int], items: Operands, weight: Any, profit: Any
) -> None:
    for each in items:
        functions.linear([1], [each], ">=", 0)
    shared.add_linear(functions, weights, items, Condition("eq", weight))
    shared.add_linear(functions, profits, items, Condition("eq", profit))


def _sliding_sum(functions: ConstraintFunctions, low: int, high: int, width: int, operands: Operands) -> None:
    for start in range(len(operands) - width + 1):
        window = operands[start : start + max(width, 0)]
        for relation, right in ((">=", low), ("<=", high)):
            functions.linear([1] * len(window), window, relation, right)


def _inverse(functions: ConstraintFunctions, first: Operands, second: Operands) -> None:
    """Let two lists, which count from 1, be each other's inverses."""
    shared.add_inverse(functions, [*enumerate(first, 1)], [*enumerate(second, 1)])


#: By name: the letters of the arguments, the places of the arguments that are lists of one length, and the handler.
STRUCTURES: Mapping[str, tuple[str, tuple[int, ...], Callable[..., None]]] = {
    "cumulative": ("IIIi", (0, 1, 2), _cumulative),
    "disjunctive": ("II", (0, 1), _disjunctive(strict=False)),
    "disjunctive_strict": ("II", (0, 1), _disjunctive(strict=True)),
    "diffn": ("IIII", (0, 1, 2, 3), _boxes(strict=True)),
    "diffn_nonstrict": ("IIII", (0, 1, 2, 3), _boxes(strict=False)),
    "circuit": ("I", (), _circuit(loops=False)),
    "subcircuit": ("I", (), _circuit(loops=True)),
    "bin_packing": ("cIC", (1, 2), _bins),
    "bin_packing_capa": ("CIC", (1, 2), _numbered_bins("le")),
    "bin_packing_load": ("IIC", (1, 2), _numbered_bins("eq")),
    "value_precede": ("ccI", (), lambda functions, first, second, own: _precedence(functions, [first, second], own)),
    "value_precede_chain": ("CI", (), _precedence),
    "seq_precede_chain": ("I", (), _positive_precedence),
    **dict.fromkeys(("arg_max", "maximum_arg"), ("Ii", (), _extreme_place(gt))),
    **dict.fromkeys(("arg_min", "minimum_arg"), ("Ii", (), _extreme_place(lt))),
    "knapsack": ("CCIii", (0, 1, 2), _knapsack),
    "sliding_sum": ("cccI", (), _sliding_sum),
    "member": ("Ii", (), lambda functions, own, other: shared.add_member(functions, own, eq, other)),
    "symmetric_all_different": ("I", (), lambda functions, own: _inverse(functions, own, own)),
}


_PREFIX = re.compile(r"^(?:fzn|gecode|chuffed|ortools|or_tools|pumpkin|huub|choco)_")
_UNREAD = re.compile(r"(?P<floats>(?:array_(?:var_)?)?float_|int2float)|(?P<sets>(?:array_(?:var_)?)?set_)")
_TYPE = re.compile(r"_(?:int|bool)$")
_WHAT = {
    "i": "an integer or a variable",
    "I": "a list of integers and variables",
    "c": "an integer",
    "C": "a list of integers",
    "s": "a set of integers",
}
_FITS: Mapping[str, Callable[[Given], bool]] = {
    "i": lambda given: isinstance(given, int) or is_variable(given),
    "I": lambda given: isinstance(given, list) and all(isinstance(e, int) or is_variable(e) for e in given),
    "c": lambda given: isinstance(given, int),
    "C": lambda given: isinstance(given, list) and all(isinstance(each, int) for each in given),
    "s": lambda given: isinstance(given, range | frozenset),
}
Handler = Callable[..., None]


@dataclass(frozen=True)
class FlatKind:
    """A kind of constraint: one letter for each argument, and the function that adds it.

    Parameters
    ----------
    letters : str
        An operand ``i``, operands ``I``, an integer ``c``, integers ``C``, a set ``s``.
    add : callable
        Called with the functions and what is given.
    """

    letters: str
    add: Handler


class FlatZincRefusalError(GlobalFunctionError):
    """A constraint that is refused: the expected and the found argument."""


def add_constraint(functions: ConstraintFunctions, constraint: FlatConstraint) -> None:
    """Add a constraint.

    Raises
    ------
    FlatZincRefusalError
        If it is of an unknown name, or is given something else.
    BudgetError
        If it has too many states or joint values.
    """
    kind_of(constraint)[1].add(functions, *constraint.given)


def kind_of(constraint: FlatConstraint) -> tuple[str, FlatKind]:
    """Return the name of a constraint without prefixes of solvers, and its kind, which fits what is given.

    Raises
    ------
    FlatZincRefusalError
        If it is of an unknown name, or is given something else.
    """
    plain = _PREFIX.sub("", constraint.name)
    plain = plain if plain in KINDS else _TYPE.sub("", plain)
    kind = KINDS.get(plain)
    if kind is None and (unread := _UNREAD.match(plain)):
        found = f"{shorten(constraint.name)!r}, which is over {unread.lastgroup}"
        raise FlatZincRefusalError("constraints over integers and booleans", found)
    if kind is None:
        raise FlatZincRefusalError("constraints that are read", f"{shorten(constraint.name)!r}, which is not read")
    given = constraint.given
    if len(given) != len(kind.letters):
        raise FlatZincRefusalError(f"{len(kind.letters)} arguments of {constraint.name!r}", f"{len(given)}")
    for letter, each in zip(kind.letters, given, strict=True):
        if not _FITS[letter](each):
            shown = "a variable" if is_variable(each) else shorten(str(each))
            raise FlatZincRefusalError(f"{_WHAT[letter]} in {constraint.name!r}", shown)
    return plain, kind


def _related(holds: Callable[..., Numbers]) -> Handler:
    """Return a handler that relates values."""
    return lambda functions, *given: functions.relation(given, holds)


def _told(holds: Callable[..., Numbers]) -> Handler:
    """Return a handler whose last operand is true exactly if the other operands are related."""
    return lambda functions, *given: functions.relation(given, lambda *all_: holds(*all_[:-1]) == (all_[-1] != 0))


def _implied(holds: Callable[..., Numbers]) -> Handler:
    """Return a handler whose last operand implies that the other operands are related."""
    return lambda functions, *given: functions.relation(given, lambda *all_: holds(*all_[:-1]) | (all_[-1] == 0))


def _resulting(compute: Callable[..., Numbers], defined: Callable[..., Numbers] | None = None) -> Handler:
    """Return a handler whose last operand equals the computed result of the other operands."""

    def both(*values: Numbers) -> tuple[Numbers, Numbers]:
        where = np.array(True) if defined is None else defined(*values)
        return compute(*values), where

    return lambda functions, *given: functions.result(given[:-1], given[-1], both)


def _quotient(x: Numbers, y: Numbers) -> Numbers:
    """Divide towards 0."""
    whole: Numbers = np.sign(x) * np.sign(y) * (np.abs(x) // np.maximum(np.abs(y), 1))
    return whole


def _has_power(x: Numbers, y: Numbers) -> Numbers:
    """Whether a power is an integer of 62 bits, or 0 or 1 of a negative exponent."""
    small = np.maximum(np.abs(x), 1).astype(np.float64) ** np.maximum(y, 0) < FORBIDDEN
    return np.where(y < 0, x != 0, small)


def _has_product(x: Numbers, y: Numbers) -> Numbers:
    """Whether a product has at most 62 bits: no variable has larger values."""
    found: Numbers = np.abs(x).astype(np.float64) * np.abs(y) < FORBIDDEN
    return found


def _power(x: Numbers, y: Numbers) -> Numbers:
    base, exponent = np.where(_has_power(x, y), x, 0), np.maximum(y, 0)
    negative = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    found: Numbers = np.where(y < 0, negative, base**exponent)
    return found


def _linear(operator: str, told: str) -> Handler:
    """Return a handler that compares a weighted sum, or makes a boolean equivalent to the comparison (reif) or imply it
    (imp).
    """
    relation = RELATIONS[operator]

    def add(
        functions: ConstraintFunctions, weights: list[int], operands: list[Operand], right: Operand, *more: Operand
    ) -> None:
        if len(weights) != len(operands):
            raise FlatZincRefusalError(f"{len(operands)} coefficients", f"{len(weights)}")
        if isinstance(right, tuple):
            weights, operands, right = [*weights, -1], [*operands, right], 0
        truth = more[0] if more else 1
        if isinstance(truth, tuple):
            functions.told_linear(weights, operands, *without_strict(relation, right), truth, both=told == "reif")
        elif truth or told == "reif":
            functions.linear(weights, operands, *without_strict(relation if truth else NEGATED[relation], right))

    return add


def _comparison(small: Handler, operator: str, told: str = "") -> Handler:
    """Return a handler that compares two operands: by a table of values, or as a sum if the table would be large."""

    def add(functions: ConstraintFunctions, x: Operand, y: Operand, *truth: Operand) -> None:
        if functions.cells([x, y]) <= FormatPolicy.current().predicate_cells:
            small(functions, x, y, *truth)
        else:
            _linear(operator, told)(functions, [1, -1], [x, y], 0, *truth)

    return add


def _added(signs: tuple[int, ...], small: Handler) -> Handler:
    """Return a handler that forces a signed sum of operands to 0: by a table of their values, or as a sum if the table
    would be large.
    """

    def add(functions: ConstraintFunctions, *given: Operand) -> None:
        if functions.cells(given[:-1]) <= FormatPolicy.current().predicate_cells:
            small(functions, *given)
        else:
            functions.linear(signs, given, "=", 0)

    return add


def _any(positive: bool, both: bool = True) -> Handler:
    """Return a handler whose boolean is true if any list element is true, or, negated, if all are."""

    def add(functions: ConstraintFunctions, operands: list[Operand], told: Operand) -> None:
        if positive:
            functions.disjunction([(each, True) for each in operands], told, both=both)
        else:
            functions.conjunction([(each, True) for each in operands], told, both=both)

    return add


def _odd(functions: ConstraintFunctions, operands: list[Operand]) -> None:
    """Let the number of true operands be odd."""
    shared.read_operands(functions, operands, 0, lambda own, _, value: own ^ value, lambda own: own == 1)


def _clause(functions: ConstraintFunctions, positive: list[Operand], negative: list[Operand], *told: Operand) -> None:
    literals = [*((each, True) for each in positive), *((each, False) for each in negative)]
    if told:
        functions.disjunction(literals, told[0])
    else:
        functions.clause(literals)


def _element(functions: ConstraintFunctions, index: Operand, entries: list[Operand], output: Operand) -> None:
    """Let an operand be the entry at an index, which counts from 1."""
    if all(isinstance(each, int) for each in entries):
        table = np.array([*entries, 0])
        inside = len(entries)
        functions.result([index], output, lambda k: (table[np.clip(k - 1, -1, inside)], (k >= 1) & (k <= inside)))
        return
    functions.relation([index], lambda k: (k >= 1) & (k <= len(entries)))
    for k, entry in enumerate(entries, 1):
        if k in shared.values_of(functions, index):
            functions.relation([index, entry, output], lambda at, own, out, k=k: (at != k) | (own == out))


def _table(functions: ConstraintFunctions, operands: list[Operand], entries: list[int]) -> None:
    if not operands or len(entries) % len(operands):
        raise FlatZincRefusalError(f"rows of {len(operands)} values", f"{len(entries)} of them")
    functions.parts.allowance.take(0, "the rows of a table", for_now=48 * len(entries))
    functions.listed(operands, np.array(entries, np.int64).reshape(-1, len(operands)))


def _values_in(functions: ConstraintFunctions, operands: Operands, wanted: Any) -> frozenset[int]:
    """Return the values of a set that some operand may have."""
    return frozenset(value for each in operands for value in shared.values_of(functions, each) if value in wanted)


def _count(functions: ConstraintFunctions, operands: Operands, wanted: Any, operator: str, number: Operand) -> None:
    """Compare how many operands have a value, or a value of a set, with an operand."""
    if isinstance(wanted, range | frozenset):  # ranges may be wide, domains are not
        values = [*_values_in(functions, operands, wanted)]
    else:
        values = [wanted]
    shared.add_count(functions, operands, values, Condition(operator, number))


def _counted(operator: str, order: str = "xyc") -> Handler:
    """Return a handler that compares the number of ``x`` with value ``y`` to ``c``, in the given order of arguments."""

    def add(functions: ConstraintFunctions, *given: Any) -> None:
        named = dict(zip(order, given, strict=True))
        _count(functions, named["x"], named["y"], operator, named["c"])

    return add


def _cardinality(
    functions: ConstraintFunctions, operands: list[Operand], cover: list[int], counts: list[Operand]
) -> None:
    if len(cover) != len(counts):
        raise FlatZincRefusalError(f"{len(cover)} counts", f"{len(counts)}")
    for value, count in zip(cover, counts, strict=True):
        _count(functions, operands, value, "eq", count)


def _bounded_cardinality(
    functions: ConstraintFunctions, operands: list[Operand], cover: list[int], lows: list[int], highs: list[int]
) -> None:
    if not len(cover) == len(lows) == len(highs):
        raise FlatZincRefusalError(f"{len(cover)} bounds", f"{len(lows)} and {len(highs)}")
    for value, low, high in zip(cover, lows, highs, strict=True):
        _count(functions, operands, value, "ge", low)
        _count(functions, operands, value, "le", high)


def _closed(add: Handler) -> Handler:
    """Return a handler that also forbids unlisted values."""

    def both(functions: ConstraintFunctions, operands: list[Operand], cover: list[int], *given: Any) -> None:
        for each in operands:
            functions.relation([each], lambda own: np.isin(own, cover))
        add(functions, operands, cover, *given)

    return both


def _number_of_values(functions: ConstraintFunctions, number: Operand, operands: list[Operand]) -> None:
    shared.add_read(functions, operands, frozenset(), lambda seen, value: seen | {value}, len, Condition("eq", number))


def _extreme(choose: Callable[[int, int], int]) -> Handler:
    def add(functions: ConstraintFunctions, output: Operand, operands: list[Operand]) -> None:
        if not operands:
            raise FlatZincRefusalError("a list that is not empty", "an empty one")
        shared.add_extreme(functions, operands, choose, Condition("eq", output))

    return add


def _in_order(operator: str) -> Handler:
    holds = COMPARED[operator]

    def add(functions: ConstraintFunctions, operands: list[Operand]) -> None:
        for pair in pairwise(operands):
            if functions.cells(pair) <= FormatPolicy.current().predicate_cells:
                functions.relation(pair, holds)
            else:
                _linear(operator, "")(functions, [1, -1], [*pair], 0)

    return add


def _regular(
    functions: ConstraintFunctions,
    operands: list[Operand],
    states: int,
    symbols: int,
    moves: list[int],
    start: int,
    ends: Any,
) -> None:
    """Restrict values to the words of an automaton, with states and symbols counted from 1; state 0 fails.

    Parameters
    ----------
    functions : ConstraintFunctions
    operands : list of operand
        The word: variables and constants.
    states, symbols : int
        Numbers of states and symbols.
    moves : list of int
        Following state, by state and symbol in row-major order.
    start : int
    ends : collection of int
        Accepting states.
    """
    if len(moves) != states * symbols or not all(0 <= to <= states for to in moves):
        raise FlatZincRefusalError(f"{states * symbols} states from 0 to {states}", f"{len(moves)} of them, or others")

    def step(state: int, _: int, value: int) -> int | None:
        return moves[(state - 1) * symbols + value - 1] or None if 1 <= value <= symbols else None

    shared.read_operands(functions, operands, start, step, lambda state: state in ends)


def _all_different(functions: ConstraintFunctions, operands: list[Operand], *but: Any) -> None:
    functions.different(operands, _values_in(functions, operands, but[0] if but else ()))


#: Functions by name: their computation on arrays, and their domain of definition if it is partial.
COMPUTED: Mapping[str, tuple[Callable[..., Numbers], Callable[..., Numbers] | None]] = {
    "int_plus": (np.add, None),
    "int_minus": (np.subtract, None),
    "int_times": (np.multiply, _has_product),
    "int_div": (_quotient, lambda x, y: y != 0),
    "int_mod": (lambda x, y: x - y * _quotient(x, y), lambda x, y: y != 0),
    "int_pow": (_power, _has_power),
    "int_min": (np.minimum, None),
    "int_max": (np.maximum, None),
    "int_abs": (np.abs, None),
    "int_negate": (np.negative, None),
}


def _comparisons() -> dict[str, FlatKind]:
    """Return comparisons of integers and booleans, with booleans that tell or imply them, and of sums."""
    kinds: dict[str, FlatKind] = {}
    for operator, holds in COMPARED.items():
        for kind in ("int", "bool"):
            name, sums = f"{kind}_{operator}", f"{kind}_lin_{operator}"
            kinds[name] = FlatKind("ii", _comparison(_related(holds), operator))
            kinds[f"{name}_reif"] = FlatKind("iii", _comparison(_told(holds), operator, "reif"))
            kinds[f"{name}_imp"] = FlatKind("iii", _comparison(_implied(holds), operator, "imp"))
            kinds[sums] = FlatKind("CIi", _linear(operator, ""))
            kinds[f"{sums}_reif"] = FlatKind("CIii", _linear(operator, "reif"))
            kinds[f"{sums}_imp"] = FlatKind("CIii", _linear(operator, "imp"))
    return kinds


def _contained(value: Numbers, values: range | frozenset[int]) -> Numbers:
    """Return where numbers are in a set."""
    if isinstance(values, range):
        return (value >= values.start) & (value < values.stop)
    return np.isin(value, [*values])


def _of_one_length(places: tuple[int, ...], add: Handler) -> Handler:
    """Return a handler that requires equal lengths of the lists at the given places."""

    def checked(functions: ConstraintFunctions, *given: Any) -> None:
        lengths = [len(given[place]) for place in places]
        if len({*lengths}) > 1:
            raise FlatZincRefusalError("lists of one length", f"lengths {', '.join(map(str, lengths))}")
        add(functions, *given)

    return checked


def _in_set(told: Callable[[Callable[..., Numbers]], Handler]) -> Handler:
    def add(functions: ConstraintFunctions, own: Operand, values: Any, *truth: Operand) -> None:
        told(lambda value: _contained(value, values))(functions, own, *truth)

    return add


_BUT_ZERO = FlatKind("I", lambda functions, operands: _all_different(functions, operands, (0,)))
KINDS: Mapping[str, FlatKind] = {
    **_comparisons(),
    **{
        name: FlatKind("ii" if name in ("int_abs", "int_negate") else "iii", _resulting(*computed))
        for name, computed in COMPUTED.items()
    },
    "int_plus": FlatKind("iii", _added((1, 1, -1), _resulting(np.add))),
    "int_minus": FlatKind("iii", _added((1, -1, -1), _resulting(np.subtract))),
    "bool2int": FlatKind("ii", _related(np.equal)),
    "bool_not": FlatKind("ii", _related(np.not_equal)),
    "bool_xor": FlatKind("iii", _told(np.not_equal)),
    "bool_and": FlatKind("iii", lambda functions, x, y, told: _any(positive=False)(functions, [x, y], told)),
    "bool_or": FlatKind("iii", lambda functions, x, y, told: _clause(functions, [x, y], [], told)),
    "bool_clause": FlatKind("II", _clause),
    "bool_clause_reif": FlatKind("IIi", _clause),
    "array_bool_and": FlatKind("Ii", _any(positive=False)),
    "array_bool_or": FlatKind("Ii", _any(positive=True)),
    "array_bool_and_imp": FlatKind("Ii", _any(positive=False, both=False)),
    "array_bool_or_imp": FlatKind("Ii", _any(positive=True, both=False)),
    "array_bool_xor": FlatKind("I", lambda functions, operands: _odd(functions, operands)),
    **dict.fromkeys(
        (f"array_{var}{kind}_element" for var in ("", "var_") for kind in ("int", "bool")), FlatKind("iIi", _element)
    ),
    "array_int_maximum": FlatKind("iI", _extreme(max)),
    "array_int_minimum": FlatKind("iI", _extreme(min)),
    "maximum": FlatKind("iI", _extreme(max)),
    "minimum": FlatKind("iI", _extreme(min)),
    "set_in": FlatKind("is", _in_set(_related)),
    "set_in_reif": FlatKind("isi", _in_set(_told)),
    "set_in_imp": FlatKind("isi", _in_set(_implied)),
    **dict.fromkeys(("all_different", "alldifferent", "distinct"), FlatKind("I", _all_different)),
    **dict.fromkeys(("all_different_except_0", "alldifferent_except_0"), _BUT_ZERO),
    **dict.fromkeys(("all_different_except", "alldifferent_except"), FlatKind("Is", _all_different)),
    **dict.fromkeys(("all_equal", "alleq"), FlatKind("I", _in_order("eq"))),
    "table": FlatKind("IC", _table),
    **{f"count_{name}": FlatKind("Ici", _counted(operator)) for name, operator in (
        ("eq", "eq"), ("neq", "ne"), ("leq", "ge"), ("geq", "le"), ("lt", "gt"), ("gt", "lt"),
    )},
    "count": FlatKind("Ici", _counted("eq")),
    "at_least": FlatKind("cIc", _counted("ge", "cxy")),
    "at_most": FlatKind("cIc", _counted("le", "cxy")),
    "exactly": FlatKind("cIc", _counted("eq", "cxy")),
    "among": FlatKind("iIs", _counted("eq", "cxy")),
    "global_cardinality": FlatKind("ICI", _cardinality),
    "global_cardinality_closed": FlatKind("ICI", _closed(_cardinality)),
    "global_cardinality_low_up": FlatKind("ICCC", _bounded_cardinality),
    "global_cardinality_low_up_closed": FlatKind("ICCC", _closed(_bounded_cardinality)),
    "nvalue": FlatKind("iI", _number_of_values),
    **dict.fromkeys(("increasing", "increasing_nonstrict"), FlatKind("I", _in_order("le"))),
    "strictly_increasing": FlatKind("I", _in_order("lt")),
    "decreasing": FlatKind("I", _in_order("ge")),
    "strictly_decreasing": FlatKind("I", _in_order("gt")),
    "inverse": FlatKind("II", _inverse),
    "regular": FlatKind("IccCcs", _regular),
    "lex_less": FlatKind("II", lambda functions, *lists: shared.add_lex(functions, lists, strict=True)),
    "lex_lesseq": FlatKind("II", lambda functions, *lists: shared.add_lex(functions, lists, strict=False)),
    **{name: FlatKind(letters, _of_one_length(same, add)) for name, (letters, same, add) in STRUCTURES.items()},
}  # fmt: skip
