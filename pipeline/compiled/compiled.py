"""Compiled models: one tree, plan and set of messages, asked again and again under changing evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from os import PathLike
from typing import Any, Unpack

from ..answering.question import Findings, Names, asked_of
from ..api.marginals import in_memory
from ..api.progress import planning_line, read_given
from ..errors import ShortDir, checks_keywords, public
from ..formats.read import GivenModel, split_evidence
from ..models.cases import Cases, cases_of
from ..options import Keywords, Where
from ..results.labeled_array import LabeledArray
from ..results.posteriors import CaseMarginals, adjacent, unanswered
from .case_run import answer_cases, answered_cases
from .information import InformedState
from .state import one_at_a_time
from .structure import skeleton_of


@public
@partial(checks_keywords, name="compile")
def compile_model(
    model: GivenModel,
    *,
    joint: Iterable[Names] = (),
    families: bool = False,
    background: bool = True,
    progress: bool = False,
    **options: Unpack[Keywords],
) -> Compiled:
    """Prepare a model for many questions about its marginals.

    The tree is planned without evidence; findings are multiplied into it, so that it stays the same and only
    messages that they change are computed again. A thread searches for a better tree beside the answers, for as long
    as they take, and the model turns to it once it has paid for itself.

    Parameters
    ----------
    model : Model, path or name of an example
        Its own evidence becomes the first findings.
    joint, families
        Sets of variables whose joints every answer has; see :func:`bucketflow.marginals`.
    background : bool
        Whether to search on beside the answers. It is not where ``order_time``, another ``tree`` than ``"refined"``, an
        order by names or ``gpus`` are given.
    progress : bool
        Whether to draw, on a terminal or in a notebook, that it is read and planned.
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed`` and ``threads``, as in :func:`bucketflow.solve`. With
        ``gpus``, every answer is a full propagation on a GPU with a memory limit of ``gpu_memory`` or ``memory``, and
        batches of cases are spread over all GPUs. GPUs of ``scheduler`` or ``client`` answer batches only; this
        machine's CPU answers single queries.

    Raises
    ------
    BudgetError
        If all messages together do not fit ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> compiled = bucketflow.compile("diagnosis")
    >>> compiled.add("Storm", "yes")
    >>> compiled.marginals(["StreetFlooded"])["StreetFlooded"]
    StreetFlooded
      no   0.7632     ██████████████████
      yes  0.2368     ██████
    """
    chosen, model = in_memory(**options), read_given(model, options.get("memory"), progress)
    with planning_line(progress):
        compiled = Compiled(skeleton_of(model, joint, families, chosen), chosen, background=background)
    compiled.set_evidence(model.named(model.evidence))
    return compiled


@public
@checks_keywords
def conditional(
    model: GivenModel,
    variables: Names,
    given: Names = (),
    *,
    evidence: Findings = None,
    **options: Unpack[Keywords],
) -> LabeledArray:
    """Return the distribution of some variables given others and evidence: P(A | B, C, e).

    For several questions about one model, compile it once and use :meth:`.InformedState.conditional`.

    Parameters
    ----------
    model : Model, path or name of an example
    variables, given : str or sequence of str
    evidence : mapping, text, path or None
        As in :func:`bucketflow.solve`.
    **options
        As in :func:`bucketflow.compile`.

    Returns
    -------
    LabeledArray
        An axis for each variable of ``given``, then one for each of ``variables``. Each row is a distribution. It is
        NaN if the states of ``given`` are impossible together.

    Raises
    ------
    ModelError
        If a name or the evidence does not fit, or the evidence is impossible.
    BudgetError
        If the table has too many states, or the messages do not fit ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.conditional("diagnosis", "Flow", "CheckValve")
                Flow
    CheckValve  full    reduced  none
    ok          0.8053  0.1352   0.05943
    leaking     0.7694  0.1567   0.07382
    """
    return _under(model, evidence, options).conditional(variables, given)


@public
@checks_keywords
def entropy(model: GivenModel, variables: Names, *, evidence: Findings = None, **options: Unpack[Keywords]) -> float:
    """Return the entropy of the joint posterior of some variables, in bits.

    Parameters
    ----------
    model : Model, path or name of an example
    variables : str or sequence of str
    evidence : mapping, text, path or None
        As in :func:`bucketflow.solve`.
    **options
        As in :func:`bucketflow.compile`.

    Raises
    ------
    ModelError
        If a name or the evidence does not fit, or the evidence is impossible.
    BudgetError
        If the joint has too many states, or the messages do not fit ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> round(bucketflow.entropy("diagnosis", ["Storm"]), 4)
    0.5907
    """
    return _under(model, evidence, options).entropy(variables)


@public
@checks_keywords
def mutual_information(
    model: GivenModel,
    first: Names,
    second: Names,
    given: Names = (),
    *,
    evidence: Findings = None,
    **options: Unpack[Keywords],
) -> float:
    """Return the mutual information of two sets of variables given a third and evidence, in bits: I(A; B | C, e).

    Parameters
    ----------
    model : Model, path or name of an example
    first, second, given : str or sequence of str
    evidence : mapping, text, path or None
        As in :func:`bucketflow.solve`.
    **options
        As in :func:`bucketflow.compile`.

    Raises
    ------
    ModelError
        If a name or the evidence does not fit, or the evidence is impossible.
    BudgetError
        If the joint has too many states, or the messages do not fit ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> round(bucketflow.mutual_information("diagnosis", ["Storm"], ["Season"]), 4)
    0.0164
    """
    return _under(model, evidence, options).mutual_information(first, second, given)


def _under(model: GivenModel, evidence: Findings, options: Keywords) -> Compiled:
    """Compile a model for one question under evidence."""
    compiled = compile_model(model, background=False, **options)
    hard, soft = split_evidence(compiled.model, evidence)
    compiled.set_evidence(compiled.model.named(hard | soft))
    return compiled


@public
class Compiled(ShortDir, InformedState):
    """A model with its tree, plan and messages; see :func:`bucketflow.compile`. Threads that share it take turns.

    Examples
    --------
    >>> import bucketflow
    >>> compiled = bucketflow.compile("diagnosis")
    >>> compiled.add("Storm", "yes")
    >>> round(compiled.entropy(["Flow"]), 4)
    1.1515
    """

    _SHOWN = (
        *("model", "plan", "set_evidence", "add", "clear", "reset", "marginals", "marginals_batch", "batches"),
        *("partition", "joint", "conditional", "entropy", "mutual_information", "value_of_information"),
        *("relevant_findings", "conflict", "save", "load"),
    )

    def __repr__(self) -> str:
        findings = ", ".join(self.model.names[v] for v in self.findings) or "none"
        plan = "nothing to eliminate" if self.plan is None else self.plan.summary()
        return f"compiled {self.model!r}\nevidence on: {findings}\nplan: {plan}"

    @checks_keywords
    def marginals_batch(self, cases: Any, variables: Names = "all", **options: Unpack[Where]) -> CaseMarginals:
        """Return the posteriors of many cases, computed together in the same sweeps.

        Parameters
        ----------
        cases : mapping, data frame, or sequence of mappings
            Name → one state (None or NaN for unobserved) for each case, or → likelihoods ``(cases, states)``; or for
            each case a mapping of name to state. Present findings on other variables hold in every case.
        variables : "all" or sequence of str
        **options
            ``memory``, ``threads``, ``workers``, ``scheduler`` and ``client``, as in :func:`bucketflow.solve`; for
            a model that was compiled for GPUs also ``gpus``, if it is to be others. The other options are those of
            :func:`bucketflow.compile`.
        """
        found = cases if isinstance(cases, Cases) else cases_of(self.model, cases)
        asked = asked_of(self.model, variables, (), False)
        return answered_cases(self, self.findings, found, asked.variables, **options)

    @checks_keywords
    def batches(self, cases: Any, variables: Names = "all", **options: Unpack[Where]) -> Iterator[CaseMarginals]:
        """Yield what :meth:`marginals_batch` returns block by block, so that not all of it is in memory."""
        found = cases if isinstance(cases, Cases) else cases_of(self.model, cases)
        asked = asked_of(self.model, variables, (), False)
        if not found.count:
            return iter([unanswered(self.model, asked.variables, 0, adjacent(self.model, asked.variables, 0))])
        return answer_cases(self, self.findings, found, asked.variables, **options)

    @one_at_a_time
    def save(self, path: str | PathLike[str]) -> None:
        """Write the model with its tree, findings and messages to an ``.npz`` file.

        Raises
        ------
        ModelError
            If it cannot be written; a file that was there before stays as it was.
        """
        from .file import Saved, save_compiled

        save_compiled(Saved(self.skeleton, self.options, self.findings, self.current_tables()), path)

    @staticmethod
    def load(path: str | PathLike[str]) -> Compiled:
        """Read what :meth:`save` wrote; the model answers on the CPU.

        Raises
        ------
        FormatError
            If the file is missing, damaged or something else.
        """
        from .file import Saved, load_compiled

        def restored(saved: Saved) -> Compiled:
            compiled = Compiled(saved.skeleton, saved.options)
            compiled.restore(saved.findings, saved.tables)
            return compiled

        return load_compiled(path, restored)
