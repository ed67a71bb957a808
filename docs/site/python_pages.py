"""Pages about what Python users call, the most important names first."""

from __future__ import annotations

from collections.abc import Iterable

import bucketflow

# For each page its title and its names, in the order in which they are shown.
_PAGES = {
    "asking": (
        "Ask",
        "load solve marginals plan simulate sample best bound conditional entropy mutual_information sensitivity "
        "evaluate compile dynamic fit einsum resume",
    ),
    "answers": (
        "Answers",
        "Result Marginals LabeledArray BestAssignments RankedAssignment Bounds Samples Plan Compiled CaseMarginals "
        "Evaluation Sensitivity DynamicNetwork StepMarginals StatePath FittedModel ContractionOptimizer",
    ),
    "models": ("Models", "Model Function EditableModel save convert info draw report examples formats"),
    "circuits": ("Circuits", "circuit load_circuit check_circuit Circuit jax torch"),
    "agents": ("Distributed problems", "dpop load_dcop generate Agent Dcop DpopResult DpopMetrics"),
    "jobs": ("Jobs, batches, servers", "submit jobs Job asolve amarginals batch BatchSummary serve"),
    "bridges": (
        "Other libraries",
        "from_pgmpy to_pgmpy from_pyagrum to_pyagrum from_pytoulbar2 from_cpmpy from_networkx from_pandas from_arrays "
        "BayesClassifier",
    ),
    "errors": (
        "Errors",
        "BucketflowError BudgetError DeadlineError FormatError ModelError IncompatibleRunError StoppedError "
        "InternalError",
    ),
}


def names_by_page() -> dict[str, list[str]]:
    """Return the public names of each page.

    Raises
    ------
    ValueError
        If the pages have another set of names than the package.
    """
    pages = {page: names.split() for page, (_, names) in _PAGES.items()}
    shown = [name for names in pages.values() for name in names]
    if sorted(shown) != sorted(bucketflow.__all__):
        raise ValueError(f"in the reference or in the package alone: {sorted({*shown} ^ {*bucketflow.__all__})}")
    return pages


def title_of(page: str) -> str:
    """Return the title of a page."""
    return _PAGES[page][0]


def python_page(page: str, names: Iterable[str]) -> str:
    """Return the text of a page, which the docstrings of its names fill."""
    return "\n\n".join([f"# {title_of(page)}", *(f"::: bucketflow.{name}" for name in names)])
