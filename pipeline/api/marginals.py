"""All marginals of a model under evidence: the public function, and what it shares with compiled models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..evidence.findings import likelihood, named_findings
from ..keywords import Keywords
from ..models.model import Model
from ..options import Options
from ..queries.expansion import Asked
from ..results.posteriors import Marginals
from .prepared import observed
from .propagate import Question, answer

Array = NDArray[Any]
Names = Sequence[str] | str
Findings = Any


def marginals(
    model: Model,
    *,
    evidence: Findings = None,
    query_vars: Names = "all",
    joint: Iterable[Names] = (),
    families: bool = False,
    maximum: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[Keywords],
) -> Marginals:
    """Compute the posterior marginals of a model.

    Collection and distribution over one tree (Lauritzen and Spiegelhalter 1988; Shafer and Shenoy 1990;
    Darwiche 2003), without storing a clique.

    Parameters
    ----------
    model : Model
    evidence : mapping, path or None
        Variable name → state label or index, or → one likelihood a state (soft evidence); or a file.
    query_vars : "all" or sequence of str
        The variables whose marginals are wanted.
    joint : sequence of str, or several of them
        Sets of variables whose joint distribution is wanted.
    families : bool
        Whether the joint of every function's scope is wanted too.
    maximum : bool
        Max-marginals instead: for each state the best assignment that has it.
    progress : callable, optional
        Called with (bytes done, bytes planned).
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``,
        ``client``, ``fit``, ``disk``, ``workdir``, ``gpus`` and ``gpu_memory``, as in :func:`bucketflow.solve`. A
        propagation runs on one GPU, its slices on all, and boxes whose tables are in host memory or on disk.

    Raises
    ------
    ModelError
        If the evidence or a name does not fit the model, or a sum over a cost network is asked for.
    BudgetError
        If no acceptable plan fits ``memory`` and ``disk``.
    IncompatibleRunError
        If ``workdir`` belongs to another run or is in use.
    StoppedError
        If a run in ``workdir`` was interrupted; it can be resumed.
    """
    if model.kind == "cost" and not maximum:
        raise ModelError("a cost network has no marginal probabilities; ask for its max-marginals")
    chosen = one_worker_a_gpu(Options(**options))
    hard, soft = split_evidence(model, evidence)
    if soft and model.kind == "cost":
        raise ModelError("a cost network takes no likelihoods; observe a state instead")
    question = Question(model, hard, soft, asked_of(model, query_vars, joint, families), maximum)
    return answer(question, chosen, progress)


def in_memory(**options: Unpack[Keywords]) -> Options:
    """Check that nothing is asked for that compiled models do not do: tables on disk."""
    chosen = Options(**options)
    given = [name for name in ("disk", "workdir") if getattr(chosen, name) is not None]
    if given:
        raise ModelError(f"compiled models are kept in memory; {given[0]!r} does not apply")
    return one_worker_a_gpu(chosen)


def one_worker_a_gpu(chosen: Options) -> Options:
    """Check that nobody asks for other local workers beside those of the GPUs."""
    if chosen.gpus is not None and chosen.workers:
        raise ModelError("every GPU has one worker; leave out workers, or gpus")
    return chosen


def split_evidence(model: Model, evidence: Findings) -> tuple[dict[int, int], dict[int, Array]]:
    """Separate observed states from likelihood vectors, both by variable index."""
    evidence = named_findings(evidence)
    if not isinstance(evidence, Mapping):
        return observed(model, evidence), {}
    vectors = {
        name: e for name, e in evidence.items() if isinstance(e, Sequence | np.ndarray) and not isinstance(e, str)
    }
    hard = observed(model, {name: state for name, state in evidence.items() if name not in vectors})
    soft = {}
    for name, values in vectors.items():
        if name not in model.index:
            raise ModelError(f"evidence names {name!r}, which is not a variable of the model")
        soft[model.index[name]] = likelihood(model, model.index[name], values)
    return hard, soft


def asked_of(model: Model, query_vars: Names, joint: Iterable[Names], families: bool) -> Asked:
    """Turn names into indices."""
    names = model.names if query_vars == "all" else [query_vars] if isinstance(query_vars, str) else query_vars
    groups = list(joint)
    if groups and all(isinstance(name, str) for name in groups):
        groups = [tuple(name for name in groups if isinstance(name, str))]
    unknown = [n for group in (names, *groups) for n in group if n not in model.index]
    if unknown:
        raise ModelError(f"{unknown[0]!r} is not a variable of the model")
    joints = [tuple(dict.fromkeys(model.index[n] for n in group)) for group in groups]
    indices = tuple(range(len(model.functions))) if families else ()
    scopes = [f.scope for f in model.functions] if families else []
    every = dict.fromkeys((*joints, *(s for s in scopes if s)))
    return Asked(tuple(dict.fromkeys(model.index[n] for n in names)), tuple(every), indices)
