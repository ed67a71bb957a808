"""The model: variables, domain sizes and functions, immutable, as every reader produces it."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, ShortDir, checks_keywords, format_bytes, public, shorten
from .checks import Kind as Kind
from .checks import (
    array_of,
    checked_functions,
    checked_variables,
    fitting,
    integer,
    kind_named,
    read_only,
    rows_of,
    unknown_variable,
)
from .frames import Evaluation
from .function import FEW, Scopes, greatest_costs, know_positive, least_costs, stored_costs
from .function import FORBIDDEN as FORBIDDEN
from .function import Function as Function
from .function import dense_function as dense_function
from .function import row_function as row_function
from .hidden_variables import completed
from .state_names import StateNames

if TYPE_CHECKING:
    from ..drawings.svg import Svg


@dataclass(frozen=True)
class Projection:
    """Variables whose assignments alone are counted or summed over: the others need only some state.

    Parameters
    ----------
    variables : tuple of int
    told : str
        File, line and words that say so.
    unread : tuple of int
        Functions that weigh states of the others, which such sums leave out.
    """

    variables: tuple[int, ...]
    told: str
    unread: tuple[int, ...] = ()


# Fields that two models must share to be equal, beside their functions.
_COMPARED = ("kind", "names", "dims", "states", "top", "decimals", "maximize", "evidence", "hidden", "summed")
_LARGEST = int(np.iinfo(np.int64).max)


def checked_model(model: Any) -> Model:
    """Return the argument if it is a model, and raise an error otherwise.

    Raises
    ------
    ModelError
        If it is not.
    """
    if not isinstance(model, Model):
        raise ModelError(f"a Model is expected, found {type(model).__name__}; bucketflow.load reads one from a file")
    return model


def _domain(variable: str, given: Any) -> int | tuple[Any, ...]:
    """The size of a domain, or its labels."""
    return tuple(given) if isinstance(given, Iterable) else integer(given, f"the domain of {variable!r}", 1)


def _named_parts(k: int, given: Any) -> tuple[Any, ...]:
    """The names that a function is over, as a tuple, and what else is given of it."""
    if isinstance(given, tuple | list) and given and isinstance(given[0], Iterable):
        names = (given[0],) if isinstance(given[0], str) else tuple(given[0])
        if all(isinstance(name, Hashable) for name in names):
            return (names, *given[1:])
    raise ModelError(f"function {k} is {shorten(repr(given))}; expected names of variables, then an array")


def _function_of(k: int, scope: tuple[int, ...], values: Sequence[Any], child: int | None) -> Function:
    """Make a function of an array, or of rows with their values and a default; all arrays are its own."""
    if len(values) not in (1, 3):
        found = f"{len(values)} parts beside its names"
        raise ModelError(f"function {k} has {found}; expected values, or rows, values and a default")
    if len(values) == 1:
        return Function(scope, array_of(values[0], f"function {k}").copy(), child=child)
    what = f"function {k}"
    return Function(scope, array_of(values[1], what).copy(), rows_of(values[0], len(scope), what), values[2], child)


@public
@dataclass(frozen=True, eq=False)
class Model(ShortDir):
    """A discrete graphical model.

    Costs are int64 and are minimised; an assignment is forbidden if one of its costs is ``FORBIDDEN`` or
    their sum reaches ``top``. A decimal or maximised file is stored scaled by ``10**decimals`` and, if
    ``maximize``, negated; :meth:`objective` turns a stored cost back. Probabilities and potentials are
    float64 >= 0 in natural scale, multiplied.

    Parameters
    ----------
    kind : {"cost", "markov", "bayes"}
        Kind of the functions: costs that add up, potentials that multiply, or conditional distributions.
    names : tuple of str
        Variable names, distinct.
    dims : tuple of int
        Domain sizes, each at least 1.
    states : tuple
        For each variable its state labels, or None where states are plain indices.
    functions : tuple of Function
    source : str
        Absolute path of the file that was read, empty for a model made in memory.
    top : int, optional
        Totals of at least this are forbidden; None for no such bound.
    hidden : int
        How many variables, the last ones, are not the model's own: no answer names them. They follow from the others,
        unless ``summed`` says otherwise.
    notes : tuple of str
        Facts of the model's file that answers do not show, one sentence each. Every answer repeats them.
    projection : Projection, optional
        Variables that counts and sums are projected on; None for all variables.
    summed : str
        Where hidden variables do not follow from the others, but are to be summed over: file, line and words that say
        so. Such a model has sums and marginals, and neither optima nor counts.

    Examples
    --------
    >>> import bucketflow
    >>> model = bucketflow.Model.build("cost", {"a": 2, "b": ["low", "high"]}, [(("a", "b"), [[3, 1], [2, 5]])], top=10)
    >>> model.variables
    {'a': range(0, 2), 'b': ('low', 'high')}
    >>> bucketflow.solve(model).assignment
    {'a': 0, 'b': 'high'}
    >>> model.cost([0, 1])
    1
    """

    _SHOWN = (
        *("kind", "name", "source", "variables", "names", "functions", "evidence", "top", "maximize", "notes"),
        *("build", "draw", "evaluate"),
    )

    kind: Kind
    names: tuple[str, ...]
    dims: tuple[int, ...]
    states: tuple[tuple[str, ...] | None, ...]
    functions: tuple[Function, ...]
    top: int | None = None
    decimals: int = 0
    maximize: bool = False
    name: str = ""
    source: str = ""
    evidence: Mapping[int, int] = field(default_factory=dict)
    hidden: int = 0
    notes: tuple[str, ...] = ()
    projection: Projection | None = None
    summed: str = ""

    def __post_init__(self) -> None:
        kind = kind_named(self.kind)
        names, dims, states = checked_variables(self.names, self.dims, self.states)
        top = None if self.top is None else integer(self.top, "top", low=None)
        if top is not None and kind != "cost":
            raise ModelError("only costs have a top; probabilities and potentials are excluded by values of 0")
        integer(self.decimals, "the number of decimals")
        functions = read_only(checked_functions(kind, dims, self.functions))
        evidence = {}
        for v, state in self.evidence.items():
            variable = integer(v, "a variable of a model's evidence, by its index,", high=len(dims))
            evidence[variable] = integer(state, f"the state of {names[variable]!r}", high=dims[variable])
        for name, value in zip(
            ("names", "dims", "states", "functions", "top", "evidence"),
            (names, dims, states, functions, top, evidence),
            strict=True,
        ):
            object.__setattr__(self, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, functions=read_only(state["functions"]))

    @classmethod
    @checks_keywords
    def build(
        cls,
        kind: Kind,
        variables: Mapping[str, int | Sequence[str]],
        functions: Iterable[tuple[Sequence[str], ArrayLike] | tuple[Sequence[str], ArrayLike, ArrayLike, float]],
        *,
        top: float | Decimal | None = None,
        name: str = "",
        check: bool = True,
    ) -> Model:
        """Build a model from names and arrays.

        Parameters
        ----------
        kind : {"cost", "markov", "bayes"}
        variables : mapping
            Variable name → number of states, or their labels.
        functions : iterable of (names, array) or (names, rows, values, default)
            The names of the variables that a function is over, and one value for each of their joint states: an
            axis a variable, in that order. Or some joint states, a row of state indices each, one value for each
            row, and the value of all others. In a Bayesian network the last variable is the child. Arrays are
            copied. Costs may be floats, which are exact in the digits that Python prints, and infinite where they
            forbid something.
        top : number, optional
            Totals of costs of at least this are forbidden; of costs only.
        check : bool, optional
            Whether a Bayesian network has to be one: a distribution of each variable, rows that sum to 1, no cycle.
            False takes the tables as they are, and answers are for their product.

        Raises
        ------
        ModelError
            If names, shapes or values contradict each other, or make no Bayesian network.
        """
        from .bayesian_networks import check_network

        if not isinstance(variables, Mapping):
            raise ModelError(f"variables are a mapping of names to sizes or labels, not {shorten(repr(variables))}")
        domains = [_domain(variable, given) for variable, given in variables.items()]
        states = tuple(domain if isinstance(domain, tuple) else None for domain in domains)
        dims = tuple(len(domain) if isinstance(domain, tuple) else domain for domain in domains)
        places = {variable: v for v, variable in enumerate(variables)}
        made = []
        for k, given in enumerate(functions if isinstance(functions, Iterable) else [functions]):
            scope, *values = _named_parts(k, given)
            if unknown := [v for v in scope if v not in places]:
                raise unknown_variable(unknown[0], places, f"function {k} is over")
            indices = tuple(places[v] for v in scope)
            child = indices[-1] if kind == "bayes" and indices else None
            made.append(_function_of(k, indices, values, child))
        # floating-point costs become integers with a common number of decimals
        stored, whole, decimals = stored_costs(kind, made, top)
        model = cls(kind, tuple(variables), dims, states, tuple(stored), top=whole, decimals=decimals, name=name)
        if check and kind == "bayes":
            check_network(model.functions, model.names, dims, model.states)
        return model

    def __repr__(self) -> str:
        size, named = max(self.dims, default=0), f" {shorten(self.name)!r}" if self.name else ""
        counts = f"{len(self.dims)} variables of up to {size} states, {len(self.functions)} functions"
        return f"<{self.kind} model{named}: {counts}>"

    @property
    def title(self) -> str:
        """Its name, or its file; empty if it has neither."""
        return self.name or os.path.basename(self.source)

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines that describe the model."""
        kinds = {"cost": "costs", "markov": "a Markov network", "bayes": "a Bayesian network"}
        arity = max((len(f.scope) for f in self.functions), default=0)
        rows = [("model", self.title or "in memory"), ("kind", kinds[self.kind])]
        rows.append(("variables", f"{len(self.own_names):,}, of up to {max(self.dims, default=0):,} states"))
        rows.append(("functions", f"{len(self.functions):,}, of up to {arity} variables, {format_bytes(self.nbytes)}"))
        if self.top is not None:
            rows.append(("top", str(self.objective(self.top))))
        if self.evidence:
            rows.append(("evidence", f"on {len(self.evidence):,} variables"))
        return rows + [("note", text) for text in self.notes]

    def _repr_html_(self) -> str:
        from ..drawings.html import shown_rows

        return shown_rows(self.rows())

    def draw(
        self, *, posteriors: Mapping[str, Any] | None = None, evidence: Mapping[str, str | int] | None = None
    ) -> Svg:
        """Draw the model: parents above children in a Bayesian network, variables and functions elsewhere.

        A function of two variables is a line, one of more a square. Large models are drawn as communities of variables.
        Graphviz places the boxes where it is installed (``dot``), networkx, from the extra ``draw``, or levels else.

        Parameters
        ----------
        posteriors : mapping, optional
            Name of a variable → its distribution, as :func:`bucketflow.marginals` returns them: bars in its box, with
            a stripe from green, decided, to red, as undecided as can be.
        evidence : mapping, optional
            Name of a variable → state; boxes of observed variables have a thick frame.

        Returns
        -------
        Svg
            Notebooks show it; ``save(path)`` writes it.

        Raises
        ------
        ModelError
            If the evidence does not fit the model.
        BucketflowError
            If there are communities to be found, and networkx is not installed.
        """
        from ..drawings.network_picture import network_picture
        from .model_picture import family_edges, function_nodes, seen_labels, variable_node

        own = len(self.own_names)
        labels = [[str(self.label(v, s)) for s in range(self.dims[v])] for v in range(own)]
        seen = seen_labels(labels, self.observe(evidence or {}))
        tables = posteriors or {}
        nodes = [
            variable_node(f"v{v}", name, labels[v], tables.get(name), seen.get(v))
            for v, name in enumerate(self.own_names)
        ]
        if directed := self.kind == "bayes":
            edges = family_edges(self.functions, own)
        else:
            others, edges = function_nodes(self.functions, self.own_names)
            nodes += others
        title = self.title or f"{self.kind} model"
        return network_picture(title, nodes, edges, directed)

    def with_functions(self, others: Mapping[int, Function], *notes: str) -> Model:
        """Return a copy with other functions, by number, of the same scopes and kind of values, and further notes."""
        functions = [others.get(f, function) for f, function in enumerate(self.functions)]
        return replace(self, functions=fitting(self.kind, self.dims, functions), notes=(*self.notes, *notes))

    @property
    def variables(self) -> dict[str, Sequence[str | int]]:
        """The labels of each variable's states by name, or their indices if the variable has no labels."""
        return {name: self.state_labels(name) for name in self.own_names}

    def __getitem__(self, name: str) -> Sequence[str | int]:
        return self.state_labels(name)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    __iter__ = None  # names are looked up, not iterated over: `model.variables` lists them

    def __eq__(self, other: object) -> bool:
        """Whether the other one is a model of the same variables, states, functions in the same order, and evidence."""
        if not isinstance(other, Model):
            return NotImplemented
        return self is other or (
            all(getattr(self, name) == getattr(other, name) for name in _COMPARED)
            and len(self.functions) == len(other.functions)
            and all(one.equals(two) for one, two in zip(self.functions, other.functions, strict=True))
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.names, self.dims, len(self.functions)))

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the model's own variables, without hidden ones."""
        return self.names[: len(self.names) - self.hidden]

    @cached_property
    def index(self) -> dict[str, int]:
        """Variable index by name, of the model's own variables."""
        return {name: i for i, name in enumerate(self.own_names)}

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all function values and rows."""
        return sum(f.values.nbytes + (0 if f.rows is None else f.rows.nbytes) for f in self.functions)

    @cached_property
    def lowest(self) -> tuple[int, ...]:
        """Least allowed cost of each function; 0 for a function that allows nothing."""
        return tuple(least_costs(self.functions))

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """For each function, the cost from which no assignment with it can be allowed.

        That is where even the least costs of all other functions bring the total to ``top``.
        """
        if self.top is None:
            return (FORBIDDEN,) * len(self.functions)
        rest = self.top - sum(self.lowest)
        return tuple(min(FORBIDDEN, rest + low) for low in self.lowest)

    @cached_property
    def greatest(self) -> tuple[int, ...]:
        """Greatest cost of each function below its limit; its least allowed cost if none is greater."""
        return tuple(greatest_costs(self.functions, self.limits, self.lowest))

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of all functions, as arrays."""
        return Scopes.of(self.functions, self.dims)

    @cached_property
    def log_bounds(self) -> NDArray[np.float64]:
        """ln of the least and of the greatest value above 0 of each function; shape (2, functions)."""
        know_positive(self.functions)
        ends = [function.positive for function in self.functions]
        return np.array([[math.log(low) for low, _ in ends], [math.log(high) for _, high in ends]]).reshape(2, -1)

    @cached_property
    def orders_of_magnitude(self) -> float:
        """Most orders of magnitude between two products of positive values, one of each function."""
        low, high = self.log_bounds
        return float((high - low).sum()) / math.log(10.0)

    @cached_property
    def allowed_costs(self) -> NDArray[np.int64]:
        """:attr:`lowest` and, as far as 64 bits hold them, :attr:`limits`; shape (2, functions)."""
        return np.array([self.lowest, [max(limit, -_LARGEST) for limit in self.limits]], np.int64)

    def variable(self, name: Any, who: str = "") -> int:
        """Return the index of one of the model's own variables; ``who`` names it, for the message.

        Raises
        ------
        ModelError
            If no variable has this name. The message suggests a similar name.
        """
        if not isinstance(name, str) or name not in self.index:
            raise unknown_variable(name, self.index, who)
        return self.index[name]

    def state_index(self, variable: int, state: Any) -> int:
        """Return the index of a state that is given by its label or its index; see :class:`~.state_names.StateNames`.

        Raises
        ------
        ModelError
            If the variable has no such state.
        """
        return self.state_names(variable).index(state)

    def state_names(self, variable: int) -> StateNames:
        """Return the object that finds the states of a variable by label or by index."""
        found = self._state_names.get(variable)
        if found is None:
            names = StateNames(self.names[variable], self.dims[variable], self.states[variable])
            found = self._state_names[variable] = names
        return found

    @cached_property
    def _state_names(self) -> dict[int, StateNames]:
        return {}

    def named(self, findings: Mapping[int, Any]) -> dict[str, Any]:
        """Return findings by the names of variables: state indices as labels, likelihoods as they are.

        Labels are never read as indices, so that what is named here means the same states wherever it is read.
        """
        own = ((v, finding if np.ndim(finding) else self.label(v, int(finding))) for v, finding in findings.items())
        return {self.names[v]: finding for v, finding in own}

    def shown(self, assignment: Sequence[int]) -> dict[str, str | int]:
        """Return an assignment by the names of variables and states, without hidden variables."""
        chosen = zip(self.own_names, self.states, assignment, strict=False)
        return {name: state if labels is None else labels[state] for name, labels, state in chosen}

    def label(self, variable: int, state: int) -> str | int:
        """Return the label of a state, or its index where the variable has no labels."""
        labels = self.states[variable]
        return state if labels is None else labels[state]

    def state_labels(self, name: str) -> Sequence[str | int]:
        """Return the labels of a variable's states, or their indices if it has no labels."""
        variable = self.variable(name)
        return self.states[variable] or range(self.dims[variable])

    def objective(self, cost: int) -> int | Decimal:
        """Turn a stored cost into the value that the file's author means."""
        signed = -cost if self.maximize else cost
        return Decimal(signed).scaleb(-self.decimals) if self.decimals else signed

    def observe(self, evidence: Mapping[str, str | int] | Iterable[tuple[str, str | int]]) -> dict[int, int]:
        """Turn named evidence into variable index → state index, on top of the model's own evidence.

        Raises
        ------
        ModelError
            If a variable or state is unknown, or a variable is observed in two different states.
        """
        states = dict(self.evidence)
        for name, state in evidence.items() if isinstance(evidence, Mapping) else evidence:
            variable = self.variable(name, "evidence names")
            value = self.state_index(variable, state)
            if states.setdefault(variable, value) != value:
                raise ModelError(f"variable {name!r} is observed in two different states")
        return states

    def completed(self, assignment: Sequence[int]) -> Sequence[int] | None:
        """Return an assignment extended by the states of hidden variables, or None if none fit.

        None where some hidden variable has no state that is allowed: then the assignment is forbidden.

        Raises
        ------
        ModelError
            If a hidden variable does not follow from the others.
        """
        return assignment if len(assignment) == len(self.dims) else completed(self.functions, assignment, self.dims)

    def cost(self, assignment: Sequence[int]) -> int | None:
        """Return the total cost of an assignment (state indices), or None if it is forbidden.

        States of hidden variables may be left out.
        """
        whole = self.completed(assignment)
        if whole is None:
            return None
        values = self._values_at(whole)
        if max(values, default=0) >= FORBIDDEN:
            return None
        total = sum(map(int, values))
        return None if self.top is not None and total >= self.top else total

    def log10_value(self, assignment: Sequence[int]) -> float:
        """Return log10 of the product of all functions at an assignment; -inf for probability 0.

        States of hidden variables may be left out.
        """
        whole = self.completed(assignment)
        values = [0.0] if whole is None else self._values_at(whole)
        return -math.inf if 0.0 in values else math.fsum(map(math.log10, values))

    def evaluate(self, assignment: Mapping[str, str | int]) -> Evaluation:
        """Evaluate a given assignment: return its value, or the functions that forbid it.

        Parameters
        ----------
        assignment : mapping
            Variable name → state label or index, for every variable except the variables of the model's own evidence.

        Raises
        ------
        ModelError
            If a variable has no state, or a variable or state does not exist in the model.
        """
        states = self.observe(assignment)
        own = [states.get(v, -1) for v in range(len(self.own_names))]
        if missing := [name for name, state in zip(self.names, own, strict=False) if state < 0]:
            raise ModelError(
                f"the assignment has no value for {len(missing)} of {len(own)} variables, {missing[0]!r} among them"
            )
        whole = self.completed(own)
        values = [] if whole is None else self._values_at(whole)
        costs = self.kind == "cost"
        excluded = [f for f, value in enumerate(values) if (value >= FORBIDDEN if costs else value == 0)]
        by = tuple(tuple(self.names[v] for v in self.functions[f].scope) for f in excluded)
        if not costs:
            log10 = self.log10_value(own)
            return Evaluation(log10 > -math.inf, None, log10, by)
        total = self.cost(own)
        if total is not None:
            return Evaluation(True, self.objective(total), None)
        reached = self.top is not None and not by and whole is not None
        return Evaluation(False, None, None, by, self.objective(self.top or 0) if reached else None)

    def _values_at(self, assignment: Sequence[int]) -> list[Any]:
        """Return the value of each function at a full assignment."""
        if len(self.functions) < FEW:
            return [f.at([assignment[v] for v in f.scope]) for f in self.functions]
        return self.scopes.values_at(self.functions, assignment)
