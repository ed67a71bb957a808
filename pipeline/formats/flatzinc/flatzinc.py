"""FlatZinc (.fzn): what MiniZinc compiles its models to, for solvers of finite domains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import shorten
from ...models.model import FORBIDDEN, Function, Model
from ..global_functions.decomposition import Decomposition
from ..text.source import Source
from .flatzinc_constraints import FlatZincRefusalError, add_constraint
from .flatzinc_functions import FlatZincFunctions
from .flatzinc_syntax import FlatConstraint, FlatZincFile, Given, operands_of

_DEFINING = "int_lin_eq"
_LARGEST = 10**18


def read_flatzinc(source: Source) -> Model:
    """Read a problem of FlatZinc: what is allowed costs 0, or what is minimised or maximised.

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
    reader = _FlatZincReader(file, kept, source)
    for at, variable, other in file.equal:
        reader.add(FlatConstraint(at, "int_eq", (variable, other)), places)
    for constraint in file.constraints:
        if constraint is not defined:
            reader.add(constraint, places)
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

    Parameters
    ----------
    file : FlatZincFile
    kept : sequence of int
        The variables that the model has.
    source : Source
    """

    def __init__(self, file: FlatZincFile, kept: Sequence[int], source: Source) -> None:
        self.file, self.source = file, source
        self.variables = [file.variables[v] for v in kept]
        for variable in self.variables:
            if variable.values is None:
                found = f"{shorten(variable.name)!r}, which has none"
                raise file.fail(variable.at, "variables with bounds, such as var 1..9", found)
        values = [tuple(sorted(variable.values or ())) for variable in self.variables]
        self.functions = FlatZincFunctions(Decomposition([*map(len, values)], FORBIDDEN, source.allowance), values)
        self.notes: list[str] = []

    def add(self, constraint: FlatConstraint, places: dict[int, int]) -> None:
        """Add a constraint, whose variables are numbered as in the file."""
        given = tuple(_renumbered(each, places) for each in constraint.given)
        line = self.file.fail(constraint.at, "").line
        self.functions.parts.what = f"the constraint {shorten(constraint.name)!r} of line {line}"
        try:
            add_constraint(self.functions, FlatConstraint(constraint.at, constraint.name, given))
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
            self.functions.linear(*sums, ">=", min(variable.values) - own * right)
            self.functions.linear(*sums, "<=", max(variable.values) - own * right)
        self.notes.append(f"{shorten(variable.name)!r} is no variable of the model: its value is that of the answer")

    def _costs(self, weight: int, operand: Given) -> None:
        sign = -weight if self.file.goal == "maximize" else weight
        variable = isinstance(operand, tuple)
        costs = [sign * value for value in (self.functions.values[operand[0]] if variable else (operand,))]
        if max(map(abs, costs)) >= _LARGEST:
            raise self.file.fail(len(self.file.tokens), "costs below 10^18", "greater ones")
        if any(costs):
            table = np.array(costs, np.int64)
            self.functions.parts.add(Function(operand if variable else (), table if variable else table[0]))

    def model(self) -> Model:
        """Return the model."""
        parts = self.functions.parts
        states: list[tuple[str, ...] | None] = []
        for variable, values in zip(self.variables, self.functions.values, strict=True):
            numbered = values == (*range(len(values)),)
            states.append(("false", "true") if variable.boolean else None if numbered else tuple(map(str, values)))
        return Model(
            kind="cost",
            names=parts.names([variable.name for variable in self.variables]),
            dims=tuple(parts.dims),
            states=(*states, *[None] * parts.hidden),
            functions=tuple(parts.functions),
            maximize=self.file.goal == "maximize",
            name=self.source.stem,
            hidden=parts.hidden,
            notes=tuple(self.notes),
        )


def _renumbered(given: Given, places: dict[int, int]) -> Given:
    """Return what a constraint is given with the model's numbers of variables."""
    if isinstance(given, list):
        return [_renumbered(each, places) for each in given]
    return (places[given[0]],) if isinstance(given, tuple) else given
