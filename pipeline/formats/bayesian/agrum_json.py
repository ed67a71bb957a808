"""Networks that aGrUM saves as JSON (.jgum), or packed (.bgum): tables, and nodes that it makes of their parents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import FormatError, json_fault, shorten
from ...models.model import Model
from ..format_policy import UNWRITTEN
from ..text.source import BINARY, JSON_BYTES, Source
from ..text.tokens import has_plain_digits
from .network_draft import NetworkDraft, ParentChain, capped_sum, noisy_extreme

_NODE = re.compile(r"(?P<name>[^\[{]+)(?:\[(?P<range>[^\]]*)\]|\{(?P<labels>.*)\})?", re.DOTALL)

Draft = NetworkDraft[str]
Refuse = Callable[[str, str, str], FormatError]


def read_jgum(source: Source) -> Model:
    """Read a network of aGrUM, as JSON or packed: tables, aggregators, and noisy nodes of independent causes.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network, or has nodes of other kinds.
    """

    def refuse(node: str, expected: str, found: str) -> FormatError:
        return FormatError(source.path, None, expected, f"{found}, at node {shorten(node)!r}" if node else found)

    content = _content(source, refuse)
    draft = NetworkDraft(source, refuse)
    for text in _part(content, "nodes", list, refuse):
        draft.variable(text, *_variable(text, refuse))
    parents, tables = _part(content, "parents", dict, refuse), _part(content, "cpt", dict, refuse)
    for child, table in tables.items():
        above = parents.get(child, [])
        if not isinstance(above, list) or not all(isinstance(name, str) for name in above):
            raise refuse(child, "a list of parents", repr(shorten(str(above))))
        if isinstance(table, Mapping):
            scope = draft.scope(child, child, above, len(draft.names))
            draft.chain(child, _made(draft, child, scope, table))
            continue
        # of aGrUM's tables the first parent is fastest
        scope = draft.scope(child, child, above[::-1])
        if not isinstance(table, list) or not all(type(value) in (int, float) for value in table):
            raise refuse(child, "a list of probabilities", repr(shorten(str(table))))
        draft.probabilities(child, scope, [*map(repr, table)])
    properties = content.get("properties")
    name = properties.get("name", "") if isinstance(properties, Mapping) else ""
    return draft.model("", str(name))


def _content(source: Source, refuse: Refuse) -> Mapping[str, Any]:
    source.allowance.take(JSON_BYTES * len(source.data), "its values")
    content = _unpacked(source) if source.suffix in BINARY else _parsed(source)
    if not isinstance(content, Mapping) or content.get("type", "BN") != "BN":
        kind = content.get("type") if isinstance(content, Mapping) else content
        raise refuse("", 'a Bayesian network ("type": "BN")', f"{shorten(str(kind))!r}, which is not read")
    return content


def _parsed(source: Source) -> Any:
    try:
        return json.loads(source.text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise FormatError(source.path, line, "well-formed JSON", json_fault(error)) from None


def _unpacked(source: Source) -> Any:
    """Return the MessagePack content of a file, which follows its length in eight bytes."""
    msgpack = import_module("msgpack")
    try:
        if int.from_bytes(source.data[:8], "little") != len(source.data) - 8:
            raise ValueError("another length than it says")
        return msgpack.unpackb(bytes(source.data[8:]))
    except (ValueError, TypeError, RecursionError) as error:
        what = "a network of aGrUM as it packs it"
        found = "text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error) or "other content"
        raise FormatError(source.path, None, what, shorten(found, 60)) from None


def _part(content: Mapping[str, Any], name: str, kind: type[Any], refuse: Refuse) -> Any:
    found = content.get(name)
    if not isinstance(found, kind) or (kind is list and not all(isinstance(text, str) for text in found)):
        raise refuse("", f"{name!r}, as aGrUM writes it", repr(shorten(str(found))))
    return found


def _variable(text: str, refuse: Refuse) -> tuple[str, list[str]]:
    """Read a variable in aGrUM's short form: ``a[3]``, ``a[1,3]``, ``a[.5,1,2]`` (intervals) or ``a{x|y}``."""
    found = _NODE.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        return found["name"], [*_labels(found["range"], found["labels"])]
    except ValueError:
        raise refuse(text, "a variable, such as a[3], a[1,3] or a{x|y}", repr(shorten(text))) from None


def _labels(limits: str | None, labels: str | None) -> Iterator[str]:
    if labels is not None:
        yield from labels.split("|")
        return
    words = [word.strip() for word in ("2" if limits is None else limits).split(",")]
    if not has_plain_digits("".join(words)):
        raise ValueError
    if len(words) <= 2:
        low, high = (0, int(words[0]) - 1) if len(words) == 1 else (int(words[0]), int(words[1]))
        if high - low >= UNWRITTEN:
            raise ValueError
        yield from map(str, range(low, high + 1))
        return
    for k, (low_end, high_end) in enumerate(pairwise(words), 2):
        yield f"[{low_end};{high_end}{']' if k == len(words) else '['}"


