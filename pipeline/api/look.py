"""Functions that show or write a model, as the commands of the same names do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from ..answering.question import Findings
from ..errors import checks_keywords, public
from ..examples import file_or_example
from ..formats.read import GivenModel, given_model, load_any, split_evidence
from ..formats.write import save
from ..models.dcop import Dcop, model_of
from ..models.frames import Evaluation
from ..models.model import Model
from ..options import Keywords
from ..preprocessing.preprocess import absorb, components
from .marginals import marginals
from .solve import load_dcop

if TYPE_CHECKING:
    from ..drawings.svg import Svg


@public
@checks_keywords
def draw(model: GivenModel, *, posteriors: bool = False, evidence: Findings = None, **options: Unpack[Keywords]) -> Svg:
    """Draw a model: parents above children in a Bayesian network, variables and functions elsewhere.

    Parameters
    ----------
    model : Model, path or name of an example
    posteriors : bool
        Whether to compute the posterior of every variable and draw it in the variable's box.
    evidence : mapping, text, path or None
        Observed variables, which get a thick frame.
    **options
        ``memory``, ``order`` and ``seed`` of the propagation, as in :func:`bucketflow.marginals`.

    Returns
    -------
    Svg
        Notebooks show it; ``save(path)`` writes it.

    Raises
    ------
    ModelError
        If the evidence does not fit the model.

    Examples
    --------
    >>> import bucketflow
    >>> drawing = bucketflow.draw("diagnosis", posteriors=True, evidence={"Storm": "yes"})
    >>> drawing.save("diagnosis.svg")
    """
    model = given_model(model, options.get("memory"))
    if posteriors:
        return marginals(model, evidence=evidence, **options).draw()
    hard, _ = split_evidence(model, evidence)
    return model.draw(evidence=model.named(hard))


@public
@checks_keywords
def info(model: GivenModel | Dcop, *, check: bool = True) -> dict[str, Any]:
    """Describe a model in numbers.

    Parameters
    ----------
    model : Model, Dcop, path or name of an example
    check : bool
        Whether the tables of a Bayesian network must be distributions.

    Returns
    -------
    dict
        ``kind``, ``variables``, ``max_domain``, ``functions``, ``max_arity``, ``stored_values`` and other counts; for a
        distributed problem also ``agents`` and the largest of them.

    Examples
    --------
    >>> import bucketflow
    >>> facts = bucketflow.info("satellite")
    >>> facts["kind"], facts["variables"], facts["functions"]
    ('cost', 40, 142)
    """
    problem = model if isinstance(model, Model | Dcop) else load_any(file_or_example(model), check=check)
    if isinstance(problem, Model):
        return _model_facts(problem)
    owned = list(map(len, problem.owned))
    most = max(owned, default=0)
    return {
        **_model_facts(model_of(problem)),
        "agents": len(owned),
        "largest_agent": problem.agents[owned.index(most)].name if owned else None,
        "largest_agent_variables": most,
    }


@public
@checks_keywords
def convert(
    source: Model | Dcop | str | PathLike[str],
    target: str | PathLike[str],
    *,
    agents: str | PathLike[str] | None = None,
    check: bool = True,
) -> tuple[str, ...]:
    """Write a model in another format, which the ending of ``target`` chooses.

    Parameters
    ----------
    source : Model, Dcop, path or name of an example
    target : path
        A file that ends in ``.uai``, ``.bif``, ``.net``, ``.wcsp``, ``.cfn``, ``.xml`` or ``.yaml``.
    agents : path, optional
        For a distributed problem, a list of the variables that each agent owns.
    check : bool
        Whether the tables of a Bayesian network must be distributions.

    Returns
    -------
    tuple of str
        Notes about content of the source file that a model does not hold, and about content that the target's format
        cannot hold.

    Raises
    ------
    ModelError
        If the target's format cannot hold the model, or the file cannot be written.
    FormatError
        If the source is malformed.

    Examples
    --------
    >>> import bucketflow
    >>> notes = bucketflow.convert("diagnosis", "diagnosis.uai")
    >>> notes[0]
    "names of variables are not kept: variables are numbered from 0 in the model's order"
    """
    if isinstance(source, Model | Dcop):
        problem = source
    elif agents is not None:
        problem = load_dcop(source, agents=agents)
    else:
        problem = load_any(file_or_example(source), check=check)
    read = problem.model if isinstance(problem, Dcop) else problem
    return (*read.notes, *save(problem, target))


@public
@checks_keywords
def evaluate(model: GivenModel, assignment: Mapping[str, str | int]) -> Evaluation:
    """Return the cost or probability of an assignment, or the functions that forbid it.

    Parameters
    ----------
    model : Model, path or name of an example
    assignment : mapping
        Variable name → state label or index, for every variable without evidence of the model's own.

    Raises
    ------
    ModelError
        If the assignment has no value for a variable, or names an unknown variable or state.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.evaluate("frequency", {f"x{k}": 0 for k in range(20)}).possible
    False
    """
    return given_model(model, None).evaluate(assignment)


def _model_facts(model: Model) -> dict[str, Any]:
    """Describe a model: sizes, domains, arities, connectivity, rows."""
    functions, own = model.functions, model.dims[: len(model.own_names)]
    scopes = {i: tuple(sorted(f.scope)) for i, f in enumerate(functions) if f.scope}
    used = {v for scope in scopes.values() for v in scope}
    return {
        "kind": model.kind,
        "name": model.name,
        "variables": len(own),
        **({"hidden_variables": model.hidden} if model.hidden else {}),
        "max_domain": max(own, default=0),
        "log10_assignments": round(sum(math.log10(d) for d in own), 3),
        "functions": len(functions),
        "max_arity": max((len(f.scope) for f in functions), default=0),
        "row_functions": sum(f.rows is not None for f in functions),
        "stored_values": sum(int(f.values.size) for f in functions),
        "scopes_after_absorbing": len(absorb(scopes)),
        "components": components(len(model.dims), list(scopes.values())),
        "unused_variables": len(model.dims) - len(used),
        "top": model.top,
        "evidence": len(model.evidence),
        **({"notes": list(model.notes)} if model.notes else {}),
    }
