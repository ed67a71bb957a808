"""Evidence files: which variables are observed, in which state."""

from __future__ import annotations

from ..errors import FormatError
from ..models.model import Model
from .text.source import BLOCK_COMMENT, Source
from .text.tokens import WordStream
from .text.unread import beside_a_model


def read_evidence(source: Source, model: Model) -> dict[int, int]:
    """Read an evidence file into variable index → state index.

    ``n v x v x ...`` and ``1 n v x ...`` (one sample) are both in use; the number of tokens tells them
    apart. Variables are numbers or names of the model, states are numbers or labels; ``/* */`` is a
    comment, and an empty file or a lone ``0`` observes nothing.

    Raises
    ------
    FormatError
        If the file is malformed, or names a variable or state that the model does not have.
    """
    if what := beside_a_model(source.suffix):
        raise FormatError(source.path, None, "an evidence file", what)
    tokens = WordStream(source.blank(BLOCK_COMMENT))
    if not len(tokens):
        return {}
    start = 0
    if len(tokens) % 2 == 0:
        tokens.integer(0, "one sample, a number", 1, 1)
        start = 1
    count = tokens.integer(start, "the number of observed variables", 0, len(model.names))
    stop = start + 1 + 2 * count
    if stop != len(tokens):
        raise tokens.fail(min(stop, len(tokens)), f"{count} observed variables with their states")
    states: dict[int, int] = {}
    for at in range(start + 1, stop, 2):
        variable = _variable(tokens, at, model)
        state = _state(tokens, at + 1, model, variable)
        if states.setdefault(variable, state) != state:
            raise tokens.fail(at, f"variable {model.names[variable]!r} in one state only")
    return states


def _variable(tokens: WordStream, at: int, model: Model) -> int:
    named = model.index.get(tokens.peek(at))
    return tokens.integer(at, "a variable", 0, len(model.names) - 1) if named is None else named


def _state(tokens: WordStream, at: int, model: Model, variable: int) -> int:
    labels = model.states[variable]
    if labels is not None and tokens.peek(at) in labels:
        return labels.index(tokens.peek(at))
    what = f"a state of variable {model.names[variable]!r}"
    return tokens.integer(at, what, 0, model.dims[variable] - 1)
