"""Models of CPMpy as models: every subexpression that is no linear one becomes a hidden variable that it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...cluster.memory import default_memory_bytes
from ..errors import BudgetError, ModelError, checks_keywords, format_count, public, shorten
from ..formats.constraint_functions import Condition, ConstraintFunctions, Literal
from ..formats.flatzinc.flatzinc_constraints import COMPUTED, FlatZincRefusalError, add_constraint
from ..formats.flatzinc.flatzinc_syntax import FlatConstraint, Operand
from ..formats.global_functions.decomposition import Decomposition
from ..formats.linear.wide_sums import MOST_CELLS
from ..formats.shared_constraints import add_circuit, add_cumulative, add_lex, add_no_overlap, add_precedence
from ..formats.text.source import Allowance
from ..models.model import FORBIDDEN, Function, Model
from ..models.state_names import integer_labels
from .labelled_tables import library

_COMPARED = {"==": "eq", "!=": "ne", "<=": "le", "<": "lt", ">=": "ge", ">": "gt"}
# Functions of numbers by CPMpy's names, as FlatZinc calls them.
_COMPUTED = {"mul": "int_times", "div": "int_div", "mod": "int_mod", "pow": "int_pow", "abs": "int_abs"}
_EXTREMES = {"min": "minimum", "max": "maximum"}
_LISTS = {
    "alldifferent": "all_different",
    "allequal": "all_equal",
    "increasing": "increasing",
    "decreasing": "decreasing",
    "strictly_increasing": "strictly_increasing",
    "strictly_decreasing": "strictly_decreasing",
}
_PAIRS = {"lex_less": "lex_less", "lex_lesseq": "lex_lesseq"}
Linear = tuple[dict[int, int], int]
"""Weights of variables, and a constant."""


@public
@checks_keywords
def from_cpmpy(model: Any) -> Model:
    """Return the model of a CPMpy constraint model. Allowed assignments cost 0, or the value of the objective.

    Integers are called by their values, booleans ``false`` and ``true``. CPMpy decomposes the global constraints that
    are not read here, if that takes no further variables.

    Raises
    ------
    ModelError
        If it is no model, or has a constraint that is not read, by its name.
    BudgetError
        If a constraint has too many states or joint values.

    Examples
    --------
    >>> import bucketflow
    >>> import cpmpy
    >>> x = cpmpy.intvar(0, 3, name="x")
    >>> model = bucketflow.from_cpmpy(cpmpy.Model(x != 2, minimize=3 - x))
    >>> bucketflow.solve(model).value
    0
    """
    found = library("cpmpy.transformations.get_variables", "CPMpy")
    if not hasattr(model, "constraints") or not hasattr(model, "objective_"):
        raise ModelError(f"a model of CPMpy is expected, found {type(model).__name__}")
    objective = [] if model.objective_ is None else [model.objective_]
    compiler = _Compiler(found.get_variables([*model.constraints, *objective]))
    for each in model.constraints:
        compiler.root(each)
    sign = 1 if model.objective_is_min in (True, None) else -1
    weights, constant = ({}, 0) if model.objective_ is None else compiler.linear(model.objective_, nested=False)
    return compiler.model({v: sign * w for v, w in weights.items()}, sign * constant, maximize=sign < 0)


class _Compiler:
    """Collects variables with their values, and what is to be added once all are known.

    Parameters
    ----------
    variables : sequence
        Those of the model.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self.names = [str(each.name) for each in variables]
        self.index = {name: v for v, name in enumerate(self.names)}
        self.booleans = [each.is_bool() for each in variables]
        self.values = [tuple(range(int(each.lb), int(each.ub) + 1)) for each in variables]
        self.pending: list[Callable[[ConstraintFunctions], None]] = []

    def model(self, weights: dict[int, int], constant: int, *, maximize: bool) -> Model:
        """Build the model of the collected constraints, with a linear objective.

        Parameters
        ----------
        weights : dict
            Variable → its weight in the objective.
        constant : int
            Constant of the objective.
        maximize : bool

        Raises
        ------
        ModelError
            If CPMpy's model has no variables, or a constraint needs too large a table.
        """
        if not self.names:
            raise ModelError("the model of CPMpy has no variables")
        parts = Decomposition([*map(len, self.values)], FORBIDDEN, Allowance("the model", default_memory_bytes()))
        parts.own = len(self.names)
        functions = ConstraintFunctions(parts, self.values)
        for add in self.pending:
            add(functions)
        for v, weight in weights.items():
            parts.add(Function((v,), np.array([weight * value for value in self.values[v]], np.int64)))
        if constant:
            parts.add(Function((), np.array(constant)))
        own = zip(self.booleans, self.values, strict=False)  # not the hidden ones
        states = [("false", "true") if boolean else integer_labels(values) for boolean, values in own]
        return parts.model(self.names, states, maximize=maximize)

    def _call(self, name: str, *given: Any) -> None:
        """Add a constraint by FlatZinc's name."""

        def add(functions: ConstraintFunctions) -> None:
            functions.parts.what = f"the constraint {name!r}"
            try:
                add_constraint(functions, FlatConstraint(0, name, given))
            except FlatZincRefusalError as error:
                raise ModelError(f"{error.expected} is expected, found {error.found}") from None

        self.pending.append(add)

    def _hidden(self, values: Sequence[int]) -> tuple[int]:
        self.values.append(tuple(values))
        return (len(self.values) - 1,)

    def _of(self, operand: Operand) -> Any:
        return np.array(self.values[operand[0]] if isinstance(operand, tuple) else [operand])

    # Numbers.

    def linear(self, expression: Any, *, nested: bool) -> Linear:
        """Return an expression as a sum of variables; some may be hidden.

        Parameters
        ----------
        expression : CPMpy expression or number
        nested : bool
            Whether the expression stands inside another one, where it must be defined for all states.

        Returns
        -------
        Linear
            Weights by variable, and a constant.
        """
        if isinstance(expression, bool | int | np.integer | np.bool_):
            return {}, int(expression)
        name, given = getattr(expression, "name", ""), getattr(expression, "args", ())
        if name == "sum":
            return _added([(1, self.linear(each, nested=nested)) for each in given])
        if name == "wsum":
            terms = zip(*given, strict=True)
            return _added([(int(weight), self.linear(each, nested=nested)) for weight, each in terms])
        if name in ("-", "sub"):
            first, *rest = [self.linear(each, nested=nested) for each in given]
            return _added([(1, first), *((-1, each) for each in rest)] if rest else [(-1, first)])
        if name == "mul":
            sums = [self.linear(each, nested=nested) for each in given]
            constants = [each for each in sums if not each[0]]
            # a product stays linear if at most one operand is not constant
            if len(sums) - len(constants) <= 1:
                factor = int(np.prod([constant for _, constant in constants], dtype=object))
                others = [each for each in sums if each[0]]
                return _added([(factor, others[0])]) if others else ({}, factor)
        if expression.is_bool():
            operand, positive = self.literal(expression)
            if isinstance(operand, int):
                return {}, int(bool(operand) == positive)
            return ({operand[0]: 1}, 0) if positive else ({operand[0]: -1}, 1)
        operand = self._number(expression, name, given, nested)
        return ({operand[0]: 1}, 0) if isinstance(operand, tuple) else ({}, operand)

    def operand(self, expression: Any, *, nested: bool) -> Operand:
        """Return an expression as an integer or a variable."""
        weights, constant = self.linear(expression, nested=nested)
        if not weights:
            return constant
        if [*weights.values()] == [1] and not constant:
            return (next(iter(weights)),)
        reached = np.array([constant])
        for v, weight in weights.items():
            self._check(len(reached) * len(self.values[v]), "a sum")
            reached = np.unique(np.add.outer(reached, weight * self._of((v,))))
        output = self._hidden(reached.tolist())
        self._call("int_lin_eq", [*weights.values(), -1], [*((v,) for v in weights), output], -constant)
        return output

    def _operands(self, expressions: Any, *, nested: bool) -> list[Operand]:
        return [self.operand(each, nested=nested) for each in np.ravel(np.array([*expressions], dtype=object))]

    def _check(self, count: int, what: str) -> None:
        if count > MOST_CELLS:
            raise BudgetError(
                f"{what} of the model has {format_count(count)} joint values, and at most "
                f"{format_count(MOST_CELLS)} are tried; give its variables smaller domains"
            )

    def _number(self, expression: Any, name: str, given: Any, nested: bool) -> Operand:
        """Return the variable that equals an expression: its own, or a hidden variable that a function determines.

        Parameters
        ----------
        expression : CPMpy expression
        name : str
            Name of its operation.
        given : sequence
            Its arguments.
        nested : bool
            Whether the expression stands inside another one, where it must be defined for all states.

        Raises
        ------
        ModelError
            If a nested element's index may leave the list.
        """
        if not given and name in self.index:
            return (self.index[name],)
        if name in _COMPUTED:
            own = self._operands(given, nested=nested)
            while len(own) > 2:  # a product of several
                own = [self._computed("mul", own[:2], nested), *own[2:]]
            return self._computed(name, own, nested)
        if name in _EXTREMES:
            own = self._operands(given, nested=nested)
            values = sorted({int(value) for each in own for value in self._of(each)})
            output = self._hidden(values)
            self._call(_EXTREMES[name], output, own)
            return output
        if name == "element":
            own, index = self._operands(given[0], nested=nested), self.operand(given[1], nested=nested)
            if nested and not np.isin(self._of(index), range(len(own))).all():
                raise ModelError(
                    "an element inside another expression must have an index within its list, but here "
                    "the index may leave the list"
                )
            output = self._hidden(sorted({int(value) for each in own for value in self._of(each)}))
            shifted = self._shifted(index)
            self._call("array_var_int_element", shifted, own, output)
            return output
        if name in ("count", "among"):
            own = self._operands(given[0], nested=nested)
            wanted = self._operands(given[1] if name == "among" else [given[1]], nested=nested)
            if not all(isinstance(each, int) for each in wanted):
                return self.operand(sum(each == given[1] for each in given[0]), nested=nested)
            output = self._hidden(range(len(own) + 1))
            self._call("among", output, own, frozenset(wanted))
            return output
        if name == "nvalue":
            own = self._operands(given, nested=nested)
            output = self._hidden(range(len(own) + 1))
            self._call("nvalue", output, own)
            return output
        return self.operand(self._decomposed(expression, name, root=not nested), nested=nested)

    def _computed(self, name: str, own: list[Operand], nested: bool) -> Operand:
        if name in ("div", "mod", "pow") and nested and (name == "pow" or 0 in self._of(own[1])):
            raise ModelError(
                f"{name!r} inside another expression must always have a value, but here it may be undefined"
            )
        self._check(int(np.prod([len(self._of(each)) for each in own])), repr(name))
        grids = np.meshgrid(*map(self._of, own), indexing="ij")
        output = self._hidden(np.unique(_results(name, grids)).tolist())
        self._call(_COMPUTED[name], *own, output)
        return output

    def _shifted(self, operand: Operand) -> Operand:
        """Return an operand plus one."""
        if not isinstance(operand, tuple):
            return operand + 1
        output = self._hidden((self._of(operand) + 1).tolist())
        self._call("int_plus", operand, 1, output)
        return output

    def _decomposed(self, expression: Any, name: str, *, root: bool) -> Any:
        """Return CPMpy's decomposition of a global constraint or function, if it needs no additional variables."""
        variables = library("cpmpy.transformations.get_variables", "CPMpy").get_variables
        if hasattr(expression, "decompose"):
            found, defining = expression.decompose()
            known = all(str(each.name) in self.index for each in variables([found, defining]))
            if known and (root or not defining):
                for each in defining:
                    self.root(each)
                return found
        raise ModelError(f"the constraint {shorten(name or str(expression))!r} of CPMpy is not supported")

    # Booleans.

    def literal(self, expression: Any) -> Literal:
        """Return a boolean expression as a literal; a compound expression gets a hidden variable.

        Parameters
        ----------
        expression : CPMpy expression or truth value

        Returns
        -------
        Literal
            A variable or a constant, and whether it is positive.
        """
        if isinstance(expression, bool | int | np.integer | np.bool_):
            return int(expression), True
        given: tuple[Any, ...]
        name, given = getattr(expression, "name", ""), getattr(expression, "args", ())
        if hasattr(expression, "_bv"):
            return (self.index[str(expression._bv.name)],), False
        if name == "boolval":
            return int(bool(given[0])), True
        if name in self.index and not given:
            return (self.index[name],), True
        if name == "not":
            operand, positive = self.literal(given[0])
            return operand, not positive
        # reification: the hidden variable is true exactly if the expression is
        told = self._hidden((0, 1))
        if name in ("or", "and", "->"):
            self._told_clause(name, [self.literal(each) for each in given], told)
        elif name in _COMPARED:
            weights, constant = _difference(self, given, nested=True)
            own = [(v,) for v in weights]
            self._call(f"int_lin_{_COMPARED[name]}_reif", [*weights.values()], own, -constant, told)
        else:
            found = self._decomposed(expression, name, root=False)
            literals = [self.literal(each) for each in np.ravel(np.array(found, dtype=object))]
            self._told_clause("and", literals, told)
        return told, True

    def _told_clause(self, name: str, literals: list[Literal], told: tuple[int]) -> None:
        if name == "->":
            literals = [_negated(literals[0]), literals[1]]
        if name == "and":
            self.pending.append(lambda functions: functions.conjunction(literals, told))
        else:
            self.pending.append(lambda functions: functions.disjunction(literals, told))

    def root(self, expression: Any) -> None:
        """Add a constraint."""
        if isinstance(expression, list | tuple | np.ndarray):
            for each in np.ravel(np.array(expression, dtype=object)):
                self.root(each)
            return
        name, given = getattr(expression, "name", ""), getattr(expression, "args", ())
        if name == "and":
            self.root([*given])
        elif name in ("or", "->"):
            literals = [self.literal(each) for each in given]
            clause = literals if name == "or" else [_negated(literals[0]), literals[1]]
            self.pending.append(lambda functions: functions.clause(clause))
        elif name in _COMPARED:
            weights, constant = _difference(self, given, nested=False)
            self._call(f"int_lin_{_COMPARED[name]}", [*weights.values()], [(v,) for v in weights], -constant)
        elif not self._global(expression, name, given):
            literal = self.literal(expression)
            self.pending.append(lambda functions: functions.clause([literal]))

    def _global(self, expression: Any, name: str, given: Any) -> bool:
        """Add a global constraint, and return whether the expression is one.

        Parameters
        ----------
        expression : CPMpy expression
        name : str
            Name of the constraint.
        given : sequence
            Its arguments.
        """
        operands = partial(self._operands, nested=False)
        if name in _LISTS:
            self._call(_LISTS[name], operands(given))
        elif name in _PAIRS:
            self._call(_PAIRS[name], operands(given[0]), operands(given[1]))
        elif name == "alldifferent_except_n":
            self._call("all_different_except", operands(given[0]), frozenset(map(int, np.ravel(given[1]))))
        elif name == "table":
            self._call("table", operands(given[0]), [int(each) for each in np.ravel(given[1])])
        elif name == "gcc":
            closed = "_closed" if getattr(expression, "closed", False) else ""
            values = [int(each) for each in given[1]]
            self._call(f"global_cardinality{closed}", operands(given[0]), values, operands(given[2]))
        elif name == "circuit":
            successors = operands(given)
            self.pending.append(lambda functions: add_circuit(functions, successors, 0, loops=False))
        elif name == "precedence":
            own, order = operands(given[0]), [int(value) for value in given[1]]
            if len({*order}) < len(order):
                return False
            self.pending.append(lambda functions: add_precedence(functions, own, order))
        elif name in ("lex_chain_less", "lex_chain_lesseq"):
            rows = [operands(row) for row in (given[0] if len(given) == 1 else given)]
            self.pending.append(lambda functions: add_lex(functions, rows, strict=name == "lex_chain_less"))
        elif name in ("cumulative", "no_overlap"):
            self._schedule(name, given)
        elif name == "indomain":
            self._call("set_in", self.operand(given[0], nested=False), frozenset(map(int, given[1])))
        # CPMpy decomposes the global constraints that have no function here
        elif hasattr(expression, "decompose"):
            self.root(self._decomposed(expression, name, root=True))
        else:
            return False
        return True

    def _schedule(self, name: str, given: Any) -> None:
        """Add a schedule of tasks with non-negative lengths and heights, with or without ends."""
        ends = len(given) == (5 if name == "cumulative" else 3)
        starts, lengths, *others = (self._operands(each, nested=False) for each in given[: 3 if ends else 2])
        heights, limit = ([], None) if name == "no_overlap" else (self._operands(given[-2], nested=False), given[-1])
        for each in (*lengths, *heights):
            self._call("int_le", 0, each)
        for start, length, end in zip(starts, lengths, others[0] if ends else (), strict=False):
            self._call("int_plus", start, length, end)
        if limit is None:
            boxes = [[each] for each in starts], [[each] for each in lengths]
            self.pending.append(lambda functions: add_no_overlap(functions, *boxes, zero_ignored=True))
        else:
            at_most = Condition("le", self.operand(limit, nested=False))
            self.pending.append(lambda functions: add_cumulative(functions, starts, lengths, heights, at_most))


def _results(name: str, grids: Sequence[Any]) -> Any:
    """Return the values that a function has somewhere."""
    compute, defined = COMPUTED[_COMPUTED[name]]
    found = np.asarray(compute(*grids))
    return found if defined is None else found[np.broadcast_to(defined(*grids), found.shape)]


def _added(terms: Sequence[tuple[int, Linear]]) -> Linear:
    """Return a weighted sum of sums."""
    weights, constant = dict[int, int](), 0
    for factor, (own, more) in terms:
        constant += factor * more
        for v, weight in own.items():
            weights[v] = weights.get(v, 0) + factor * weight
    return {v: weight for v, weight in weights.items() if weight}, constant


def _difference(compiler: _Compiler, given: Sequence[Any], *, nested: bool) -> Linear:
    left, right = (compiler.linear(each, nested=nested) for each in given)
    return _added([(1, left), (-1, right)])


def _negated(literal: Literal) -> Literal:
    operand, positive = literal
    return operand, not positive
