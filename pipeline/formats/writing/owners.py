"""Who owns what, as a file of its own beside a model that has no place for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...models.dcop import Dcop
from .yaml_words import yaml_word


def owner_lines(dcop: Dcop, names: Sequence[str]) -> Iterator[str]:
    """Give the lines of a file for ``--agents``, which pyDCOP reads as a distribution; ``names`` are the variables'."""
    yield "distribution:"
    for agent, own in zip(dcop.agents, dcop.owned, strict=True):
        yield f"  {yaml_word(agent.name)}: [{', '.join(yaml_word(names[v]) for v in own)}]"


def is_told(dcop: Dcop, names: Sequence[str]) -> bool:
    """Whether a model alone says who owns what: every variable has an agent of its own, which has its name."""
    alone = dcop.owners == tuple(range(len(names)))
    return alone and [agent.name for agent in dcop.agents] == list(names)