def _made(draft: Draft, child: str, scope: tuple[int, ...], table: Mapping[str, Any]) -> ParentChain:
    """Return the distribution of a node that is made of its parents."""
    kind, name = table.get("kind"), table.get("name")
    if not scope[:-1]:
        raise draft.refuse(child, "a node with parents", f"a node of kind {shorten(str(name))!r} without")
    value = table.get("value", 1)
    if kind == "ici" and name in _CAUSAL:
        return _independent(draft, child, scope, table, str(name))
    if name in ("max", "min"):
        return _extreme(draft, child, scope, greatest=name == "max")
    if name == "sum":
        return _sum(draft, child, scope)
    if name in ("or", "exists", "count") and isinstance(value, int):
        return _count(draft, scope, value)
    if name in ("and", "forall") and isinstance(value, int):
        return _every(draft, child, scope, value)
    known = ", ".join((*_AGGREGATORS, *_CAUSAL))
    raise draft.refuse(child, f"tables, or nodes of {known}", f"a node of {shorten(str(name))!r}, which is not read")


def _extreme(draft: Draft, child: str, scope: tuple[int, ...], *, greatest: bool) -> ParentChain:
    """Return the greatest or least of the parents' numbers, clipped to the child's range."""
    *above, (low, size) = _ranges(draft, child, scope)
    states = [np.clip(np.arange(first, first + d) - low, 0, size - 1) for first, d in above]
    start = np.eye(size)[0 if greatest else -1]
    return noisy_extreme(scope, [np.eye(size)[own] for own in states], start, greatest=greatest)


def _sum(draft: Draft, child: str, scope: tuple[int, ...]) -> ParentChain:
    """Return the sum of the parents' numbers, clipped to the child's range."""
    *above, (low, size) = _ranges(draft, child, scope)
    return capped_sum(scope, [range(d) for _, d in above], size, sum(first for first, _ in above) - low)


def _ranges(draft: Draft, child: str, scope: Sequence[int]) -> list[tuple[int, int]]:
    """Return the least number and how many there are, of variables whose states are whole numbers in order."""
    ranges = []
    for v in scope:
        labels = draft.states[v]
        first = int(labels[0]) if re.fullmatch(r"-?[0-9]+", labels[0]) else 0
        if labels != (*map(str, range(first, first + len(labels))),):
            found = f"states of {shorten([*draft.names][v])!r}"
            raise draft.refuse(child, "variables of whole numbers in order", found)
        ranges.append((first, len(labels)))
    return ranges


def _count(draft: Draft, scope: tuple[int, ...], value: int) -> ParentChain:
    """How many parents are in a state, by its index."""
    *dims, size = [len(draft.states[v]) for v in scope]
    return capped_sum(scope, [[int(s == value) for s in range(d)] for d in dims], size)


def _every(draft: Draft, child: str, scope: tuple[int, ...], value: int) -> ParentChain:
    """Whether all parents are in a state, by its index."""
    *dims, size = [len(draft.states[v]) for v in scope]
    if size < 2:
        raise draft.refuse(child, "a node of two states", "a node of one state")
    causes = [np.eye(size)[[int(s == value) for s in range(d)]] for d in dims]
    return noisy_extreme(scope, causes, np.eye(size)[1], greatest=False)


_AGGREGATORS = ("max", "min", "sum", "count", "or", "exists", "and", "forall")
_CAUSAL = ("MultiDimNoisyORNet", "MultiDimNoisyORCompound", "MultiDimNoisyAND")


def _independent(draft: Draft, child: str, scope: tuple[int, ...], table: Mapping[str, Any], name: str) -> ParentChain:
    """Return a noisy-OR or noisy-AND of aGrUM: a weight for each cause, and one of all else.

    Let w0 be the external weight, and w the weight of a cause. A noisy-OR is off with probability 1 - w0, multiplied by
    a factor for each cause that is on. The factor is 1 - w. For a compound noisy-OR, whose weights include the external
    cause, the factor is (1 - w) / (1 - w0) (M. Henrion, Practical issues in constructing a Bayes' belief network, UAI
    1987). A noisy-AND is on with probability w0, multiplied by w for each cause that is on and by 1 - w for each other
    cause.
    """
    weights: Any = table.get("causalWeights")
    external: Any = table.get("externalWeight")
    parents = [[*draft.names][v] for v in scope[:-1]]
    given = isinstance(weights, Mapping)
    found: list[Any] = [external, *(weights.get(parent) for parent in parents)] if given else [None]
    if not all(type(w) in (int, float) and 0 <= w <= 1 for w in found):
        expected = "weights from 0 to 1, one for each parent and one of all else"
        raise draft.refuse(child, expected, repr(shorten(str(found))))
    if any(len(draft.states[v]) != 2 for v in scope):
        raise draft.refuse(child, "variables of two states", "a variable with another number of states")
    causes, conjunction = [], name == "MultiDimNoisyAND"
    for weight in found[1:]:
        off = 1.0 - weight
        if name == "MultiDimNoisyORCompound" and external < 1:
            off /= 1.0 - external
        if off > 1.0:
            raise draft.refuse(child, "weights of causes that are not below the external weight", f"{weight:g}")
        causes.append(np.array([[weight, off], [off, weight]] if conjunction else [[1.0, 0.0], [off, 1.0 - off]]))
    return noisy_extreme(scope, causes, np.array([1.0 - external, external]), greatest=not conjunction)
