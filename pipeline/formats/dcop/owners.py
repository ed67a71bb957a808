"""Files that say which agent owns which variables, for a model of any format."""

from __future__ import annotations

from ...errors import FormatError
from ...models.dcop import Dcop, owned_by
from ...models.model import Model
from ..text.source import Source
from .yaml_tree import Part, read_tree, shown

_SECTIONS = ("distribution", "agents")


def read_owners(source: Source, problem: Model | Dcop) -> Dcop:
    """Read agents with lists of their variables, in YAML (or JSON), perhaps below ``distribution`` or ``agents``.

    Raises
    ------
    FormatError
        If the file is something else.
    ModelError
        If a name is none of the problem's, or a variable has no owner or two.
    """
    root = read_tree(source)
    for section in _SECTIONS:
        if isinstance(root.value, dict) and section in root.value:
            root = root.value[section]
            break
    if not isinstance(root.value, dict) or not root.value:
        raise FormatError(source.path, root.line, "agents, each with a list of its variables", shown(root))
    return owned_by(problem, {str(agent): _names(part, source) for agent, part in root.value.items()})


def _names(part: Part, source: Source) -> list[str]:
    """Names of variables: a list, or one; None for nothing."""
    if part.value is None:
        return []
    if not isinstance(part.value, list):
        return [str(part.value)] if not isinstance(part.value, dict) else [_refused(part, source)]
    return [
        str(each.value) if not isinstance(each.value, list | dict) else _refused(each, source) for each in part.value
    ]


def _refused(part: Part, source: Source) -> str:
    raise FormatError(source.path, part.line, "the name of a variable", shown(part))
