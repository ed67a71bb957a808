"""Independent draws from a model: the public function."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from os import PathLike
from typing import Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import peak_rss_bytes
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import SweepPolicy
from ...tasks.sweeps.conditional_draws import uniform_numbers
from ..answering.answer_question import valued
from ..answering.cut_offs import last_cost
from ..answering.prepared import Prepared
from ..answering.question import Findings, Question, question_of
from ..assignments.draw_sources import (
    BoltzmannSums,
    DrawSource,
    KeptSums,
    colder_weight,
    draw_source,
    drawn_from_circuit,
    kept_shares,
)
from ..assignments.drawing import (
    TOGETHER,
    Drawing,
    Streams,
    cells_there,
    device_walks,
    draw_others,
    drawing_bytes,
    table_cells,
    why_walked_here,
)
from ..assignments.kept_sweep import kept_notes, kept_options, opened_sweep, prepare_kept, with_room
from ..compiling import counts_compiling
from ..errors import BudgetError, InternalError, ModelError, checks_keywords, format_bytes, public
from ..formats.answer_files import checked_ending, write_rows
from ..formats.read import GivenModel
from ..gates.circuit import CircuitGraph
from ..machine.resources import Resources
from ..models.checks import integer
from ..models.model import FORBIDDEN, Model
from ..options import Keywords, Options, ProofOptions
from ..preprocessing.leaf_rows import ListedCells
from ..preprocessing.leaf_tables import COST_LIMIT, CostScale, cost_leaf, cost_scale
from ..preprocessing.preprocess import Network, fixed_value, reduce_model
from ..results.samples import Samples
from .progress import planning_line, read_given

# Draws that tell how many of a temperature are kept, where only those below a cost are wanted.
_PILOT_DRAWS: Final = 256

Array = NDArray[Any]
# Bytes of one variable's state in one draw during the walk: the index among the remaining states, the index in the
# model, and the index in the answer.
_WALK_BYTES = 12
# The first draws are evaluated on the model.
_EVALUATED = 8
# Numbers of draws that only tell how many are kept begin here.
_PILOT = 1 << 40
# With it the worse have exp(-1e7) of an optimum's chance at most: of fewer than ten million variables none is drawn. A
# power of two, so that its products with costs are exact, and all optima as likely.
_MOST_WEIGHT = float(1 << 24)


@public
@checks_keywords
@counts_compiling
def sample(
    model: GivenModel,
    n: int,
    *,
    evidence: Findings = None,
    temperature: float | None = None,
    upper_bound: float | int | str | None = None,
    out: str | PathLike[str] | None = None,
    progress: bool = False,
    **options: Unpack[Keywords],
) -> Samples:
    """Draw independent assignments from a model under evidence, exactly.

    One upward sweep, as for the partition function, stores its tables. Walks from the roots downwards then draw the
    variables of each step given the variables above it (forward filtering, backward sampling; Dawid 1992). Many draws
    walk together. The random numbers of draw ``i`` come from a counter, so that draw ``i`` depends neither on the
    number of draws made together nor on the number of workers.

    Parameters
    ----------
    model : Model, path or name of an example
        Bayesian and Markov networks, including sets of clauses, are drawn from their distribution given the evidence.
        If all factors are 0 or 1, the draws are uniform over the possible assignments.
    n : int
        Number of draws.
    evidence : mapping, path or None
        Variable name → state label or index, or → one likelihood per state (soft evidence); or a file.
    temperature : float, optional
        Required for a cost network, refused for other models. Assignments are drawn in proportion to ``exp(-cost /
        temperature)``; infinity draws all allowed assignments with equal probability. If single costs are allowed but
        totals may reach ``top``, draws that reach ``top`` are rejected. If few draws would remain, they are proposed at
        a lower temperature and accepted at random.
    upper_bound : number, optional
        For a cost network: draw only assignments whose cost is at most ``upper_bound``.
    out : path, optional
        A ``.csv``, ``.jsonl`` or ``.parquet`` file. Draws are written to it as they are made, and the answer holds no
        draws. Memory then does not limit the number of draws, except if the sweep uses slices or boxes.
    progress : bool
        Whether to show progress on a terminal or in a notebook.
    **options
        ``seed`` is the seed of the plan and of the draws. ``memory``, ``order``, ``order_time``, ``tree``, ``threads``,
        ``workers``, ``scheduler``, ``client``, ``fit``, ``disk``, ``representation``, ``gpus`` and ``gpu_memory`` as in
        :func:`bucketflow.solve`. Workers sweep slices and boxes. A GPU sweeps and draws if this takes longer on the CPU
        than starting the GPU. This process makes the draws from slices, boxes and sparse tables.

    Returns
    -------
    Samples
        ``states`` is an integer array of shape (draws, variables) with one state index per variable, or empty if
        ``out`` is given.

    Raises
    ------
    ModelError
        If the evidence does not fit the model or leaves no possible assignment, or if a temperature is missing or
        misplaced.
    BudgetError
        If the draws and the tables of the sweep do not fit ``memory``, even in slices, or if nearly all draws reach
        ``top``.

    Examples
    --------
    >>> import bucketflow
    >>> draws = bucketflow.sample("diagnosis", 1_000, evidence={"Storm": "yes"}, seed=1)
    >>> draws.states.shape
    (1000, 26)
    >>> bool((draws["Storm"] == 1).all())
    True
    """
    start = time.perf_counter()
    if out is not None:
        checked_ending(out)
    model = read_given(model, options.get("memory"), progress)
    with planning_line(progress):
        sampler = _sampler(model, integer(n, "n", 0), evidence, temperature, upper_bound, Options(**options)).tempered
        sampler.held = out is None
        source = sampler.source
    planned = time.perf_counter()
    with planning_line(progress, "drawing"):
        states = sampler.drawn() if out is None else sampler.written(out)
    seconds = {"plan": planned - start, "run": time.perf_counter() - planned}
    drawn = sampler.question.model
    found = Samples(
        # a bound on samples lowers the top of the model that is drawn from; the answer repeats the given model
        drawn if drawn.top == model.top else replace(drawn, top=model.top),
        states,
        sampler.options.seed,
        sampler.tried,
        None if model.kind != "cost" else temperature,
        None if source.prepared is None else source.prepared.plan,
        seconds,
        peak_rss_bytes(),
        written=0 if out is None else n,
        upper_bound=upper_bound,
    )
    kept = () if source.prepared is None else kept_notes(source.prepared, sampler.options)
    found = replace(found, notes=(*found.notes, *kept, *source.notes, *sampler.notes))
    return sampler.question.told(found)


def _sampler(
    model: Model,
    n: int,
    evidence: Findings,
    temperature: float | None,
    upper_bound: float | int | str | None,
    options: Options,
) -> _Sampler:
    """Check what is asked, and preprocess the model for it."""
    options = kept_options(options, "samples")
    if model.kind != "cost":
        if temperature is not None or upper_bound is not None:
            what = "a temperature is" if temperature is not None else "bounds of samples are"
            raise ModelError(f"{what} for cost networks; probabilities are drawn as they are")
        whole = replace(question_of(model, "partition", evidence), keeps_isolated=True)
        return _Sampler(whole.chained, whole.chained.reduced[0], options, n, whole=whole)
    weight = _weight(model, temperature)
    question = question_of(_below(model, upper_bound), "count", evidence).chained
    return _Sampler(question, _network(question, weight), options, n, weight, weight, upper_bound=upper_bound)


def _network(question: Question, weight: float) -> Network:
    """Return the network to eliminate for a cost network."""
    return question.reduced[0] if weight == 0 else reduce_model(question.weighted, "partition", question.hard)


def _below(model: Model, upper_bound: float | int | str | None) -> Model:
    """Return a cost network in which all that is worse than a bound is forbidden."""
    if upper_bound is None:
        return model
    last = last_cost(model, Decimal(str(ProofOptions(upper_bound=upper_bound).upper_bound)))
    return model if model.top is not None and model.top <= last + 1 else replace(model, top=last + 1)


def _weight(model: Model, temperature: float | None) -> float:
    """Return the amount that one stored unit of cost subtracts from the logarithm of an assignment's weight."""
    if temperature is None:
        raise ModelError(
            "samples of a cost network need a temperature; infinity draws all allowed assignments uniformly"
        )
    try:
        fits = float(temperature) > 0
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ModelError(f"the temperature is {temperature!r}; it must be a number above 0, or infinity")
    return min(10.0**-model.decimals / float(temperature), _MOST_WEIGHT)


