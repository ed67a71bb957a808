"""All marginals of a model under evidence: the public function, and what it shares with compiled models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Unpack

from ..answering.answer_question import solved
from ..answering.question import Findings, Names, Question, question_of
from ..errors import ModelError, checks_keywords, public
from ..formats.read import GivenModel
from ..machine.resources import Resources
from ..options import Keywords, Options
from ..results.posteriors import Marginals
from ..results.remaining_time import OnProgress
from .progress import Asked, asked_progress, read_given


@public
@checks_keywords
def marginals(
    model: GivenModel,
    variables: Names = "all",
    *,
    evidence: Findings = None,
    joint: Iterable[Names] = (),
    families: bool = False,
    derivatives: bool = False,
    max_marginals: bool = False,
    progress: Asked = None,
    **options: Unpack[Keywords],
) -> Marginals:
    """Compute the posterior marginals of a model.

    Collection and distribution over one tree (Lauritzen and Spiegelhalter 1988; Shafer and Shenoy 1990;
    Darwiche 2003), without storing a clique.

    Parameters
    ----------
    model : Model, path or name of an example
    variables : "all", str or sequence of str
        Variables to compute marginals of.
    evidence : mapping, path or None
        Variable name → state label or index, or → one likelihood a state (soft evidence); or a file.
    joint : sequence of str, or several of them
        Sets of variables whose joint distribution is wanted.
    families : bool
        Whether the joint of every function's scope is wanted too.
    derivatives : bool
        Whether to compute the derivative of the natural logarithm of the partition function, or of the probability of
        the evidence, by each entry of each function, together with the joints that the derivatives follow from.
        Functions with entries of 0 need one more propagation; it serves all these functions together if its tables fit
        in memory.
    max_marginals : bool
        Whether to compute max-marginals instead: for each state, the value of the best assignment with this state.
    progress : bool or callable, optional
        True draws what commands draw, on a terminal or in a notebook: reading, planning, compiling, bounds, and a bar.
        A callable is called with (cells done, cells planned).
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``,
        ``client``, ``representation``, ``fit``, ``disk``, ``workdir``, ``keep_tables``, ``tasks``, ``dashboard``,
        ``dask_report``, ``gpus`` and ``gpu_memory``, as in :func:`bucketflow.solve`. A propagation runs on one GPU, its
        slices on all, and boxes whose tables are in host memory or on disk.

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

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.marginals("diagnosis", ["Flow", "Storm"], evidence={"HighLevelAlarm": "sounding"})
    >>> found["Storm"]
    Storm
      no   0.6146     ███████████████
      yes  0.3854     █████████
    >>> round(10**found.log10_evidence, 4)
    0.1343
    """
    chosen, model = Options(**options), read_given(model, options.get("memory"), progress)
    query = "max-marginals" if max_marginals else "marginals"
    if derivatives and max_marginals:
        raise ModelError("derivatives exist for sums only: give either derivatives or max_marginals")
    question = question_of(model, query, evidence, variables, joint, families or derivatives)
    with asked_progress(progress) as report:
        found = _propagated(question, chosen, report)
    if not derivatives:
        return found
    from .derivatives import derivatives_of

    # the run directory holds the first propagation only
    again = chosen.without_folder()
    made = derivatives_of(question, found, lambda other: _propagated(other, again), Resources(again))
    return replace(found, derivatives=made)


def _propagated(question: Question, options: Options, progress: OnProgress | None = None) -> Marginals:
    found = solved(question, options, progress=progress)
    assert isinstance(found, Marginals)
    return found


def in_memory(**options: Unpack[Keywords]) -> Options:
    """Check that nothing is asked for that compiled models do not do: tables on disk."""
    chosen = Options(**options)
    given = [name for name in ("disk", "workdir") if getattr(chosen, name) is not None]
    if given:
        raise ModelError(f"compiled models stay in memory; {given[0]!r} does not apply")
    if chosen.tasks != "auto":
        raise ModelError("compiled models recompute messages in this process; 'tasks' does not apply")
    if chosen.fit != "auto":
        raise ModelError("compiled models stay in memory as a whole; 'fit' does not apply")
    if chosen.representation == "rows":
        raise ModelError("tables of compiled models are dense; leave out 'representation'")
    return chosen
