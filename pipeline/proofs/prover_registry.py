"""All provers, a line each: adding one takes its module in :mod:`.provers` and a line here."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Literal

from ...tasks.compiler.code_cache import is_compiled
from ...tasks.compiler.compile_limits import is_limited
from ...tasks.steps.light_dataclass import dataclass
from .incumbent import Incumbent
from .prover import Prover
from .provers.neighbourhood_search import LARGE_DOMAIN_BITS, is_wide

# Networks of at most this many assignments, in bits, are searched rather than represented, where their domains are
# large.
_SEARCHED_BITS: Final = 128
# Of networks of more assignments, in bits, a search sees only a part, if short ones found no proof.
_UNSEARCHED_BITS: Final = 512

Trait = Literal["few large", "many", "wide", "unfound"]
"""A property of a network's domains, or the fact that no assignment is known."""


def traits_of(dims: Sequence[int], found: bool = True) -> frozenset[Trait]:
    """Return the traits of a network with these domains; ``found`` tells whether an assignment is known."""
    bits = math.fsum(math.log2(d) for d in dims)
    few = bits <= _SEARCHED_BITS and bits >= LARGE_DOMAIN_BITS * len(dims)
    many = bits > _UNSEARCHED_BITS
    traits: dict[Trait, bool] = {"few large": few, "many": many, "wide": is_wide(dims), "unfound": not found}
    return frozenset(trait for trait, holds in traits.items() if holds)


def may_be_easy(dims: Sequence[int]) -> bool:
    """Whether a short search may be complete: the network has few variables, and their domains are large."""
    if LARGE_DOMAIN_BITS * len(dims) > _UNSEARCHED_BITS:
        return False
    bits = math.fsum(math.log2(d) for d in dims)
    return LARGE_DOMAIN_BITS * len(dims) <= bits <= _UNSEARCHED_BITS


@dataclass(frozen=True)
class CompiledLoop:
    """A function without which a prover does nothing, and that takes several seconds to compile.

    Parameters
    ----------
    module, function : str
        Such as "tasks.search.annealing" and "anneal".
    from_seconds : float
        As long as it is not compiled, the prover waits until its turns are this long.
    interpreted : bool
        Whether the prover runs it in the interpreter on small networks, within a time limit, until it is compiled.
    """

    module: str
    function: str
    from_seconds: float
    interpreted: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether it is compiled."""
        return is_compiled(self.module, self.function)

    @property
    def is_dispensable(self) -> bool:
        """Whether short turns need not wait for a compiler."""
        return (self.interpreted and is_limited()) or self.is_compiled


@dataclass(frozen=True)
class Registered:
    """A prover.

    Parameters
    ----------
    name : str
        In answers, and to let it search alone.
    make : callable
        Builds the prover from an incumbent.
    loop : CompiledLoop, optional
        Loop that must be compiled first.
    weights : mapping
        By trait of the network, how much longer its turns are.
    proves : bool
        Whether it may prove an optimum, rather than only find one.
    listens : bool
        Whether it hears of assignments before its first turn.
    package : str
        Optional package without which the prover has no turns.
    """

    name: str
    make: Callable[[Incumbent], Prover]
    loop: CompiledLoop | None = None
    weights: Mapping[Trait, float] = field(default_factory=dict)
    proves: bool = True
    listens: bool = False
    package: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.package or find_spec(self.package) is not None

    def weight_of(self, traits: Collection[Trait]) -> float:
        """Return the factor for the length of its turns in a network with these traits."""
        return next((weight for trait, weight in self.weights.items() if trait in traits), 1.0)


def _in(module: str, name: str) -> Callable[[Incumbent], Prover]:
    """A class of a module of :mod:`.provers`, which is imported by its first turn."""

    def make(incumbent: Incumbent) -> Prover:
        prover: Prover = getattr(import_module(f"{__package__}.provers.{module}"), name)(incumbent)
        return prover

    return make


_DEPTH_FIRST = ("tasks.search.branch_and_bound", "explore")
#: In the order of their turns while nothing tells them apart.
ALL_PROVERS: tuple[Registered, ...] = (
    Registered("dolls", _in("russian_dolls", "DollProver"), CompiledLoop("tasks.search.russian_dolls", "explore", 0.5)),
    Registered("clusters", _in("clusters", "ClusterProver"), CompiledLoop("tasks.networks.clusters", "sweep", 0.5)),
    Registered("triangles", _in("triangles", "TriangleProver"), CompiledLoop("tasks.networks.triangles", "sweep", 1.0)),
    Registered("subtrees", _in("subtrees", "SubtreeProver"), CompiledLoop(*_DEPTH_FIRST, 1.0)),
    Registered("rows", _in("row_layers", "RowProver"), weights={"few large": 0.5}),
    Registered(
        "search",
        _in("branch_and_bound", "DepthFirstProver"),
        CompiledLoop(*_DEPTH_FIRST, 1.0, interpreted=True),
        weights={"few large": 4.0, "unfound": 4.0, "many": 0.5},
    ),
    Registered(
        "local",
        _in("local_search", "LocalProver"),
        CompiledLoop("tasks.search.annealing", "anneal", 1.0),
        weights={"wide": 4.0},
        proves=False,
        listens=True,
    ),
    Registered(
        "diagram",
        _in("diagrams", "DiagramProver"),
        CompiledLoop("tasks.diagrams.min_plus_loops", "merge", 0.5),
        weights={"few large": 0.25},
    ),
    Registered("toulbar2", _in("toulbar2", "Toulbar2Prover"), package="pytoulbar2"),
    Registered("dense", _in("planned_sweep", "DenseProver")),
)

_IN_USE: ContextVar[tuple[Registered, ...]] = ContextVar("provers in use", default=ALL_PROVERS)


def provers_in_use() -> tuple[Registered, ...]:
    """Return the provers that take turns if they are installed: all of them, but within :func:`using`."""
    return _IN_USE.get()


@contextmanager
def using(provers: Iterable[Registered]) -> Iterator[None]:
    """Restrict the turns to these provers, for measurements of single provers."""
    token = _IN_USE.set(tuple(provers))
    try:
        yield
    finally:
        _IN_USE.reset(token)
