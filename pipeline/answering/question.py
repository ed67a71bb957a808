"""Questions as the user asks them: a query on a model under evidence, checked before anything is computed.

Projected counts and sums are over assignments of some variables, for which there is an assignment of the others (Aziz,
Chu, Muise and Stuckey, #∃SAT: projected model counting, SAT 2015). Marginal MAP is the best assignment of some
variables, by the sum over the others (Park and Darwiche 2004).

The size of a question is known before anything is planned: the cells of a sweep, and the memory of its tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES
from ..cost_networks.cost_network import COPIES, has_exact_costs
from ..errors import ModelError
from ..formats.read import split_evidence, variables_of
from ..machine.resources import Resources
from ..models.findings import check_log10
from ..models.function import JOINT_CELLS
from ..models.model import Function, Model, Projection, checked_model
from ..models.query import QUERIES
from ..options import Options, parse_size
from ..orders.depth_first import bucket_parents, sweep_cells
from ..orders.min_fill import min_fill_order
from ..preprocessing.leaf_tables import without_isolated
from ..preprocessing.preprocess import Network, reduce_model, with_joints
from ..preprocessing.preprocessing_policy import PreprocessingPolicy
from ..preprocessing.wide_tables import with_links
from ..queries.beliefs import BeliefRequest, local_targets
from ..results.proof import A, AskedOf, noted
from ..trees.tree import Target

if TYPE_CHECKING:
    from ..queries.counting import CountPlan

# Cells of functions from which sparse tables are considered before the functions become dense.
LARGE_CELLS = 1 << 22

Array = NDArray[Any]
Evidence = str | PathLike[str] | Mapping[str, Any] | None
"""A file, a text as ``"x=1, y=yes"``, or by name of a variable a state's label or index, or one likelihood a state."""
Findings = Any
Names = Sequence[str] | str
Variables = str | PathLike[str] | Iterable[str] | None
"""Names, a text of names with commas between, or a file of variables; None where nothing is said."""


def fingerprint(model: Model) -> str:
    """Return a hash of everything in a model that an answer can depend on."""
    import hashlib

    digest = hashlib.sha256(repr((model.kind, model.names, model.dims, model.states, model.top)).encode())
    digest.update(repr((model.decimals, model.maximize)).encode())
    for f in model.functions:
        digest.update(repr((f.scope, f.default, f.child, f.values.shape, f.values.dtype.str)).encode())
        digest.update(np.ascontiguousarray(f.values).tobytes())
        if f.rows is not None:
            digest.update(np.ascontiguousarray(f.rows).tobytes())
    return digest.hexdigest()


def identity(model: Model, query: str, evidence: Mapping[int, int]) -> dict[str, Any]:
    """Return the facts that must be equal for a run to be continued, in any version that reads its format."""
    observed = {model.names[v]: int(s) for v, s in sorted(evidence.items())}
    return {"model": fingerprint(model), "query": query, "evidence": observed}


