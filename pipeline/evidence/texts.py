"""What ``--evidence`` gives: files and lists of ``x=v`` pairs, together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import ModelError

if TYPE_CHECKING:
    from ..models.model import Model


def evidence_of(model: Model, texts: Sequence[str]) -> dict[str, int] | None:
    """Read every ``--evidence``: a file if one is there, otherwise a list; None where none is given.

    Returns
    -------
    dict of str to int
        Variable name → state index, that of the model's own evidence too.

    Raises
    ------
    ModelError
        If a list or a name is wrong, or a variable is observed in two states.
    """
    if not texts:
        return None
    pairs = [pair for text in texts for pair in _pairs(model, text)]
    return {model.names[v]: state for v, state in model.observe(pairs).items()}


def _pairs(model: Model, text: str) -> Iterator[tuple[str, str | int]]:
    from ..examples import file_or_example
    from ..formats import load_evidence

    path = file_or_example(text)
    if os.path.exists(path):
        for v, state in load_evidence(path, model).items():
            yield model.names[v], state
    elif "=" not in text:
        raise ModelError(f"--evidence {text!r} is neither a file nor a list like x=1,y=0")
    else:
        yield from map(_pair, filter(None, (part.strip() for part in text.split(","))))


def _pair(item: str) -> tuple[str, str]:
    name, sign, state = item.rpartition("=")
    if not sign or not name or not state:
        raise ModelError(f"--evidence has {item!r} where x=v is expected")
    return name, state
