"""Pages about what Python users call: a page for each part of the package that defines public names."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import ismodule

import bucketflow

# Names, or how the modules that define them begin, below `pipeline`: the first page that has one takes the name.
_PAGES = {
    "models": (
        "Models",
        ("load", "EditableModel", "models.model", "models.function", "formats", "compiled", "models.cases"),
    ),
    "agents": (
        "Distributed problems",
        ("load_dcop", "agents", "models.dcop", "models.random_dcops", "results.dpop_result"),
    ),
    "circuits": ("Circuits", ("circuits",)),
    "dynamic": ("Dynamic networks", ("dynamic", "results.dynamic_answers")),
    "questions": ("Questions", ("api",)),
    "answers": ("Answers", ("results",)),
    "jobs": ("Jobs and batches", ("jobs", "batches")),
    "bridges": ("Other libraries", ("bridges",)),
    "errors": ("Errors", ("errors",)),
}


def names_by_page() -> dict[str, list[str]]:
    """Return the public names of each page, functions first; a name that no page takes is on the page of the rest."""
    pages: dict[str, list[str]] = {page: [] for page in [*_PAGES, "more"]}
    for name in sorted(bucketflow.__all__, key=lambda name: (name[0].isupper(), name)):
        pages[_page_of(name)].append(name)
    return {page: names for page, names in pages.items() if names}


def _page_of(name: str) -> str:
    value = getattr(bucketflow, name)
    module = (value.__name__ if ismodule(value) else value.__module__).removeprefix("bucketflow.pipeline.")
    homes = {home: page for page, (_, homes) in _PAGES.items() for home in homes}
    return homes.get(name) or next((page for home, page in homes.items() if module.startswith(home)), "more")


def title_of(page: str) -> str:
    """Return the title of a page."""
    return _PAGES[page][0] if page in _PAGES else "More"


def python_page(page: str, names: Iterable[str]) -> str:
    """Return the text of a page: what its names are is put in from their docstrings."""
    return "\n\n".join([f"# {title_of(page)}", *(f"::: bucketflow.{name}" for name in names)])
