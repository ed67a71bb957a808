"""Costs that a file gives as Python: expressions and bodies with ``return``, evaluated without running any code.

The text is parsed, never compiled. Allowed syntax becomes closures over a few operators and functions of numbers. There
are no attributes, loops or imports, and only these functions can be called. No part runs twice, so the size of every
value and the work of every operation have bounds that are known before the evaluation. Numbers and texts are short. For
each tuple the maximum number of values is known, counted once per comparison.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

from ....tasks.steps.light_dataclass import dataclass
from ...errors import shorten
from .expression_arithmetic import (
    COMPARISONS,
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_LETTERS,
    OPERATORS,
    SIGNS,
    ExpressionError,
    Value,
    bounded,
    exact,
    number,
    shown,
)

Environment = dict[str, Value]
Run = Callable[[Environment], Value]

_MAX_NESTING = 16
# Work of operations that read every character of a text (up to 256), or search one text in another.
_TEXT_WORK, _SEARCH_WORK = MAX_LETTERS // 64, MAX_LETTERS // 4
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
    if shape.size > MAX_LENGTH:
        raise ExpressionError(f"a tuple of more than {MAX_LENGTH:,} values, counted with the values of nested tuples")
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


_Action = Callable[[Environment], "Value | _Nothing"]


class _Nothing:
    """The result of a statement that does not return."""


_NOTHING = _Nothing()


@dataclass(frozen=True)
class Expression:
    """A cost as a function of variables.

    Parameters
    ----------
    names : tuple of str
        The variables it reads, in the order of the text.
    work : int
        Maximum number of values computed or compared for one cost.
    texts : tuple of (str, str)
        Each variable that is compared with a text, and the text.
    """

    names: tuple[str, ...]
    run: _Action
    work: int
    texts: tuple[tuple[str, str], ...] = ()

    def cost(self, values: Mapping[str, Value]) -> int | Decimal:
        """Return the cost at some values.

        Raises
        ------
        ExpressionError
            If it has none.
        """
        try:
            value = self.run(dict(values))
        except ZeroDivisionError:
            raise ExpressionError("a division by zero") from None
        except (OverflowError, ValueError, TypeError, RecursionError) as error:
            raise ExpressionError(f"an error ({error})") from None
        if isinstance(value, _Nothing):
            raise ExpressionError("no value, because no return is reached")
        return exact(value)


def parse(text: str) -> Expression:
    """Read an expression, or a body of statements that ends in ``return``.

    Raises
    ------
    ExpressionError
        If it is no Python, or does anything but compute a number from variables.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{len(text)} characters, more than {MAX_LENGTH}")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ExpressionError(f"{shorten(text.strip())!r} ({reason})") from None
    compiler = _Compiler()
    if isinstance(tree, ast.Expression):
        term = compiler.value(tree.body)
        return Expression(tuple(compiler.names), term.run, term.work, _compared_texts(tree))
    run = compiler.block(tree.body)
    return Expression(tuple(compiler.names), run, compiler.work, _compared_texts(tree))