@dataclass(frozen=True)
class Question:
    """A query of a model.

    Parameters
    ----------
    model : Model
    query : {"optimum", "partition", "count", "marginals", "max-marginals"}
    hard : mapping of int to int
        Observed states by variable.
    soft : mapping of int to ndarray
        Likelihoods by variable.
    asked : Asked or None
        The requested marginals; None for a query with one value.
    outer : frozenset of int or None
        The variables that are counted or maximised over alone, once all others are eliminated; None for all.
    keeps_isolated : bool
        Whether variables that share no function with others stay in the network, for answers of many assignments.
    """

    model: Model
    query: str
    hard: Mapping[int, int] = field(default_factory=dict)
    soft: Mapping[int, Array] = field(default_factory=dict)
    asked: BeliefRequest | None = None
    outer: frozenset[int] | None = None
    keeps_isolated: bool = False

    def __post_init__(self) -> None:
        if self.query not in QUERIES:
            raise ModelError(f"unknown query {self.query!r}; one of {', '.join(QUERIES)}")
        check_projection(self.model, self.query)
        cost = self.model.kind == "cost"
        if cost and (why := QUERIES[self.query].not_of_costs):
            raise ModelError(why)
        if self.soft and (cost or QUERIES[self.query].swept == "count"):
            (v, weights), what = next(iter(self.soft.items())), "cost network" if cost else "count"
            wrong = f"{self.model.names[v]!r} has no state {weights.tolist()}"
            raise ModelError(f"a {what} takes no likelihoods, and {wrong}; observe a state instead")

    @cached_property
    def weighted(self) -> Model:
        """The model with its soft evidence."""
        return with_likelihoods(self.model, self.soft)

    @cached_property
    def reduced(self) -> tuple[Network, tuple[Target, ...] | None]:
        """The network that remains after preprocessing, and the sets of its variables whose tables are read."""
        query = QUERIES[self.query].swept
        if self.asked is None:
            network = reduce_model(self.weighted, query, self.hard, self.outer or ())
            settled = self.outer is None and query != "count" and not self.keeps_isolated
            return (without_isolated(network) if settled else network), None
        network = reduce_model(self.weighted, query, self.hard, self.asked.involved)
        targets = local_targets(network, self.asked)
        return (with_joints(network, targets) if network.feasible else network), tuple(targets)

    @cached_property
    def count_plan(self) -> CountPlan:
        """How the possible assignments of the reduced network are counted."""
        from ..queries.counting import CountPlan

        return CountPlan(self.reduced[0])

    @cached_property
    def chained(self) -> Question:
        """The question for tables, about a model in which chains of small functions replace very wide functions.

        The same question if there are no chains, if joints of whole functions are requested, or if dense sweeps
        of these functions take less work.
        """
        least = PreprocessingPolicy.current().chained_cells
        model = self.model if self.asked and self.asked.families else with_links(self.model, least)
        if model is self.model:
            return self
        chained = replace(self, model=model)
        return chained if has_fewer_cells(chained.reduced[0], self.reduced[0]) else self

    @property
    def is_large(self) -> bool:
        """Whether the functions are large, so that sparse tables are considered before the functions become dense."""
        return self.reduced[0].cells >= LARGE_CELLS

    def told(self, found: A) -> A:
        """Return an answer with the notes of the model and with the query.

        Raises
        ------
        InternalError
            If evidence of a Bayesian network is more than certain.
        """
        log10 = getattr(found, "log10_evidence", None)
        check_log10(self.model, getattr(found, "log10", None) if log10 is None else log10, self.soft.values())
        told: Any = noted(found, self.model.notes)
        asked: A = replace(told, asked=AskedOf.of(self.model, self.hard, self.soft))
        return asked

    def identity(self) -> dict[str, Any]:
        """Return the facts that must be equal for a run to be continued."""
        names, asked = self.model.names, self.asked
        same = identity(self.model, self.query, self.hard)
        if self.outer is not None:
            same["outer"] = [names[v] for v in sorted(self.outer)]
        likelihoods = {names[v]: weights.tolist() for v, weights in sorted(self.soft.items())}
        if asked is None:
            return {**same, "evidence": {**same["evidence"], **likelihoods}}
        return {
            **same,
            "likelihoods": likelihoods,
            "variables": [names[v] for v in asked.variables],
            "joints": [[names[v] for v in group] for group in asked.joints],
            "families": bool(asked.families),
        }


def check_projection(model: Model, query: str) -> None:
    """Refuse what would be over all variables of a model, where it is to be over some.

    Raises
    ------
    ModelError
        Naming where the file says so.
    """
    if model.summed and QUERIES[query].swept != "partition":
        instead = (
            ("; for the best assignment of some variables, ask for mmap") if QUERIES[query].swept == "optimum" else ""
        )
        raise ModelError(f"{model.summed}: such a network has sums and marginals, but no {query}{instead}")
    if model.projection is None or QUERIES[query].swept == "optimum":
        return
    raise over_all(model, model.projection, f"the {query} would be over all variables")


def over_all(model: Model, projection: Projection, instead: str) -> ModelError:
    """Return the refusal of an answer over all variables of a model whose file asks for sums over some.

    Parameters
    ----------
    model : Model
    projection : Projection
        The projection of the model.
    instead : str
        What the answer would cover, after "but".
    """
    return ModelError(
        f"{projection.told} asks for sums over {len(projection.variables)} of {len(model.names)} variables, "
        f"but {instead}; if you mean all, remove that line from the file"
    )


