"""The content of a distributed problem before its costs are scaled (names, tables, agents), and the problem built from
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from decimal import Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import LARGEST_DECIMALS
from ...errors import FormatError, ModelError, format_count, shorten
from ...models.dcop import Agent, Dcop, External
from ...models.model import Function, Model, dense_function
from ..decimal_costs import (
    BEYOND,
    READ_AS_INFINITE,
    Number,
    are_read_as_infinite,
    decimal_places,
    scaled,
    scaled_array,
    scaled_bound,
)
from ..format_policy import ELEMENT_BYTES, OBJECT_BYTES, STATE_BYTES
from ..text.source import Source
from ..text.tables import MAX_AXES, cell_count, tuple_table

# Most parts of expressions that are evaluated on columns; more would take minutes.
EXPRESSION_WORK: Final = 1 << 36
# A part that Python evaluates takes as long as this many.
_PYTHON_WORK: Final = 32


@dataclass(frozen=True, eq=False)
class Given:
    """A function as a file gives it.

    Parameters
    ----------
    name : str
    line : int
        Where it stands.
    scope : tuple of int
    costs : sequence of int or Decimal, or ndarray of int64
        One a row; all of them, the last variable fastest, where ``rows`` is None. ``FORBIDDEN`` forbids in an array.
    rows : ndarray, shape (rows, arity), optional
    default : int or Decimal
        Of assignments that no row lists.
    """

    name: str
    line: int
    scope: tuple[int, ...]
    costs: Sequence[Number] | NDArray[np.int64]
    rows: NDArray[np.int32] | None = None
    default: Number = 0


@dataclass
class Draft:
    """The content read so far."""

    source: Source
    name: str = ""
    maximize: bool = False
    top: Number | None = None
    names: dict[str, int] = field(default_factory=dict)
    labels: list[tuple[str, ...]] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    agents: dict[str, Agent] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    default_route: Decimal = Decimal(1)
    noise: dict[str, Decimal] = field(default_factory=dict)
    externals: list[External] = field(default_factory=list)
    work: int = 0
    passed: dict[str, tuple[int, str, int]] = field(default_factory=dict)

    @property
    def forbidden(self) -> Decimal:
        """The cost of a forbidden assignment."""
        return Decimal("-inf" if self.maximize else "inf")

    @property
    def dims(self) -> list[int]:
        """Domain sizes."""
        return [len(labels) for labels in self.labels]

    def fail(self, line: int | None, expected: str, found: str) -> FormatError:
        """Return the error for a line."""
        return FormatError(self.source.path, line, expected, found)

    def note(self, line: int, what: str, why: str) -> None:
        """Remember what of the file is passed over, once for all that is alike."""
        first, said, count = self.passed.get(what, (line, why, 0))
        self.passed[what] = first, said, count + 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Ignored content, one sentence each."""
        return tuple(
            f"{what} (line {line}{f', and {count - 1} more' if count > 1 else ''}) {why}"
            for what, (line, why, count) in self.passed.items()
        )

    def agent(self, line: int, agent: Agent) -> None:
        """Add an agent."""
        if not agent.name or agent.name in self.agents:
            raise self.fail(line, "an agent with a name of its own", repr(shorten(agent.name)))
        self.source.allowance.take(OBJECT_BYTES, "its agents")
        self.agents[agent.name] = agent

    def variable(self, line: int, name: str, labels: tuple[str, ...]) -> int:
        """Add a variable and return its index."""
        if not name or name in self.names:
            raise self.fail(line, "a variable with a name of its own", repr(shorten(name)))
        self.source.allowance.take(OBJECT_BYTES, "its variables")
        self.names[name] = len(self.names)
        self.labels.append(labels)
        return self.names[name]

    def domain(self, line: int, name: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Check the values of a domain."""
        if not labels or len(set(labels)) < len(labels):
            raise self.fail(line, f"different values of domain {shorten(name)!r}", f"{len(labels)} values")
        return tuple(labels)

    def take_states(self, count: int) -> None:
        """Count the memory of a domain that is about to be listed."""
        self.source.allowance.take(STATE_BYTES * count, f"a domain of {count} values")

    def scope(self, line: int, names: Sequence[str]) -> tuple[int, ...]:
        """Return the variables of a function."""
        for name in names:
            if name not in self.names:
                raise self.fail(line, "a variable of the problem", repr(shorten(name)))
        if len(set(names)) < len(names):
            raise self.fail(line, "a scope of different variables", f"one twice in {shorten(' '.join(names))!r}")
        self.source.allowance.take(ELEMENT_BYTES, "its functions")
        return tuple(self.names[name] for name in names)

    def take_costs(self, line: int, count: int, scope: Sequence[int], dense: bool) -> None:
        """Count the memory of a function's costs, which are about to be read."""
        if dense and len(scope) > MAX_AXES:
            raise self.fail(line, f"a function of at most {MAX_AXES} variables", f"one of {len(scope)}")
        cells = cell_count(scope, self.dims) if dense else count
        self.source.allowance.take((8 + 4 * len(scope)) * cells, f"a table of {cells} costs", STATE_BYTES * cells)

    def take_work(self, line: int, count: int, parts: int, *, python: bool = False) -> None:
        """Count the work of an expression with ``parts`` parts that will be evaluated ``count`` times."""
        unit = _PYTHON_WORK if python else 1
        self.work += count * parts * unit
        if self.work > EXPRESSION_WORK:
            most = f"expressions that evaluate at most {format_count(EXPRESSION_WORK // unit)} parts in all"
            raise self.fail(line, most, f"one of {format_count(parts)} parts for {format_count(count)} assignments")

    def dcop(self) -> Dcop:
        """Return the problem."""
        if not self.names:
            raise self.fail(None, "a problem with variables", "none")
        functions, top, decimals = self._stored()
        agents = tuple(self.agents.values())
        index = {agent.name: k for k, agent in enumerate(agents)}
        model = Model(
            kind="cost",
            names=tuple(self.names),
            dims=tuple(self.dims),
            states=tuple(self.labels),
            functions=functions,
            top=top,
            decimals=decimals,
            maximize=self.maximize,
            name=self.name or self.source.stem,
            notes=self.notes,
        )
        owners = tuple(index[self.owners[v]] for v in range(len(self.names)))
        try:
            named = tuple(given.name for given in self.given)
            return Dcop(model, agents, owners, named, self.default_route, self.noise, tuple(self.externals))
        except ModelError as error:
            raise self.fail(None, "a problem whose variables have agents", str(error)) from None

    def _stored(self) -> tuple[tuple[Function, ...], int | None, int]:
        """Return functions and top in stored costs, and the number of decimals of the file's."""
        bounds = [] if self.top is None else [self.top]
        defaults = [given.default for given in self.given]
        parts = [given.costs for given in self.given if not isinstance(given.costs, np.ndarray)]
        decimals = max(map(decimal_places, (bounds, defaults, *parts)))
        if decimals > LARGEST_DECIMALS:
            raise self.fail(None, f"costs of at most {LARGEST_DECIMALS} decimals", f"{decimals} decimals")
        line: int | None = None
        functions = []
        try:
            for given in self.given:
                line = given.line
                functions.append(self._function(given, decimals))
            line = None
            top = None if self.top is None else scaled_bound(self.top, decimals, self.maximize)
        except ValueError as error:
            raise self.fail(line, str(error), BEYOND) from None
        return tuple(functions), top, decimals

    def _function(self, given: Given, decimals: int) -> Function:
        if isinstance(given.costs, np.ndarray):
            costs = scaled_array(given.costs, decimals, self.maximize)
        else:
            costs = scaled(given.costs, decimals, self.maximize, self.top)
            if are_read_as_infinite(given.costs, given.default, costs, self.top):
                self.note(given.line, "costs of 10^18 and more", READ_AS_INFINITE)
        if given.rows is None:
            return dense_function(given.scope, costs.reshape([len(self.labels[v]) for v in given.scope]))
        default = int(scaled([given.default], decimals, self.maximize, self.top)[0])
        return tuple_table(given.scope, self.dims, given.rows, costs, default)