def _compared_texts(tree: ast.AST) -> tuple[tuple[str, str], ...]:
    """Return each variable that is compared with a text (==, !=, in), and the text."""
    found: dict[tuple[str, str], None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [side.id for side in sides if isinstance(side, ast.Name)]
            listed = [each for side in sides for each in getattr(side, "elts", [side])]
            texts = [each.value for each in listed if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            found.update(dict.fromkeys((name, text) for name in names for text in texts))
    return tuple(found)


def _parsed(text: str) -> ast.Module | ast.Expression:
    if re.search(r"\breturn\b", text):
        return ast.parse(textwrap.dedent(text))
    return ast.parse(text.strip(), mode="eval")


class _Compiler:
    """Turns parsed nodes into closures, and collects the names that are read before they are assigned.

    ``local`` holds the largest shape assigned to each name so far; ``work`` is the work of all statements.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.local: dict[str, Shape] = {}
        self.depth = self.work = 0

    def block(self, statements: Sequence[ast.stmt]) -> _Action:
        """Run statements until one returns."""
        actions = [self.statement(each) for each in statements]

        def run(values: Environment) -> Value | _Nothing:
            for action in actions:
                found = action(values)
                if found is not _NOTHING:
                    return found
            return _NOTHING

        return run

    def statement(self, node: ast.stmt) -> _Action:
        """An assignment, a condition or a return."""
        self._enter()
        try:
            match node:
                case ast.Return(value=ast.expr() as value):
                    return self._counted(self.value(value))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    return self._assignment(name, self.value(value))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    return self._assignment(name, self.value(ast.BinOp(ast.Name(name, ast.Load()), op, value)))
                case ast.If(test=test, body=body, orelse=orelse):
                    return choice(self._counted(self.value(test)), self.block(body), self.block(orelse))
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    self.work += 1
                    return lambda values: _NOTHING
        finally:
            self.depth -= 1
        raise ExpressionError(_named(node))

    def _counted(self, term: Term) -> Run:
        self.work += term.work + 1
        return term.run

    def _assignment(self, name: str, term: Term) -> _Action:
        self.local[name] = largest([self.local.get(name, SCALAR), term.shape])
        value = self._counted(term)

        def run(values: Environment) -> _Nothing:
            values[name] = value(values)
            return _NOTHING

        return run

    def value(self, node: ast.expr) -> Term:
        """An expression that is no set, which is read where the order of its values does not matter."""
        term = self.term(node)
        if term.shape.kind == "set":
            raise ExpressionError("a set, which is allowed only after 'in' and in functions such as len and sum")
        return term

    def term(self, node: ast.expr) -> Term:
        """An expression."""
        self._enter()
        try:
            made = self._term(node)
        finally:
            self.depth -= 1
        if made is None:
            raise ExpressionError(_named(node))
        return made

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"an expression of more than {MAX_DEPTH} levels")

    def _term(self, node: ast.expr) -> Term | None:
        """Translate a node of the syntax tree into a term over arrays of values.

        Parameters
        ----------
        node : ast.expr

        Returns
        -------
        Term or None
            None if the expression is of no supported kind.
        """
        # a list of what is allowed: nothing else of the language is ever evaluated
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                found = bounded(value)
                return Term(lambda values: found)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand):
                return unary(op, self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return binary(op, self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=operands):
                return boolean(op, [self.value(each) for each in operands])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(left, ops, comparators)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return conditional(self.value(test), self.value(body), self.value(orelse))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return row([self.value(each) for each in items])
            case ast.Set(elts=items):
                return set_of([self.value(each) for each in items])
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return call(name, [self._argument(each, len(arguments)) for each in arguments])
            case ast.Subscript(value=ast.Dict() as table, slice=key):
                return self._lookup(table, self.value(key))
            case ast.Subscript(value=ast.Tuple(elts=items) | ast.List(elts=items), slice=key):
                return item([self.value(each) for each in items], self.value(key))
        return None

    def _name(self, name: str) -> Term:
        if name not in self.local:
            self.names[name] = None

        def read(values: Environment) -> Value:
            if name not in values:
                raise ExpressionError(f"{name!r}, which has no value yet")
            return values[name]

        return Term(read, self.local.get(name, SCALAR))

    def _argument(self, node: ast.expr, count: int) -> Term:
        """An argument of a function; a set only where it is the only one."""
        return self.term(node) if count == 1 else self.value(node)

    def _comparison(self, left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> Term:
        """Compile chained comparisons. The operand after the last ``in`` may be a set."""
        last = self.term if isinstance(ops[-1], ast.In | ast.NotIn) else self.value
        return comparison(ops, [*(self.value(each) for each in (left, *others[:-1])), last(others[-1])])

    def _lookup(self, table: ast.Dict, key: Term) -> Term:
        pairs = [(self.value(k), self.value(v)) for k, v in zip(table.keys, table.values, strict=True) if k is not None]
        if len(pairs) < len(table.keys):
            raise ExpressionError("a dictionary in another")
        return lookup(pairs, key)


def _named(node: ast.AST) -> str:
    """Return a phrase that describes a node that is not allowed."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return "an import"
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            return f"a call of {name!r} with arguments that it does not take here"
        case ast.Call(func=ast.Name(id=name)):
            return f"a call of the unknown function {shorten(name)!r} (known are {', '.join(FUNCTIONS)})"
        case ast.Call():
            return "a call of something that is not a function of numbers"
        case ast.Attribute(attr=name):
            return f"the attribute {shorten(name)!r}"
    return f"a Python {type(node).__name__}, which is not read"