def question_of(
    model: Model,
    query: str,
    evidence: Findings = None,
    variables: Names = "all",
    joint: Iterable[Names] = (),
    families: bool = False,
    *,
    project: Variables = None,
    maximize: Variables = None,
) -> Question:
    """Read evidence and names, and return the question in indices of variables and states.

    Parameters
    ----------
    variables, joint, families
        The requested marginals.
    project : names, path or None
        Variables to project a count or a sum on. By default the variables that the model's file names.
    maximize : names, path or None
        Variables of marginal MAP.

    Raises
    ------
    ModelError
        If they, or the query, do not fit the model.
    """
    checked_model(model)
    if not isinstance(query, str) or query not in QUERIES:
        raise ModelError(f"unknown query {query!r}; one of {', '.join(QUERIES)}")
    chosen = [None if given is None else variables_of(model, given) for given in (project, maximize)]
    model, outer = with_outer(model, query, *chosen)
    hard, soft = split_evidence(model, evidence)
    if QUERIES[query].both_ways:
        return Question(model, query, hard, soft, asked_of(model, variables, joint, families))
    if not is_every(variables) or [*joint] or families:
        raise ModelError(f"variables, joints and families are options of marginals, not of the {query}")
    return Question(with_links(model) if query == "optimum" else model, query, hard, soft, outer=outer)


def with_likelihoods(model: Model, soft: Mapping[int, Array]) -> Model:
    """Return a model with one more function for each variable of soft evidence (Pearl 1988, virtual evidence)."""
    functions = (*model.functions, *(Function((v,), weights) for v, weights in soft.items()))
    return replace(model, functions=functions) if soft else model


def has_fewer_cells(chained: Network, whole: Network) -> bool:
    """Whether a network where chains stand for wide functions takes fewer cells to sweep."""
    cells = sweep_cells(whole.dims, whole.scopes, 0)
    return cells > JOINT_CELLS and sweep_cells(chained.dims, chained.scopes, 0) < cells


def is_every(variables: Names) -> bool:
    """Whether all variables are asked for."""
    return isinstance(variables, str) and variables == "all"


def named_variables(names: Any) -> list[Any]:
    """Names of variables: one, or several; evidence, which a mapping would be, is none."""
    if isinstance(names, Mapping) or not isinstance(names, Iterable):
        raise ModelError(f"{names!r} are not names of variables")
    return [names] if isinstance(names, str) else list(names)


def asked_of(model: Model, variables: Names, joint: Iterable[Names], families: bool) -> BeliefRequest:
    """Turn names into indices."""
    names = model.own_names if is_every(variables) else named_variables(variables)
    groups = named_variables(joint)
    groups = (
        [groups] if groups and all(isinstance(name, str) for name in groups) else [named_variables(g) for g in groups]
    )
    unknown = [n for group in (names, *groups) for n in group if not isinstance(n, str) or n not in model.index]
    if unknown:
        model.variable(unknown[0])
    joints = [tuple(dict.fromkeys(model.index[n] for n in group)) for group in groups]
    indices = tuple(range(len(model.functions))) if families else ()
    scopes = [f.scope for f in model.functions] if families else []
    every = dict.fromkeys((*joints, *(s for s in scopes if s)))
    return BeliefRequest(tuple(dict.fromkeys(model.index[n] for n in names)), tuple(every), indices)


#: Queries that are about assignments of some variables, if these are named.
PROJECTED = ("count", "partition")


def with_outer(
    model: Model, query: str, project: Sequence[int] | None, maximize: Sequence[int] | None
) -> tuple[Model, frozenset[int] | None]:
    """Return the model as it is asked about, and the variables that are counted or maximised over alone.

    Parameters
    ----------
    model : Model
    query : str
    project : sequence of int or None
        Instead of the projection of the model's file, if it has one.
    maximize : sequence of int or None

    Returns
    -------
    tuple of Model and frozenset of int or None
        None where no variables are set apart.

    Raises
    ------
    ModelError
        If the query takes no such variables or needs them, or if a projected sum depends on other variables.
    """
    if maximize is not None and query != "mmap":
        raise ModelError(f"maximize goes with the query mmap, not with the {query}")
    if project is not None and query not in PROJECTED:
        raise ModelError(f"a projection goes with a count or a partition function, not with the {query}")
    if query == "mmap":
        if not maximize:
            raise ModelError("the query mmap needs the variables to maximise over: give maximize")
        return model, frozenset(maximize)
    if query not in PROJECTED or (project is None and model.projection is None):
        return model, None
    if project is None and model.projection is not None:
        outer, model = frozenset(model.projection.variables), _without_unread(model, model.projection)
    else:
        outer = frozenset(project or ())
    model = replace(model, projection=None)
    return _checked(model, outer) if query == "partition" else model, outer


