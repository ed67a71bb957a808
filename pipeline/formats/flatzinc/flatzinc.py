"""FlatZinc (.fzn): MiniZinc's compiled models for finite-domain solvers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ....tasks.steps.number_limits import LARGEST_DECIMAL, LARGEST_INT32
from ...errors import format_count, shorten
from ...models.model import FORBIDDEN, Function, Model
from ...models.state_names import integer_labels
from ..constraint_functions import ConstraintFunctions
from ..format_policy import STATE_BYTES, FormatPolicy
from ..global_functions.decomposition import Decomposition
from ..linear.integer_domains import (
    AffineViews,
    IntegerDomains,
    LinearRow,
    NoValueError,
    Propagator,
    ends_of,
    propagate,
    tighten,
)
from ..text.source import Source
from .flatzinc_bounds import propagators_of, rows_of
from .flatzinc_constraints import FlatKind, FlatZincRefusalError, add_constraint, kind_of
from .flatzinc_syntax import FlatConstraint, FlatZincFile, Given, Values, operands_of

_DEFINING = "int_lin_eq"


def read_flatzinc(source: Source) -> Model:
    """Read a FlatZinc problem. Allowed assignments cost 0, or the value of the objective.

    Booleans have the states ``false`` and ``true``, integers are called by their values. A variable that is optimised,
    and is elsewhere but a sum that defines it, is no variable of the model: its value is the answer's.

    Raises
    ------
    FormatError
        If the file is malformed, or has variables or constraints that are not read.
    BudgetError
        If a constraint has too many states or joint values.
    """
    file = FlatZincFile(source)
    defined = _defining(file)
    kept = [v for v in range(len(file.variables)) if defined is None or file.objective != (v,)]
    if not kept:
        raise file.fail(0, "a problem with variables", "none")
    places = {v: k for k, v in enumerate(kept)}
    constraints = [FlatConstraint(at, "int_eq", (variable, other)) for at, variable, other in file.equal]
    constraints += [constraint for constraint in file.constraints if constraint is not defined]
    numbered = [replace(each, given=tuple(_renumbered(own, places) for own in each.given)) for each in constraints]
    reader = _FlatZincReader(file, kept, source, numbered)
    for constraint in numbered:
        reader.add(constraint)
    reader.objective(defined, places)
    return reader.model()


def _defining(file: FlatZincFile) -> FlatConstraint | None:
    """Return the sum that defines the variable that is optimised, if nothing else says anything of it."""
    goal = file.objective
    if not isinstance(goal, tuple) or any(goal in pair[1:] for pair in file.equal):
        return None
    found = [(c, [*operands_of([*c.given])].count(goal)) for c in file.constraints]
    naming = [(constraint, count) for constraint, count in found if count]
    if len(naming) != 1 or naming[0][1] != 1 or naming[0][0].name != _DEFINING or len(naming[0][0].given) != 3:
        return None
    weights, operands, right = naming[0][0].given
    fits = isinstance(weights, list) and isinstance(operands, list) and len(weights) == len(operands)
    if not fits or not isinstance(right, int) or goal not in operands or len(operands) < 2:
        return None
    values = file.variables[goal[0]].values
    contiguous = values is None or isinstance(values, range)
    return naming[0][0] if contiguous and abs(weights[operands.index(goal)]) == 1 else None


class _FlatZincReader:
    """Makes functions of the statements of a file.

    Wide domains and those without bounds are reduced to the values that the constraints leave them, before any table is
    made. All other variables keep the values that the file declares.

    Parameters
    ----------
    file : FlatZincFile
    kept : sequence of int
        The variables that the model has.
    source : Source
    constraints : sequence of FlatConstraint
        Variables are numbered as in the model.
    """

    def __init__(
        self, file: FlatZincFile, kept: Sequence[int], source: Source, constraints: Sequence[FlatConstraint]
    ) -> None:
        """Give every variable its values; wide domains are first reduced by the linear constraints.

        Parameters
        ----------
        file : FlatZincFile
        kept : sequence of int
            Variables that are not defined by others.
        source : Source
        constraints : sequence of FlatConstraint
        """
        self.file, self.source = file, source
        self.variables = [file.variables[v] for v in kept]
        self.notes: list[str] = []
        self.contradicted = False
        declared = [variable.values for variable in self.variables]
        sized = enumerate(zip(declared, self.variables, strict=True))
        most = FormatPolicy.current().wide_values
        wide = {v for v, (own, each) in sized if own is None or (len(own) > most and not each.boolean)}
        domains: list[Values] = [range(0) if own is None else own for own in declared]
        views = None
        # a domain of millions of integers becomes a table only after its bounds were tightened
        if wide:
            reduced = IntegerDomains(declared)
            views = self._reduce(reduced, wide, constraints)
            for v in wide:
                domains[v] = self._reduced(reduced, v)
            self._note_removed(wide, domains)
        source.allowance.take(STATE_BYTES * sum(map(len, domains)), "the values of its variables")
        for variable, own in zip(self.variables, domains, strict=True):
            low, high = ends_of(own)
            if max(-low, high) > LARGEST_INT32:
                found = f"{shorten(variable.name)!r}, from {low} to {high}"
                raise file.fail(variable.at, f"variables of values up to {LARGEST_INT32}", found)
        values = [tuple(sorted(own)) for own in domains]
        parts = Decomposition([*map(len, values)], FORBIDDEN, source.allowance)
        self.functions = ConstraintFunctions(parts, values)
        self.functions.views = views
        if self.contradicted:
            parts.forbid()

    def _reduce(
        self, domains: IntegerDomains, wide: Collection[int], constraints: Sequence[FlatConstraint]
    ) -> AffineViews | None:
        """Propagate all constraints and return the expressions of wide variables by others."""
        rows, propagators = list[LinearRow](), list[Propagator]()
        for constraint in constraints:
            plain, _ = self._checked(constraint)
            rows += rows_of(plain, constraint.given)
            propagators += propagators_of(plain, constraint)
        allowance = self.source.allowance

        def tick() -> None:
            allowance.take(0, "the bounds of its variables")

        try:
            propagate(domains, propagators, tick)
            views = AffineViews.of(rows, domains, wide)
            known = [views.substituted(row) for row in rows] + [*views.definitions.values()]
            more = [Propagator(tuple(v for v, _ in row.weights), partial(tighten, row=row)) for row in known]
            propagate(domains, [*propagators, *more], tick)
        except NoValueError:
            self.contradicted = True
            return None
        return views

    def _reduced(self, domains: IntegerDomains, v: int) -> Values:
        """Return the values that a wide variable keeps; one, if the constraints contradict each other."""
        variable = self.variables[v]
        if self.contradicted:
            return range(1) if variable.values is None else frozenset(ends_of(variable.values)[:1])
        if not domains.bounded(v):
            found = f"{shorten(variable.name)!r}, which has none, and no constraint implies any"
            raise self.file.fail(variable.at, "variables with bounds, such as var 1..9", found)
        count = domains.size(v)
        self.source.allowance.take(
            0, f"{format_count(count)} values of {shorten(variable.name)!r}", for_now=STATE_BYTES * count
        )
        return frozenset(domains.values(v))

    def _note_removed(self, wide: Collection[int], domains: Sequence[Values]) -> None:
        """Say that wide variables keep fewer values than they are declared with."""
        fewer = [v for v in wide if (own := self.variables[v].values) is None or len(own) > len(domains[v])]
        if fewer and not self.contradicted:
            first = min(fewer)
            shown = f"{shorten(self.variables[first].name)!r} keeps {len(domains[first]):,} values"
            more = f", and {len(fewer) - 1} more wide variables keep fewer than declared" if len(fewer) > 1 else ""
            self.notes.append(f"{shown} that the constraints do not exclude{more}")

    def _line(self, constraint: FlatConstraint) -> int:
        return self.file.tokens.line(constraint.at)

    def _checked(self, constraint: FlatConstraint) -> tuple[str, FlatKind]:
        try:
            return kind_of(constraint)
        except FlatZincRefusalError as error:
            raise self.file.fail(constraint.at, error.expected, error.found) from None

    def add(self, constraint: FlatConstraint) -> None:
        """Add a constraint, with variables numbered as in the model."""
        self.functions.parts.what = f"the constraint {shorten(constraint.name)!r} of line {self._line(constraint)}"
        if self.contradicted:
            self._checked(constraint)
            return
        try:
            add_constraint(self.functions, constraint)
        except FlatZincRefusalError as error:
            raise self.file.fail(constraint.at, error.expected, error.found) from None

    def objective(self, defined: FlatConstraint | None, places: dict[int, int]) -> None:
        """Add what the objective costs."""
        goal = self.file.objective
        if defined is None or not isinstance(goal, tuple):
            self._costs(1, _renumbered(goal, places))
            return
        weights, operands, right = defined.given
        own = weights[operands.index(goal)]
        terms = [(w, each) for w, each in zip(weights, operands, strict=True) if each != goal]
        # own * goal + the others = right, where own is 1 or -1
        self._costs(own * right, 1)
        for weight, each in terms:
            self._costs(-own * weight, _renumbered(each, places))
        variable = self.file.variables[goal[0]]
        if variable.values is not None:
            line = self.file.fail(defined.at, "").line
            self.functions.parts.what = f"the bounds of {shorten(variable.name)!r} of line {line}"
            sums = [-own * weight for weight, _ in terms], [_renumbered(each, places) for _, each in terms]
            low, high = ends_of(variable.values)
            self.functions.linear(*sums, ">=", low - own * right)
            self.functions.linear(*sums, "<=", high - own * right)
        self.notes.append(
            f"{shorten(variable.name)!r} is not a variable of the model: its value is the value of the answer"
        )

    def _costs(self, weight: int, operand: Given) -> None:
        sign = -weight if self.file.goal == "maximize" else weight
        variable = isinstance(operand, tuple)
        costs = [sign * value for value in (self.functions.values[operand[0]] if variable else (operand,))]
        if max(map(abs, costs)) >= LARGEST_DECIMAL:
            raise self.file.fail(len(self.file.tokens), "costs below 10^18", "greater ones")
        if any(costs):
            table = np.array(costs, np.int64)
            self.functions.parts.add(Function(operand if variable else (), table if variable else table[0]))

    def model(self) -> Model:
        """Return the model."""
        own = zip(self.variables, self.functions.values, strict=False)  # not the hidden ones
        states = [("false", "true") if variable.boolean else integer_labels(values) for variable, values in own]
        names, maximize = [variable.name for variable in self.variables], self.file.goal == "maximize"
        parts, notes = self.functions.parts, tuple(self.notes)
        return parts.model(names, states, maximize=maximize, name=self.source.stem, notes=notes)


def _renumbered(given: Given, places: dict[int, int]) -> Given:
    """Return the arguments of a constraint with the model's numbers of variables."""
    if isinstance(given, list):
        return [_renumbered(each, places) for each in given]
    return (places[given[0]],) if isinstance(given, tuple) else given
