"""Circuits as users have them: made from a model or read, and asked for sums, maxima, draws and derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Reversible
from dataclasses import dataclass
from os import PathLike
from typing import Any, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from ...storage.locks import scratch_folder
from ..answering.question import Findings, over_all
from ..errors import BucketflowError, ModelError, checks_keywords, public
from ..formats.read import GivenModel, given_model, split_evidence
from ..gates.circuit import CircuitGraph, CircuitLayer, CircuitPolicy
from ..gates.evaluation import (
    Picker,
    best,
    counted_by_residues,
    drawn_by,
    flows,
    log_leaves,
    log_values,
    state_flows,
    states_of,
    walk_down,
)
from ..models.cases import Cases, cases_of
from ..models.checks import integer
from ..models.model import Model
from ..options import Keywords, Options, parse_size
from ..results.posteriors import CaseMarginals
from .making import CircuitMethod, CircuitOrigin, made_circuit

Array = NDArray[Any]
_LN10 = math.log(10.0)
_TAKEN = ("memory", "order", "order_time", "tree", "seed")


@public
@checks_keywords
def circuit(
    model: GivenModel,
    *,
    evidence: Findings = None,
    method: CircuitMethod = "auto",
    report: Callable[[str], None] | None = None,
    out: str | PathLike[str] | None = None,
    **options: Unpack[Keywords],
) -> Circuit:
    """Compile a model to a smooth, deterministic, decomposable circuit.

    From buckets: one upward sweep over the tree computes node numbers instead of values. Each nonzero cell of a join
    becomes a product with the indicators of the summed-out states, and each remaining cell becomes a sum. Equal nodes
    of a bucket are merged (Chavira and Darwiche, IJCAI 2007). From a search, for models that consist of clauses or are
    mostly zero: the trace of the counting search becomes the circuit (Huang and Darwiche, JAIR 2007).

    Parameters
    ----------
    model : Model, path or name of an example
        Of probabilities or potentials, clauses among them.
    evidence : mapping, path or None
        Hard evidence for all evaluations; assignments that contradict it are not in the circuit.
    method : {"auto", "buckets", "search"}
        Source of the circuit; by default both take turns until one completes it.
    report : callable, optional
        Told what it takes at most, in a sentence, where it is not made at once.
    out : path, optional
        Where the circuit is saved. Gates are on disk while they do not fit ``memory``, and are then read from there,
        piece by piece, whenever it is evaluated: of an ``.npz`` from the file itself.
    **options
        ``memory``, ``order``, ``order_time``, ``tree`` and ``seed``, as in :func:`bucketflow.solve`.

    Raises
    ------
    ModelError
        If the model has costs or a projection, the evidence is soft, or the search does not suit.
    BudgetError
        If the circuit does not fit ``memory``, with both numbers.

    Examples
    --------
    >>> import bucketflow
    >>> circuit = bucketflow.circuit("diagnosis")
    >>> circuit
    <circuit of 'pumping_station': 26 variables, 2,672 nodes, 7,841 edges>
    >>> circuit.log10({"Storm": ["yes", "no"]}).round(3).tolist()
    [-0.846, -0.067]
    """
    if given := [name for name in options if name not in _TAKEN]:
        raise ModelError(f"a circuit is built in this process, from sparse tables; {given[0]!r} does not apply")
    model = given_model(model, options.get("memory"))
    if model.kind == "cost":
        raise ModelError("a circuit is built from probabilities, potentials or clauses, but this model has costs")
    if model.summed:
        raise ModelError(f"{model.summed}: a circuit covers all variables")
    if model.projection is not None:
        raise over_all(model, model.projection, "a circuit covers all variables")
    hard, soft = split_evidence(model, evidence)
    if soft:
        raise ModelError("a circuit takes soft evidence when it is evaluated, not when it is built")
    if method not in get_args(CircuitMethod):
        raise ModelError(f"method is {method!r}; a circuit is built by {', '.join(get_args(CircuitMethod))}")
    if out is None:
        return Circuit(*made_circuit(model, hard, Options(**options), method, report))
    from .circuit_files import circuit_ending

    ending = circuit_ending(out)
    with scratch_folder() as folder:
        made = Circuit(*made_circuit(model, hard, Options(**options), method, report, folder))
        made.save(out)
        if made.graph.parts is None or ending != ".npz":
            return made  # of text the gates are read from scratch files, which go when it is forgotten
    return Circuit(load_circuit(out).graph, made.origin)


@public
@checks_keywords
def load_circuit(path: str | PathLike[str], *, memory: int | str | None = None) -> Circuit:
    """Read a circuit that was saved: ``.npz``, or ``.nnf`` as c2d writes it.

    Parameters
    ----------
    memory : int or str, optional
        Memory for the circuit and its evaluation, in bytes or as ``"4GB"``; by default most of the free memory.

    Raises
    ------
    BudgetError
        If the circuit does not fit ``memory``.
    FormatError
        If the file is missing, damaged or something else.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.circuit("diagnosis").save("diagnosis.npz")
    >>> bucketflow.load_circuit("diagnosis.npz")
    <circuit of 'pumping_station': 26 variables, 2,672 nodes, 7,841 edges>
    """
    from .circuit_files import read_circuit

    allowed = None if memory is None else parse_size(memory)
    return Circuit(read_circuit(path, allowed), memory=allowed)


def one_case(model: Model, evidence: Findings) -> Cases:
    """Return evidence, hard and soft, as a case."""
    hard, soft = split_evidence(model, evidence)
    columns: dict[int, Array] = {v: np.array([state]) for v, state in hard.items()}
    return Cases(1, columns | {v: likelihoods[np.newaxis] for v, likelihoods in soft.items()})


@dataclass(frozen=True)
class _Arrays:
    """The array module of an evaluation, and the circuit's layers there."""

    xp: Any
    layers: Reversible[CircuitLayer]

    def on_host(self, array: Any) -> Array:
        """Return an array in the host's memory."""
        found: Array = array if self.xp is np else self.xp.asnumpy(array)
        return found