def _without_unread(model: Model, projection: Projection) -> Model:
    """Leave out the weights of variables that a file does not count, which its sums are without."""
    if not (unread := frozenset(projection.unread)):
        return model
    kept = tuple([f for k, f in enumerate(model.functions) if k not in unread])
    note = f"weights of {len(unread)} variables that are not counted are ignored, as in the counting competitions"
    return replace(model, functions=kept, notes=(*model.notes, note))


def _checked(model: Model, outer: frozenset[int]) -> Model:
    """Return the model of a projected sum as potentials; functions of other variables must be 0 or 1.

    Raises
    ------
    ModelError
        If one is not: the sum would depend on which of the others are chosen.
    """
    if model.kind == "cost":
        return model
    for function in model.functions:
        if not outer.issuperset(function.scope) and not _is_zero_or_one(function):
            name = next(model.names[v] for v in function.scope if v not in outer)
            raise ModelError(
                f"a projected sum is of weights of the variables that are named, but a function weighs {name!r} too; "
                "ask for the projected count, or name that variable as well"
            )
    return replace(model, kind="markov", functions=tuple([replace(f, child=None) for f in model.functions]))


def _is_zero_or_one(function: Function) -> bool:
    values = function.values if function.rows is None else np.append(function.values, function.default)
    return bool(np.isin(values, (0.0, 1.0)).all())


# A cell of a device takes this part of the time of one of this machine's cores.
_DEVICE_SPEED = 1 << 10
# Minimum memory of engines for optima.
_LEAST_BYTES = 1 << 22


def soon_swept_cells(question: Question, options: Options, most: int) -> float:
    """Return of how many cells at most networks are swept as soon as they prove not easy: ``most`` of a core's."""
    speed = 1 if options.gpus is None else _DEVICE_SPEED
    return speed * most_whole_cells(question, options, most)


def most_whole_cells(question: Question, options: Options, most: int) -> int:
    """Return the maximum cells of a sweep without slices: ``most``, or fewer under a memory limit."""
    return most if options.memory is None else min(most, spare_bytes(question, options) // CELL_BYTES)


def is_whole(question: Question, options: Options, cells: float, largest_part: int) -> bool:
    """Whether a sweep of this many cells of buckets probably fits in memory without slices.

    The largest table in memory is assumed to be the largest message of the first order divided by this number.
    """
    if options.memory is None or cells * CELL_BYTES <= (spare := spare_bytes(question, options)):
        return True
    network = question.reduced[0]
    order = min_fill_order(network.dims, network.scopes, options.seed)
    _, messages = bucket_parents(len(network.dims), network.scopes, order)
    largest = max((math.prod([network.dims[v] for v in message]) for message in messages), default=1)
    return largest * CELL_BYTES <= largest_part * spare


def tables_fit(question: Question, options: Options) -> bool:
    """Whether bounds have memory for all dense tables of the remaining model."""
    needed = _least_bytes(question.reduced[0])
    if options.memory is None:
        return needed <= default_memory_bytes()
    return needed <= parse_size(options.memory) - question.model.nbytes


def spare_bytes(question: Question, options: Options) -> int:
    """Return the memory of this machine beyond the model."""
    return max(Resources(options.without_folder()).host_bytes - question.model.nbytes, 0)


def rounded(question: Question) -> bool:
    """Whether costs are so large that only a sweep is exact."""
    return question.model.kind == "cost" and not has_exact_costs(question.reduced[0])


def _least_bytes(network: Network) -> int:
    """Minimum memory of bounds: copies of the tables, and some rows or nodes."""
    return 2 * COPIES * 8 * network.cells + _LEAST_BYTES
