"""What the arguments of a command mean: a model that is read, and the keywords of the Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..models.model import Model


def load(file: str, memory: str | None = None) -> tuple[Model, float]:
    """Read a model file or an example within a budget, say what answers leave out; return the seconds it took too."""
    import time

    from ..api.solve import load_noted

    start = time.perf_counter()
    model, notes = load_noted(file, memory)
    for note in notes:
        click.echo(f"bucketflow: note: {note}", err=True)
    return model, time.perf_counter() - start


def keywords_of(model: Model, options: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Split the command's options into query, evidence and the keywords of the Python functions."""
    from ..evidence.texts import evidence_of

    query = options.pop("query", "")
    evidence = evidence_of(model, options.pop("evidence"))
    order = options["order"]
    if order not in _order_names():
        options["order"] = [name.strip() for name in order.split(",")]
    return query, evidence, options


def _order_names() -> tuple[str, ...]:
    from typing import get_args

    from ..search.orders import OrderName

    return get_args(OrderName)


def names(text: str) -> list[str] | str:
    """Read names of variables, or that all are meant."""
    return text if text == "all" else [name.strip() for name in text.split(",")]
