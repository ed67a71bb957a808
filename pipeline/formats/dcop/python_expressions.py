"""Costs that a file gives as Python: expressions and bodies with ``return``, evaluated without running any code.

The text is parsed, never compiled: what is allowed becomes closures over a few operators and functions of numbers.
There are no attributes, no loops, no imports and no calls but of those functions; what may grow (powers, products of
integers, literals) is bounded, so that evaluating takes no longer than reading the text.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...errors import shorten
from .expression_arithmetic import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    SIGNS,
    ExpressionError,
    Value,
    bounded,
    exact,
    number,
)

Environment = dict[str, Value]
_Term = Callable[[Environment], Value]
_Action = Callable[[Environment], "Value | _Nothing"]

_MAX_LENGTH = 10_000
_MAX_DEPTH = 150


class _Nothing:
    """What a statement gives that does not return."""


_NOTHING = _Nothing()


@dataclass(frozen=True)
class Expression:
    """A cost as a function of variables.

    Parameters
    ----------
    names : tuple of str
        The variables it reads, in the order of the text.
    """

    names: tuple[str, ...]
    run: _Action

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
        except (OverflowError, ValueError, TypeError) as error:
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
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"{len(text)} characters, more than {_MAX_LENGTH}")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ExpressionError(f"{shorten(text.strip())!r} ({reason})") from None
    compiler = _Compiler()
    run = compiler.term(tree.body) if isinstance(tree, ast.Expression) else compiler.block(tree.body)
    return Expression(tuple(compiler.names), run)


def _parsed(text: str) -> ast.Module | ast.Expression:
    if re.search(r"\breturn\b", text):
        return ast.parse(textwrap.dedent(text))
    return ast.parse(text.strip(), mode="eval")


class _Compiler:
    """Turns parsed nodes into closures, and collects the names that are read before they are assigned."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.local: set[str] = set()
        self.depth = 0

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
                    return self.term(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    return self._assignment(name, self.term(value))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    return self._assignment(name, self.term(ast.BinOp(ast.Name(name, ast.Load()), op, value)))
                case ast.If(test=test, body=body, orelse=orelse):
                    return _choice(self.term(test), self.block(body), self.block(orelse))
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    return lambda values: _NOTHING
        finally:
            self.depth -= 1
        raise ExpressionError(_named(node))

    def _assignment(self, name: str, term: _Term) -> _Action:
        self.local.add(name)

        def run(values: Environment) -> _Nothing:
            values[name] = term(values)
            return _NOTHING

        return run

    def term(self, node: ast.expr) -> _Term:
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
        if self.depth > _MAX_DEPTH:
            raise ExpressionError(f"an expression of more than {_MAX_DEPTH} levels")

    def _term(self, node: ast.expr) -> _Term | None:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                found = bounded(value)
                return lambda values: found
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand):
                return _unary(op, self.term(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self.term(left), self.term(right))
            case ast.BoolOp(op=op, values=operands):
                return _boolean(op, [self.term(each) for each in operands])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return _comparison(ops, [self.term(each) for each in (left, *comparators)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(self.term(test), self.term(body), self.term(orelse))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                terms = [self.term(each) for each in items]
                return lambda values: tuple([term(values) for term in terms])
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return _call(FUNCTIONS[name], [self.term(each) for each in arguments])
            case ast.Subscript(value=ast.Dict() as table, slice=key):
                return self._lookup(table, self.term(key))
            case ast.Subscript(value=ast.Tuple() | ast.List() as items, slice=key):
                return _item(self.term(items), self.term(key))
        return None

    def _name(self, name: str) -> _Term:
        if name not in self.local:
            self.names[name] = None

        def read(values: Environment) -> Value:
            if name not in values:
                raise ExpressionError(f"{name!r}, which has no value yet")
            return values[name]

        return read

    def _lookup(self, table: ast.Dict, key: _Term) -> _Term:
        entries = [(self.term(k), self.term(v)) for k, v in zip(table.keys, table.values, strict=True) if k is not None]
        if len(entries) < len(table.keys):
            raise ExpressionError("a dictionary in another")

        def read(values: Environment) -> Value:
            wanted = key(values)
            for name, value in reversed(entries):
                if name(values) == wanted:
                    return value(values)
            raise ExpressionError(f"a dictionary without {shorten(repr(wanted))}")

        return read


def _choice(test: _Term, then: _Term, otherwise: _Term) -> _Term:
    return lambda values: then(values) if test(values) else otherwise(values)


def _unary(op: ast.unaryop, term: _Term) -> _Term:
    if isinstance(op, ast.Not):
        return lambda values: not term(values)
    sign = SIGNS.get(type(op))
    if sign is None:
        raise ExpressionError(f"the operator {type(op).__name__}, which is not read")
    return lambda values: sign(number(term(values)))


def _binary(op: ast.operator, left: _Term, right: _Term) -> _Term:
    function = OPERATORS.get(type(op))
    if function is None:
        raise ExpressionError(f"the operator {type(op).__name__}, which is not read")
    return lambda values: bounded(function(number(left(values)), number(right(values))))


def _boolean(op: ast.boolop, terms: Sequence[_Term]) -> _Term:
    stops = isinstance(op, ast.Or)

    def run(values: Environment) -> Value:
        found: Value = None
        for term in terms:
            found = term(values)
            if bool(found) is stops:
                break
        return found

    return run


def _comparison(ops: Sequence[ast.cmpop], terms: Sequence[_Term]) -> _Term:
    functions = [COMPARISONS.get(type(op)) for op in ops]

    def run(values: Environment) -> bool:
        left = terms[0](values)
        for function, term in zip(functions, terms[1:], strict=True):
            right = term(values)
            assert function is not None
            if not function(left, right):
                return False
            left = right
        return True

    if None in functions:
        raise ExpressionError("a comparison that is not read")
    return run


def _call(function: Callable[..., Value], terms: Sequence[_Term]) -> _Term:
    return lambda values: bounded(function(*[term(values) for term in terms]))


def _item(items: _Term, key: _Term) -> _Term:
    def read(values: Environment) -> Value:
        found, place = items(values), key(values)
        if not isinstance(place, int) or not -len(found) <= place < len(found):
            raise ExpressionError(f"item {shorten(repr(place))} of {len(found)}")
        return found[place]

    return read


def _named(node: ast.AST) -> str:
    """What a node that is not allowed is, as a phrase."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return "an import"
        case ast.Call(func=ast.Name(id=name)):
            return f"a call of {shorten(name)!r}, which is none of {', '.join(FUNCTIONS)}"
        case ast.Call():
            return "a call of something that is not a function of numbers"
        case ast.Attribute(attr=name):
            return f"the attribute {shorten(name)!r}"
    return f"a Python {type(node).__name__}, which is not read"
