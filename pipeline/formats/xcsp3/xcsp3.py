"""XCSP3, core: constraint problems over integers, with an objective or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ....tasks.steps.number_limits import LARGEST_DECIMAL
from ...errors import shorten
from ...models.model import FORBIDDEN, Function, Model
from ...models.state_names import integer_labels
from ..constraint_functions import ConstraintFunctions
from ..global_functions.decomposition import Decomposition
from ..global_functions.machine import State
from ..shared_constraints import product_of
from ..text.source import Source
from ..text.xml import Element, root_element
from .xcsp3_constraints import Xcsp3Constraints
from .xcsp3_lists import NUMBER, Xcsp3Variables, words_of

_SECTIONS = ("variables", "constraints", "objectives", "annotations")


def read_xcsp3(source: Source) -> Model:
    """Read an XCSP3 problem (.xml). Allowed assignments cost 0, or the value of the objective.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed, or has variables, constraints or objectives that are not of the core.
    BudgetError
        If a constraint has too many states.
    """
    root = root_element(source, "instance")
    variables = Xcsp3Variables(source)
    if (kind := root.attributes.get("type", "CSP")) not in ("CSP", "COP"):
        raise variables.fail(root, "a problem of type CSP or COP", f"one of type {shorten(kind)!r}, which is not read")
    for section in root.children:
        if section.tag not in _SECTIONS:
            raise variables.fail(section, f"<{'>, <'.join(_SECTIONS)}>", f"<{shorten(section.tag)}>, which is not read")
    for section in root.children:
        if section.tag != "annotations":
            variables.refuse_mixed(section)
    for section in root.every("variables"):
        variables.read(section)
    if not variables.values:
        raise variables.fail(root, "a problem with variables", "none")
    parts = Decomposition([*map(len, variables.values)], FORBIDDEN, source.allowance)
    functions = ConstraintFunctions(parts, variables.values)
    constraints = Xcsp3Constraints(variables, functions)
    for section in root.every("constraints"):
        constraints.check_attributes(section)
        constraints.section(section)
    objectives = [each for section in root.every("objectives") for each in section.children]
    if len(objectives) > 1:
        raise variables.fail(objectives[1], "one objective", "a second one")
    for objective in objectives:
        _Objective(constraints, objective).add()
    # variables that share a domain share its labels
    labels = {key: integer_labels(own) for key, own in {id(own): own for own in variables.values}.items()}
    states = [labels[id(own)] for own in variables.values]
    maximize = any(objective.tag == "maximize" for objective in objectives)
    return parts.model([*variables.index], states, maximize=maximize, name=source.stem)


class _Objective:
    """Adds what an objective costs, negated where it is maximised."""

    def __init__(self, constraints: Xcsp3Constraints, element: Element) -> None:
        self.constraints, self.element = constraints, element
        self.functions = constraints.functions
        if element.tag not in ("minimize", "maximize"):
            raise constraints.variables.fail(element, "<minimize> or <maximize>", f"<{shorten(element.tag)}>")
        self.sign = -1 if element.tag == "maximize" else 1

    def add(self) -> None:
        """Add its costs."""
        kind = self.element.attributes.get("type", "expression")
        for child in self.element.children:
            if child.tag not in ("list", "coeffs"):
                expected = f"<list>, <coeffs> in <{self.element.tag}>"
                raise self.constraints.variables.fail(child, expected, f"<{shorten(child.tag)}>, which is not read")
        at = self.constraints.one(self.element)
        self.functions.parts.what = f"the objective of line {self.element.line}"
        if kind in ("expression", "sum"):
            terms = [*self._terms(at.text, at)] if kind == "sum" else [*self._terms(at.text, at)][:2]
            if not terms:
                raise self.constraints.variables.fail(at, "an objective", "none")
            if kind == "expression" and len(terms) != 1:
                raise self.constraints.variables.fail(at, "one expression", "several variables: a type is missing")
            self._sum(terms, at)
        elif kind in ("maximum", "minimum"):
            self._extreme(at, max if kind == "maximum" else min)
        elif kind == "nValues":
            self.functions.machine(
                self._scope(at), frozenset(), lambda seen, _, value: seen | {value}, lambda seen: self.sign * len(seen)
            )
        else:
            found = f"one of type {shorten(kind)!r}, which is not read"
            raise self.constraints.variables.fail(
                self.element, "an objective of type expression, sum, maximum, minimum or nValues", found
            )

    def _scope(self, at: Element) -> list[int]:
        """Return the variables of a list, times their coefficients."""
        operands = self.constraints.operands(at)
        if [*self.element.every("coeffs")]:
            coefficients = self.constraints.given(self.element, "coeffs", len(operands))
            pairs = zip(coefficients, operands, strict=True)
            operands = [product_of(self.functions, x, y) for x, y in pairs]
        if not operands:
            raise self.constraints.variables.fail(at, "a list of variables", "none")
        return [self.constraints.variable(each) for each in operands]

    def _terms(self, text: str, at: Element) -> Iterator[str]:
        """Yield the variables, numbers and expressions of a list, one by one."""
        for word in words_of(text):
            if "(" in word:
                yield word
            elif NUMBER.fullmatch(word):
                yield from map(str, self.constraints.variables.integers(word, at))
            else:
                yield from (self.constraints.variables.names[v] for v in self.constraints.variables.scope(word, at))

    def _sum(self, terms: Sequence[str], at: Element) -> None:
        coefficients = ["1"] * len(terms)
        if [*self.element.every("coeffs")]:
            given = self.constraints.one(self.element, "coeffs")
            coefficients = [*self._terms(given.text, given)]
        if len(coefficients) != len(terms):
            raise self.constraints.variables.fail(at, f"{len(terms)} coefficients", f"{len(coefficients)}")
        for coefficient, text in zip(coefficients, terms, strict=True):
            whole = NUMBER.fullmatch(coefficient) is not None
            own, factor = (text, int(coefficient)) if whole else (f"mul({coefficient},{text})", 1)
            scope, term = self.constraints.expression(own, at)
            values = self.constraints.tabulated(scope, term, at)
            if int(np.abs(values).max()) * abs(factor) >= LARGEST_DECIMAL:
                raise self.constraints.variables.fail(at, "costs below 10^18", "greater ones")
            self.functions.parts.add(Function(tuple(scope), values * (self.sign * factor)))

    def _extreme(self, at: Element, choose: Callable[[int, int], int]) -> None:
        def step(state: State, _: int, value: int) -> State:
            return value if state is None else choose(state, value)

        self.functions.machine(self._scope(at), None, step, lambda state: self.sign * state)
