"""Parts of an expression: how they are evaluated, how large their values and how much work they may be."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from ....tasks.steps.light_dataclass import dataclass
from .expression_arithmetic import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    SIGNS,
    ExpressionError,
    Value,
    bounded,
    number,
    shown,
)

Environment = dict[str, Value]
Run = Callable[[Environment], Value]

# Values in tuples inside each other; no text that is short enough lists more.
_MAX_VALUES = 10_000
_MAX_NESTING = 16
# Work of operations that read every character of a text (up to 256), or search one text in another.
_TEXT_WORK, _SEARCH_WORK = 4, 64
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


@dataclass(frozen=True)
class Shape:
    """How large a value may be: it and the values inside of it, each as often as it is there; how deep tuples nest."""

    size: int = 1
    depth: int = 0
    kind: Literal["value", "set"] = "value"


SCALAR = Shape()


@dataclass(frozen=True)
class Term:
    """A part of an expression.

    Parameters
    ----------
    run : callable
        Returns its value where names have theirs.
    shape : Shape
        How large that may be.
    work : int
        Maximum number of values computed or compared for the term.
    """

    run: Run
    shape: Shape = SCALAR
    work: int = 1


def largest(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of a value that is one of several."""
    found = [SCALAR, *shapes]
    return Shape(max(shape.size for shape in found), max(shape.depth for shape in found))


def _of(terms: Iterable[Term]) -> Shape:
    return largest(term.shape for term in terms)


def _work(terms: Iterable[Term]) -> int:
    return 1 + sum(term.work for term in terms)


def _sizes(terms: Iterable[Term]) -> int:
    return sum(term.shape.size for term in terms)


def _ordered(terms: Iterable[Term]) -> int:
    """Return the work of putting values in order: tuples that differ are looked at again on every level."""
    return sum(term.shape.size * (1 + term.shape.depth) for term in terms)


def row(terms: Sequence[Term]) -> Term:
    """Return a tuple or a list.

    Raises
    ------
    ExpressionError
        If it may hold too many values.
    """
    shape = Shape(1 + _sizes(terms), 1 + _of(terms).depth)
    if shape.size > _MAX_VALUES:
        raise ExpressionError(f"a tuple of more than {_MAX_VALUES:,} values, counted with the values of nested tuples")
    if shape.depth > _MAX_NESTING:
        raise ExpressionError(f"tuples in each other, more than {_MAX_NESTING} levels")
    runs = [term.run for term in terms]
    return Term(lambda values: tuple([run(values) for run in runs]), shape, _work(terms) + len(terms))


def set_of(terms: Sequence[Term]) -> Term:
    """Return a set, as a tuple of its different values; see :func:`row`."""
    listed = row(terms)

    def run(values: Environment) -> Value:
        different: list[Value] = []
        for value in listed.run(values):
            if value not in different:
                different.append(value)
        return tuple(different)

    shape = Shape(listed.shape.size, listed.shape.depth, "set")
    return Term(run, shape, listed.work + len(terms) * shape.size)


def choice(test: Run, then: Run, otherwise: Run) -> Run:
    """Evaluate one of two, as a test says."""
    return lambda values: then(values) if test(values) else otherwise(values)


def conditional(test: Term, then: Term, otherwise: Term) -> Term:
    """Return one of two terms, as a test says."""
    return Term(choice(test.run, then.run, otherwise.run), _of([then, otherwise]), _work([test, then, otherwise]))


def unary(op: ast.unaryop, term: Term) -> Term:
    """Return a sign or ``not`` of a term."""
    run, work = term.run, _work([term])
    if isinstance(op, ast.Not):
        return Term(lambda values: not run(values), work=work)
    sign = SIGNS.get(type(op))
    if sign is None:
        raise ExpressionError(f"the operator {type(op).__name__}, which is not read")
    return Term(lambda values: sign(number(run(values))), work=work)


def binary(op: ast.operator, left: Term, right: Term) -> Term:
    """Return an operator of two terms."""
    function, first, second = OPERATORS.get(type(op)), left.run, right.run
    if function is None:
        raise ExpressionError(f"the operator {type(op).__name__}, which is not read")

    def run(values: Environment) -> Value:
        return bounded(function(number(first(values)), number(second(values))))

    return Term(run, work=_work([left, right]))


def boolean(op: ast.boolop, terms: Sequence[Term]) -> Term:
    """Return ``and`` or ``or`` of terms."""
    stops, runs = isinstance(op, ast.Or), [term.run for term in terms]

    def run(values: Environment) -> Value:
        found: Value = None
        for each in runs:
            found = each(values)
            if bool(found) is stops:
                break
        return found

    return Term(run, _of(terms), _work(terms))


def comparison(ops: Sequence[ast.cmpop], terms: Sequence[Term]) -> Term:
    """Return comparisons of each term with the next."""
    functions, first, others = [COMPARISONS.get(type(op)) for op in ops], terms[0].run, [t.run for t in terms[1:]]

    def run(values: Environment) -> bool:
        left = first(values)
        for function, other in zip(functions, others, strict=True):
            right = other(values)
            assert function is not None
            if not function(left, right):
                return False
            left = right
        return True

    if None in functions:
        raise ExpressionError("a comparison that is not read")
    searched = sum(isinstance(op, ast.In | ast.NotIn) for op in ops)
    compared = _ordered(terms) if any(isinstance(op, _ORDERS) for op in ops) else _sizes(terms)
    return Term(run, work=_work(terms) + 2 * compared + _SEARCH_WORK * searched)


def call(name: str, terms: Sequence[Term]) -> Term:
    """Return a function of terms."""
    function, runs = FUNCTIONS[name], [term.run for term in terms]

    def run(values: Environment) -> Value:
        return bounded(function(*[each(values) for each in runs]))

    if name in ("min", "max"):
        return Term(run, _of(terms), _work(terms) + _TEXT_WORK + 2 * _ordered(terms))
    return Term(run, work=_work(terms) + _TEXT_WORK + _sizes(terms))


def item(items: Sequence[Term], key: Term) -> Term:
    """Return the item of a tuple that a key says."""
    listed, place_of = row(items), key.run

    def read(values: Environment) -> Value:
        found, place = listed.run(values), place_of(values)
        if not isinstance(place, int) or not -len(found) <= place < len(found):
            raise ExpressionError(f"item {shown(place)} of {len(found)}")
        return found[place]

    return Term(read, _of(items), listed.work + key.work + key.shape.size)


def lookup(pairs: Sequence[tuple[Term, Term]], key: Term) -> Term:
    """Return the value that stands in a dictionary with a key."""
    entries, key_of = [(name.run, value.run) for name, value in reversed(pairs)], key.run

    def read(values: Environment) -> Value:
        wanted = key_of(values)
        for name, value in entries:
            if name(values) == wanted:
                return value(values)
        raise ExpressionError(f"a dictionary without {shown(wanted)}")

    terms = [key, *(term for pair in pairs for term in pair)]
    return Term(
        read, _of(value for _, value in pairs), _work(terms) + _sizes(name for name, _ in pairs) + key.shape.size
    )