@public
class Circuit:
    """A smooth, deterministic, decomposable circuit; see :func:`bucketflow.circuit`.

    Cases are given as for :meth:`.Compiled.marginals_batch`: columns by name, a data frame, or a mapping for each.
    ``gpus=1`` of a method evaluates on a GPU.

    Parameters
    ----------
    graph : CircuitGraph
    origin : CircuitOrigin, optional
        The origin of the circuit; None if it was read from a file.
    memory : int, optional
        Bytes that evaluations may take beside the circuit, which limit how many cases are evaluated together.

    Examples
    --------
    >>> import bucketflow
    >>> circuit = bucketflow.circuit("diagnosis")
    >>> circuit.marginals({"Storm": ["yes", "no"]})["Flow"].shape
    (2, 3)
    """

    def __init__(self, graph: CircuitGraph, origin: CircuitOrigin | None = None, *, memory: int | None = None) -> None:
        self.graph, self.origin, self._memory = graph, origin, memory
        self._there: dict[str, _Arrays] = {}
        known = graph.variables
        # a model that reads cases and evidence by names and states
        self.model = Model("markov", known.names, known.dims, known.labels, (), name=graph.source, hidden=known.hidden)

    def __repr__(self) -> str:
        return repr(self.graph)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the circuit: ``.npz`` has arrays, ``.nnf`` c2d's text and ``.ddnnf`` d4's, for variables of two states.

        Raises
        ------
        ModelError
            If a text cannot say it, or the file cannot be written.
        """
        from .circuit_files import write_circuit

        write_circuit(self.graph, path)

    def log10(self, cases: Any = None, *, gpus: int | None = None) -> Array:
        """Return log10 of the sum over all assignments in each case, shape (cases,); without cases, of one."""
        found = [at.on_host(values[self.graph.root]) for at, values, _ in self._swept(cases, gpus)]
        return np.concatenate(found) / _LN10 if found else np.zeros(0)

    def marginals(self, cases: Any = None, *, gpus: int | None = None) -> CaseMarginals:
        """Return the posteriors of all variables in each case."""
        graph = self.graph
        logs, parts = [np.zeros(0)], [np.zeros((graph.n_indicators, 0))]
        for at, values, _ in self._swept(cases, gpus):
            parts.append(at.on_host(flows(graph, at.layers, values, at.xp)[: graph.n_indicators]))
            logs.append(at.on_host(values[graph.root]))
        flow = np.concatenate(parts, axis=1)
        tables = {name: state_flows(graph, v, flow) for v, name in enumerate(self.model.own_names)}
        return CaseMarginals(self.model, tables, np.concatenate(logs) / _LN10)

    def derivatives(self, evidence: Any = None, *, gpus: int | None = None) -> dict[int, Array]:
        """Return d ln Z / d entry of each function that is more than a constraint, by its number.

        NaN at entries that no assignment has, 0 among them: they are not in the circuit;
        ``bucketflow.marginals(…, derivatives=True)`` has those too.

        Raises
        ------
        ModelError
            If the evidence is impossible.
        """
        graph, first = self.graph, self.graph.n_indicators
        ((at, values, _),) = self._swept(one_case(self.model, evidence), gpus)
        if at.on_host(values[graph.root])[0] == -math.inf:
            raise ModelError("the evidence is impossible: the logarithm of 0 has no derivatives")
        flow = at.on_host(flows(graph, at.layers, values, at.xp)[first : graph.n_leaves, 0])
        made = {}
        for f, scope in graph.scopes.items():
            shape = [graph.variables.dims[v] for v in scope]
            own = graph.parameters[0] == f
            made[f] = np.full(math.prod(shape), np.nan)
            made[f][graph.parameters[1, own]] = flow[own] / graph.values[own]
            made[f] = made[f].reshape(shape)
        return made

    def optimum(self, cases: Any = None, *, gpus: int | None = None) -> tuple[Array, Array]:
        """Return the most probable assignment of each case.

        Returns
        -------
        log10 : ndarray, shape (cases,)
            Of its product.
        states : ndarray of int, shape (cases, variables)
            -1 where the case is impossible.
        """
        logs, states = [np.zeros(0)], [np.zeros((0, len(self.model.own_names)), np.int64)]
        for at, values, count in self._swept(cases, gpus, maximum=True):
            logs.append(at.on_host(values[self.graph.root]) / _LN10)
            states.append(self._states(at, values, count, best))
        return np.concatenate(logs), np.concatenate(states)

    def sample(self, n: int, evidence: Any = None, *, seed: int = 0, gpus: int | None = None) -> Array:
        """Return independent assignments given evidence, hard or soft, shape (n, variables).

        Raises
        ------
        ModelError
            If the evidence is impossible.
        """
        case = evidence if isinstance(evidence, Cases) else one_case(self.model, evidence)
        n, generator = integer(n, "the number of draws"), np.random.Generator(np.random.Philox(integer(seed, "seed")))
        ((at, values, _),) = self._swept(case, gpus)
        if at.on_host(values[self.graph.root])[0] == -math.inf:
            raise ModelError("the evidence is impossible: there is nothing to draw from")
        pick, block = drawn_by(generator, at.xp), self._block()
        found = [self._states(at, values, min(block, n - start), pick) for start in range(0, n, block)]
        return np.concatenate([np.zeros((0, len(self.model.own_names)), np.int64), *found])

    def count(self) -> int:
        """Return how many assignments there are, exactly."""
        graph = self.graph
        if graph.parts is not None:
            return counted_by_residues(graph)
        values = np.ones(graph.nodes, object)
        for layer in graph.layers:
            known = values[layer.children]
            values[layer.nodes] = known.sum(axis=1) if layer.is_sum else known.prod(axis=1)
        return int(values[graph.root])

    def _states(self, at: _Arrays, values: Any, columns: int, pick: Picker) -> Array:
        """Walk down to one assignment for each column."""
        active = at.on_host(walk_down(self.graph, at.layers, values, columns, pick, at.xp))
        return states_of(self.graph, active)[:, : len(self.model.own_names)]

    def _swept(self, cases: Any, gpus: int | None, maximum: bool = False) -> Iterator[tuple[_Arrays, Any, int]]:
        """Yield the logarithms of all nodes for blocks of cases, and how many each has."""
        at = self._arrays(gpus)
        read = Cases(1, {}) if cases is None else cases if isinstance(cases, Cases) else cases_of(self.model, cases)
        for start in range(0, read.count, block := self._block()):
            part = read.part(start, min(start + block, read.count))
            leaves = at.xp.asarray(log_leaves(self.graph, part))
            yield at, log_values(self.graph, at.layers, leaves, maximum, at.xp), part.count

    def _block(self) -> int:
        """How many cases are evaluated together."""
        graph, most = self.graph, CircuitPolicy.current().batch_bytes // (8 * self.graph.nodes)
        if self._memory is not None:  # values and flows of all nodes, and values of the children of a layer
            most = min(most, (self._memory - graph.nbytes) // (8 * (2 * graph.nodes + graph.edges)))
        return max(1, most)

    def _arrays(self, gpus: int | None) -> _Arrays:
        """Return the array module, and the layers there: on a device they are copied once.

        Raises
        ------
        BucketflowError
            If the GPU, or CuPy, is missing.
        """
        if gpus is None:
            return self._there.setdefault("host", _Arrays(np, self.graph.layers))
        if gpus != 1:
            raise ModelError(f"gpus is {gpus!r}; a circuit is evaluated on one GPU")
        if "device" not in self._there:
            xp = _cupy()
            layers = [CircuitLayer(g.is_sum, xp.asarray(g.nodes), xp.asarray(g.children)) for g in self.graph.layers]
            self._there["device"] = _Arrays(xp, layers)
        return self._there["device"]


def _cupy() -> Any:
    """Return CuPy, once there is a GPU."""
    from ...cluster.address import ClusterError
    from ...cluster.gpus import count_gpus
    from ...tasks.gpu.kernels import cupy

    try:
        count_gpus(1)
    except ClusterError as error:
        raise BucketflowError(str(error)) from None
    return cupy()