@dataclass
class _Sampler:
    """Draws of all variables of a model.

    Parameters
    ----------
    question : Question
    network : Network
    options : Options
    n : int
    weight : float or None
        Of costs; None for probabilities.
    wanted : float or None
        The requested weight, at most the weight of the draws; see :func:`.colder_weight`.
    upper_bound : number, optional
        That was given.
    held : bool
        Whether memory holds all draws, which it does not where they are written as they are made.
    whole : Question or None
        The question without chains of functions; None of costs.
    """

    question: Question
    network: Network
    options: Options
    n: int
    weight: float | None = None
    wanted: float | None = None
    upper_bound: float | int | str | None = None
    tried: int = 0
    notes: tuple[str, ...] = ()
    held: bool = True
    whole: Question | None = None

    @property
    def columns(self) -> int:
        """Variables that users see."""
        return len(self.network.model.own_names)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Of the states."""
        return np.dtype(np.int16 if max(self.network.model.dims, default=0) <= 1 << 15 else np.int32)

    @cached_property
    def batch(self) -> int:
        """Draws of all variables that are made together."""
        policy = SweepPolicy.current()
        fewest = 1 if self._bound is None else policy.batch_draws  # some draws will be rejected
        return max(min(self.n, policy.walked_draws), fewest)

    @cached_property
    def cells(self) -> int:
        """Most cells of a table that is drawn from."""
        return table_cells(Resources(self.options).host_bytes)

    @cached_property
    def source(self) -> DrawSource:
        """The source of the draws: a sweep, or a circuit that a search built."""
        if self.whole is None or fixed_value(self.network) is None or not self.n:
            return DrawSource(self.prepared)
        found = draw_source(self.whole, self._options_beside, lambda: self.prepared)
        if found.circuit is None:
            return found
        told = f"draws were made from a circuit of {found.circuit.nodes:,} nodes, which a search built"
        return replace(found, notes=(*found.notes, told))

    @property
    def _room(self) -> int:
        """Bytes of draws, and of making them."""
        held = self.n if self.held else self.batch
        room = self.columns * (held * self.dtype.itemsize + self.batch * _WALK_BYTES) + drawing_bytes(self.cells)
        if self.options.gpus is not None:
            room += 8 * cells_there(Resources(self.options).host_bytes)
        return room

    @property
    def _what(self) -> str:
        return f"{self.n:,} samples of {self.columns:,} variables"

    @property
    def _options_beside(self) -> Options:
        """Options whose memory is what draws leave."""
        return with_room(self.options, self._room, self._what)

    @cached_property
    def prepared(self) -> Prepared:
        """The plan of the sweep, within the memory that draws leave."""
        arithmetic = KeptSums(self.network)
        if self.weight is not None:
            arithmetic = BoltzmannSums(self.network, weight=self.weight)
        if fixed_value(self.network) is None:
            raise self._impossible
        room = self._room
        found = prepare_kept(self.question, self.network, arithmetic, self._options_beside)
        if found.plan is not None and (found.plan.slices > 1 or found.plan.spill is not None):
            more = max(self.n - self.batch, 0)
            self.batch += more  # slices, and boxes, are swept again for each batch
            needed = found.plan.peak_bytes + room + self.columns * _WALK_BYTES * more
            if needed > (allowed := Resources(self.options).host_bytes):
                parts = "boxes on disk" if found.plan.spill is not None else f"{found.plan.slices:,} slices"
                raise BudgetError(
                    f"{self._what} take {format_bytes(needed)} in {parts}, allowed "
                    f"{format_bytes(allowed)}; ask for fewer, or give more memory"
                )
        return found

    @property
    def _impossible(self) -> ModelError:
        given = "with this evidence " if self.question.hard or self.question.soft else ""
        given += "" if self.upper_bound is None else f"within the bound {self.upper_bound} "
        return ModelError(f"no assignment is possible {given}(the sum over all is 0): there is nothing to draw from")

    @cached_property
    def tempered(self) -> _Sampler:
        """The sampler, or one of lower costs where few of its draws stay below ``top``.

        Raises
        ------
        ModelError
            If nothing is below ``top``.
        """
        if self._bound is None or not self.n or fixed_value(self.network) is None:
            return self
        assert self.wanted is not None
        assert self._bound.cap is not None
        weight, lucky = colder_weight(self.wanted, self._bound.cap - 1, self._greatest, self._pilot)
        if not lucky:
            asked = replace(self.question, query="optimum")
            if valued(asked, self.options, ProofOptions()).status == "infeasible":
                raise self._impossible
        return self if weight == self.weight else self._of_weight(weight)

    @property
    def _greatest(self) -> float:
        """No total of functions that allow it is more."""
        model = self.network.model
        functions = [model.functions[f] for leaf in self.network.leaves for f in leaf.functions]
        return float(sum(int(f.values[f.values < FORBIDDEN].max(initial=0)) for f in functions))

    def _of_weight(self, weight: float) -> _Sampler:
        return replace(self, network=_network(self.question, weight), weight=weight)

    def _pilot(self, weight: float) -> Array:
        """Return the costs of pilot draws of a weight. Their numbers differ from the numbers of the returned draws."""
        pilot = replace(self._of_weight(weight), n=_PILOT_DRAWS, tried=_PILOT)
        with pilot._opened() as drawing:
            if drawing is not None and not drawing.feasible:
                raise self._impossible
            return pilot._totals({} if drawing is None else drawing.more(pilot.n), pilot.n)

    def drawn(self) -> Array:
        """Return the draws, an array of states."""
        found, done = np.empty((self.n, self.columns), self.dtype), 0
        for block in self._blocks(found):
            if block.base is not found:
                found[done : done + len(block)] = block
            done += len(block)
        return found

    def written(self, path: str | PathLike[str]) -> Array:
        """Write the draws into a file, some at a time; return an array of none."""
        write_rows(self.question.model, self._blocks(), path)
        return np.empty((0, self.columns), self.dtype)

    def _blocks(self, target: Array | None = None) -> Iterator[Array]:
        """Yield the draws in blocks. Blocks that a GPU makes are rows of ``target`` if it is given."""
        if self.source.circuit is not None:
            yield from self._from_circuit(self.source.circuit)
            return
        with self._opened() as drawing:
            if drawing is not None and not drawing.feasible:
                raise self._impossible
            walks, done = self._walks_there(drawing), 0
            while done < self.n:
                left = self.n - done
                if walks is not None:
                    rows = left if target is not None else min(left, max(self.batch // TOGETHER, 1) * TOGETHER)
                    states = np.empty((rows, self.columns), self.dtype) if target is None else target[done:]
                    walks.fill(states, done)
                    self.tried += len(states)
                else:
                    states = self._batch(drawing, min(self.batch, left) if self._bound is None else self.batch)[:left]
                for row in states[: max(_EVALUATED - done, 0)]:
                    self._evaluate(row)
                done += len(states)
                self._verify_luck(done)
                yield states

    def _from_circuit(self, circuit: CircuitGraph) -> Iterator[Array]:
        """Yield the draws from a circuit, some at a time."""
        for states in drawn_from_circuit(circuit, self.n, self.options.seed):
            if (states[0] < 0).all():
                raise self._impossible
            for row in states[: max(_EVALUATED - self.tried, 0)]:
                self._evaluate(row)
            self.tried += len(states)
            yield states[:, : self.columns].astype(self.dtype)

    def _walks_there(self, drawing: Drawing | None) -> Any:
        """Return walks on a GPU if one was asked for and they pay; None where draws are made here."""
        resources = Resources(self.options)
        if self.options.gpus is None or not self.n:
            return None
        why = why_walked_here(resources, drawing, self.n, self.columns, self._bound is not None, self.dtype)
        if not why:
            seed, together = self.options.seed, self.n if self.held else self.batch
            walks = device_walks(resources, drawing, self.network, together, self.columns, seed, self.dtype)
            if walks is not None:
                return walks
            why = "because the tables of the draws fit neither the GPU nor the remaining memory"
        self.notes = (f"draws were made by the CPU, {why}",)
        return None

    @contextmanager
    def _opened(self) -> Iterator[Drawing | None]:
        """Open the pool of the sweep; None where nothing is left to sweep."""
        if self.prepared.plan is None:
            yield None
            return
        with opened_sweep(self.prepared) as sweep:
            yield Drawing(sweep, self.network, self.options.seed, self.cells, self.tried)

    def _batch(self, drawing: Drawing | None, draws: int) -> Array:
        """Return the next draws of all variables, less those whose total reaches ``top``."""
        network = self.network
        local = {} if drawing is None else drawing.more(draws)
        states = {
            network.variables[v]: network.domains[network.variables[v]].astype(np.int32)[own]
            for v, own in local.items()
        }
        streams = Streams(self.options.seed, len(network.model.dims), begun=self.tried)
        self.tried += draws
        draw_others(network, states, streams, draws, self.cells)
        allowed = self._allowed(local, draws)
        found = np.empty((int(allowed.sum()), self.columns), self.dtype)
        for v in range(self.columns):
            found[:, v] = states[v][allowed]
        return found

    @cached_property
    def _bound(self) -> CostScale | None:
        """The scale of costs whose totals may reach ``top`` though no function forbids them; None where none may."""
        if self.weight is None:
            return None
        scale = cost_scale(self.network)
        return None if scale.cap is None or scale.bound < scale.cap - 1 else scale

    def _allowed(self, local: dict[int, Array], draws: int) -> Array:
        """Return which draws are kept: those below ``top``, by chance where they are from a colder distribution."""
        if self._bound is None:
            return np.ones(draws, np.bool_)
        assert self._bound.cap is not None
        assert self.weight is not None
        assert self.wanted is not None
        totals = self._totals(local, draws)
        if self.weight == self.wanted:
            return np.asarray(totals < self._bound.cap)
        shares = kept_shares(totals, self.weight, self.wanted, self._bound.cap - 1)
        return np.asarray(uniform_numbers(self.options.seed, -1, self.tried - draws, self.tried) < shares)

    def _totals(self, local: dict[int, Array], draws: int) -> Array:
        """Return the costs of draws above the offset of the network."""
        fixed = fixed_value(self.network)
        totals = np.full(draws, fixed, np.int64)
        nothing = np.zeros(draws, np.int64)
        for leaf in self.network.leaves:
            at = ListedCells(leaf.scope, tuple(local[v] for v in leaf.scope), -1, nothing)
            totals = np.minimum(totals + cost_leaf(self.network, leaf, at), COST_LIMIT)
        return totals

    def _verify_luck(self, done: int) -> None:
        """Refuse to go on where nearly all draws are thrown away.

        Raises
        ------
        BudgetError
        """
        most = SweepPolicy.current().tries_a_draw
        if self.tried > most * (done + 100):
            raise BudgetError(
                f"of {self.tried:,} draws {done:,} stay below top {self.network.model.top}, and at most {most:,} are "
                "tried for each sample"
            )

    def _evaluate(self, row: Array) -> None:
        """Check on the model that a draw is possible."""
        model = self.question.model
        if model.summed:  # the values of hidden variables are unknown
            return
        states = row.tolist()
        possible = model.cost(states) is not None if model.kind == "cost" else model.log10_value(states) > -math.inf
        if not possible or any(states[v] != s for v, s in self.question.hard.items()):
            raise InternalError("a draw is impossible on the model")


def drawn_again(found: Samples, seconds: float) -> Samples:
    """Return samples with the time that reading took put first."""
    return replace(found, seconds={"read": seconds, **found.seconds})
