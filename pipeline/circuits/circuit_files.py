"""Circuits in files: ``.npz`` of plain arrays and a line of JSON; texts of c2d and d4 for variables of two states.

An ``.nnf`` has a header ``nnf NODES EDGES VARIABLES`` and a line for each node, children before parents: ``L literal``,
``A count children``, ``O variable count children`` (Darwiche, c2d user manual). Behind the nodes stand the weights of
literals as model counters write them, ``c p weight 3 0.4 0``.

A ``.ddnnf`` is what d4 writes and KLay reads, without weights: a line for each node, ``o``, ``a`` or ``t`` with its
number, the root's 1, then a line for each edge, children before parents: ``parent child literals 0``.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.number_limits import CELL_BYTES, LARGEST_INT32
from ..errors import BucketflowError, FormatError, ModelError, UnreadableError, shorten, unreadable, writing
from ..formats.format_policy import WORD_BYTES
from ..formats.npz_files import NpzEntry, npz_entries, verify_memory
from ..formats.text.source import JSON_BYTES, Source, read_source
from ..formats.text.tokens import has_plain_digits
from ..gates.circuit import CircuitGraph, CircuitPolicy, CircuitVariables, Gates, pieces
from ..local_paths import local_path, whole_file


class _NnfDraft:
    """Nodes as they are read; leaves get their numbers at the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.literals: dict[int, int] = {}
        self.weights: dict[int, float] = {}
        self.nodes: list[tuple[bool, list[int]] | int] = []
        self.variables = 0

    def read(self, line: int, words: Sequence[str]) -> None:
        """Read a line behind the header."""
        if words[0] == "c":
            if words[1:3] == ["p", "weight"]:
                self._weight(line, words[3:])
            return
        numbers = self._numbers(line, words)
        if words[0] == "L" and len(numbers) == 1 and 0 < abs(numbers[0]) <= self.variables:
            self.literals.setdefault(numbers[0], len(self.literals))
            self.nodes.append(numbers[0])
            return
        children = numbers[2:] if words[0] == "O" else numbers[1:]
        if words[0] not in ("A", "O") or not numbers or len(numbers) - len(children) != 1 + (words[0] == "O"):
            raise self.fail(line, "a line 'L literal', 'A count children' or 'O variable count children'", words)
        if len(children) != numbers[-len(children) - 1]:
            raise self.fail(line, f"{numbers[-len(children) - 1]} children", words)
        if not all(0 <= child < len(self.nodes) for child in children):
            raise self.fail(line, f"children from 0 to {len(self.nodes) - 1}, nodes before this one", words)
        self.nodes.append((words[0] == "O", children))

    def fail(self, line: int, expected: str, words: Sequence[str]) -> FormatError:
        """Return the error for a line."""
        return FormatError(self.path, line, expected, repr(shorten(" ".join(words))))

    def _numbers(self, line: int, words: Sequence[str]) -> list[int]:
        try:
            return [int(word if has_plain_digits(word) else "none") for word in words[1:]]
        except ValueError:
            raise self.fail(line, "numbers after the letter of a node", words) from None

    def _weight(self, line: int, words: Sequence[str]) -> None:
        try:
            literal, weight = (int(words[0]), float(words[1])) if has_plain_digits("".join(words)) else (0, 0.0)
        except (ValueError, IndexError):
            literal, weight = 0, 0.0
        if not (0 < abs(literal) <= self.variables and 0.0 <= weight < np.inf):
            raise self.fail(line, "a literal and its weight", ["c", "p", "weight", *words])
        self.weights[literal] = weight

    def made(self) -> CircuitGraph:
        """Build the circuit: a literal with a weight becomes a product of its indicator and a parameter.

        Returns
        -------
        CircuitGraph
            Indicators first, then parameters, then gates.
        """
        n, literals = len(self.literals), [*self.literals]
        weighing = [k for k, literal in enumerate(literals) if self.weights.get(literal, 1.0) not in (0.0, 1.0)]
        zero = {literal for literal, weight in self.weights.items() if weight == 0.0}
        first = n + len(weighing)
        arities: list[int] = []
        children: list[int] = []
        is_sum: list[bool] = []
        of_literal: dict[int, int] = {}
        for place, k in enumerate(weighing):
            of_literal[literals[k]] = first + len(arities)
            is_sum.append(False)
            arities.append(2)
            children += [k, n + place]
        for literal in sorted(zero & {*literals}):
            of_literal[literal] = first + len(arities)
            is_sum.append(True)
            arities.append(0)
        numbers: list[int] = []
        for node in self.nodes:
            if isinstance(node, int):
                numbers.append(of_literal.get(node, self.literals[node]))
                continue
            numbers.append(first + len(arities))
            is_sum.append(node[0])
            arities.append(len(node[1]))
            children += [numbers[child] for child in node[1]]
        if numbers[-1] != first + len(arities) - 1:  # the last node is a literal
            is_sum.append(False)
            arities.append(1)
            children.append(numbers[-1])
        starts = np.append(0, np.cumsum(arities)).astype(np.int64)
        gates = Gates(np.array(is_sum, bool), starts, np.array(children, np.int64))
        known = CircuitVariables(
            tuple(f"x{v + 1}" for v in range(self.variables)), (2,) * self.variables, (None,) * self.variables
        )
        own = np.array([[abs(literal) - 1, literal > 0] for literal in literals], np.int64).reshape(-1, 2).T
        values = np.array([self.weights[literals[k]] for k in weighing])
        scopes: dict[int, tuple[int, ...]] = {int(v): (int(v),) for v in own[0, weighing]}
        return CircuitGraph(known, own, own[:, weighing], values, gates, "", scopes)


def read_nnf(source: Source) -> CircuitGraph:
    """Read the text of an ``.nnf``, within the memory of its allowance.

    Raises
    ------
    BudgetError
        If the nodes do not fit memory.
    FormatError
        Naming the line.
    """
    path, text = source.path, source.text
    draft, header = _NnfDraft(path), None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        source.allowance.take(WORD_BYTES * (1 + len(words)), f"{number:,} lines")
        if not words or (header is None and words[0] == "c"):
            continue
        if header is None:
            header = _header(draft, number, words)
            draft.variables = header[2]
            continue
        draft.read(number, words)
    if header is None or len(draft.nodes) != header[0] or not draft.nodes:
        nodes = "a header 'nnf NODES EDGES VARIABLES'" if header is None else f"{header[0]} nodes, at least one"
        raise FormatError(path, None, nodes, f"{len(draft.nodes)}" if header else "none")
    return draft.made()


def _is_count(word: str) -> bool:
    return has_plain_digits(word) and word.isdigit() and int(word) <= LARGEST_INT32


def _header(draft: _NnfDraft, line: int, words: Sequence[str]) -> tuple[int, int, int]:
    if len(words) != 4 or words[0] != "nnf" or not all(_is_count(word) for word in words[1:]):
        raise draft.fail(line, "a header 'nnf NODES EDGES VARIABLES'", words)
    nodes, edges, variables = map(int, words[1:])
    return nodes, edges, variables


Array = NDArray[Any]

_FORMAT = "bucketflow circuit 1"
_ENDINGS = (".npz", ".nnf", ".ddnnf")
_ARRAYS = ("indicators", "parameters", "values", "is_sum", "starts", "children")


def circuit_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a circuit's file.

    Raises
    ------
    ModelError
        If it is another one.
    """
    ending = local_path(path).suffix.lower()
    if ending not in _ENDINGS:
        raise ModelError(f"{path} ends with {ending or 'nothing'!r}; a circuit is written to {' or '.join(_ENDINGS)}")
    return ending


def write_circuit(graph: CircuitGraph, path: str | PathLike[str]) -> None:
    """Write a circuit; a file that was there before stays as it was if that fails.

    Raises
    ------
    ModelError
        If a text cannot say it, or the file cannot be written.
    """
    ending = circuit_ending(path)
    text = ending != ".npz"
    weights = literal_weights(graph) if text else {}
    with whole_file(path) as partial, writing(path):
        if text:
            with partial.open("w", encoding="ascii") as file:
                file.writelines(_nnf_lines(graph, weights) if ending == ".nnf" else _d4_lines(graph))
            return
        known, gates = graph.variables, graph.gates
        scopes = [[f, scope] for f, scope in graph.scopes.items()]
        header = [_FORMAT, known.names, known.dims, known.labels, known.hidden, graph.source, scopes]
        arrays = graph.indicators, graph.parameters, graph.values, gates.is_sum, gates.starts, gates.children
        with partial.open("wb") as binary:
            told = np.frombuffer(json.dumps(header).encode(), np.uint8)
            named: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
            if graph.parts is not None:
                named["parts"] = graph.parts
            np.savez(binary, header=told, **named)


def read_circuit(path: str | PathLike[str], memory: int | None = None) -> CircuitGraph:
    """Read a circuit; sizes are checked before any array is read.

    Parameters
    ----------
    memory : int, optional
        Byte limit of the circuit and of the evaluation of one case; by default most of the free memory.

    Raises
    ------
    BudgetError
        If the circuit does not fit ``memory``.
    FormatError
        If the file is missing, damaged or something else.
    """
    allowed = default_memory_bytes() if memory is None else memory
    try:
        if (ending := circuit_ending(path)) == ".ddnnf":
            raise FormatError(
                str(path), None, "a circuit as .npz or .nnf", "d4's text, which can be written but not read"
            )
        if ending == ".nnf":
            return read_nnf(read_source(path, allowed))
        with Path(path).open("rb") as stream:
            entries = npz_entries(stream)
            _verify_shapes(entries)
            verify_memory(str(path), _needed_bytes(entries), allowed)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                told, parts = json.loads(file["header"].tobytes()), file.get("parts")
                stays = _ARRAYS if parts is None else _ARRAYS[:3]
                arrays = [file[name] if name in stays else _mapped(Path(path), name, entries) for name in _ARRAYS]
        return _read(told, parts, *arrays)
    except (BucketflowError, MemoryError):
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # any failure of reading a file that is not ours
        fault = f"this is not a circuit, or it is damaged ({type(error).__name__}: {error})"
        raise UnreadableError(str(path), fault) from None


def _verify_shapes(entries: Mapping[str, NpzEntry]) -> None:
    """Refuse an archive whose arrays do not belong together, from their headers alone.

    Raises
    ------
    KeyError, ValueError
        If an array is missing or has another shape.
    """
    parts = ("parts",) if "parts" in entries else ()
    shapes = {name: entries[name].shape for name in ("header", *_ARRAYS, *parts)}
    if unknown := entries.keys() - shapes.keys():
        raise ValueError(f"an unknown array {min(unknown)!r}")
    gates, values, indicators = (math.prod(shapes[name]) for name in ("is_sum", "values", "indicators"))
    expected = {
        **{name: (math.prod(shape),) for name, shape in shapes.items()},
        "indicators": (2, indicators // 2),
        "parameters": (2, values),
        "starts": (gates + 1,),
    }
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise ValueError(f"{name} has the shape {shape}, not {expected[name]}")


def _needed_bytes(entries: Mapping[str, NpzEntry]) -> int:
    """Return the bytes that a circuit and the evaluation of one case take at least.

    Layers of gates repeat the children, and the numbers of nodes; a case has a value and a flow for each node. Gates in
    ``parts`` stay in the file.
    """
    in_file = ("is_sum", "starts", "children") if "parts" in entries else ()
    arrays = sum([entry.nbytes for name, entry in entries.items() if name not in in_file])
    sizes = {name: math.prod(entry.shape) for name, entry in entries.items()}
    nodes = sizes["indicators"] // 2 + sizes["values"] + sizes["is_sum"]
    layers = 0 if in_file else sizes["children"] + nodes
    return arrays + JSON_BYTES * sizes["header"] + CELL_BYTES * (layers + 2 * nodes)


def _read(
    told: Any,
    parts: Array | None,
    indicators: Array,
    parameters: Array,
    values: Array,
    is_sum: Array,
    starts: Array,
    children: Array,
) -> CircuitGraph:
    """Put a circuit together, once its numbers are known to fit."""
    form, names, dims, labels, hidden, source, scopes = told
    if form != _FORMAT:
        raise ValueError(form)
    own = tuple(None if known is None else tuple(known) for known in labels)
    variables = CircuitVariables(tuple(names), tuple(map(int, dims)), own, int(hidden))
    if parts is None:
        is_sum, starts = is_sum.astype(bool), starts.astype(np.int64)
    known_scopes = {int(f): tuple(scope) for f, scope in scopes}
    gates = Gates(is_sum, starts, children)
    found = CircuitGraph(variables, indicators, parameters, values, gates, str(source), known_scopes, parts)
    verify_numbers(found)
    return found


def verify_numbers(graph: CircuitGraph) -> None:
    """Check that children stand before their parents, and leaves are of states and entries that there are.

    Raises
    ------
    ValueError
        If not.
    """
    gates, dims = graph.gates, np.array(graph.variables.dims, np.int64)
    fits = len(gates.starts) == len(gates) + 1 and gates.starts[0] == 0 and gates.starts[-1] == len(gates.children)
    if not (len(gates) and fits and all(_stands_behind(graph, *part) for part in _checked_parts(graph))):
        raise ValueError("a node that comes before one of its children")
    variables, states = graph.indicators
    if not ((variables >= 0) & (variables < len(dims))).all() or not ((states >= 0) & (states < dims[variables])).all():
        raise ValueError("an indicator of a state that does not exist")
    if graph.parameters.shape != (2, len(graph.values)) or not ((graph.values > 0) & (graph.values < np.inf)).all():
        raise ValueError("parameters that are not finite and above 0")
    for f, scope in graph.scopes.items():
        entries = graph.parameters[1, graph.parameters[0] == f]
        if not ((entries >= 0) & (entries < np.prod(dims[list(scope)]))).all():
            raise ValueError(f"an entry that function {f} does not have")


def _checked_parts(graph: CircuitGraph) -> Iterator[tuple[int, int]]:
    """Yield where pieces of the gates begin and end.

    Raises
    ------
    ValueError
        If they are not in order.
    """
    parts = graph.parts
    if parts is None:
        yield 0, len(graph.gates)
        return
    if parts.ndim != 1 or not (len(parts) and parts[0] == 0 and parts[-1] == len(graph.gates)):
        raise ValueError("parts that are not all gates")
    yield from pairwise(parts.tolist())


def _stands_behind(graph: CircuitGraph, first: int, stop: int) -> bool:
    """Return whether children come before their gates; for gates in files, before the gates' piece."""
    starts = graph.gates.starts[first : stop + 1]
    arities = np.diff(starts)
    if stop < first or (arities < 0).any():
        return False
    numbers, parents = graph.gates.children[starts[0] : starts[-1]], np.arange(first, stop) + graph.n_leaves
    limit = np.repeat(parents if graph.parts is None else np.full(stop - first, first + graph.n_leaves), arities)
    return bool((numbers >= 0).all() and (numbers < limit).all())


def _mapped(path: Path, name: str, entries: Mapping[str, NpzEntry]) -> Array:
    """Return an array of an ``.npz`` that is read as it is used.

    Raises
    ------
    ValueError
        If it is compressed.
    """
    entry = entries[name]
    if not entry.is_stored:
        raise ValueError(f"{name} is compressed")
    if not entry.nbytes:
        return np.zeros(entry.shape, entry.dtype)
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        file.seek(archive.getinfo(f"{name}.npy").header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)  # behind the name and the extra field
        return np.memmap(path, entry.dtype, "r", file.tell() + entry.offset, entry.shape)


def literal_weights(graph: CircuitGraph) -> dict[int, float]:
    """Return the weights of literals: the parameters of a circuit, if all belong to functions of one binary variable.

    Raises
    ------
    ModelError
        If they are not: only weights of literals can be written beside a d-DNNF.
    """
    known = graph.variables
    if wide := [v for v, dim in enumerate(known.dims) if dim > 2]:
        raise ModelError(
            f"{known.names[wide[0]]!r} has {known.dims[wide[0]]} states, and an .nnf holds only literals "
            "of two states; write .npz"
        )
    weights: dict[int, float] = {}
    for f, entry, value in zip(*graph.parameters.tolist(), graph.values.tolist(), strict=True):
        scope = graph.scopes.get(f, ())
        if len(scope) != 1:
            raise ModelError(
                f"function {f} weighs {len(scope) or 'no'} variables, and an .nnf holds only weights of literals; "
                "write .npz"
            )
        literal = (scope[0] + 1) * (1 if entry else -1)
        weights[literal] = weights.get(literal, 1.0) * value
    return weights


def _nnf_lines(graph: CircuitGraph, weights: dict[int, float]) -> Iterator[str]:
    """Yield the lines of an ``.nnf``: parameters are no nodes there, but weights."""
    gates, first, last = graph.gates, graph.n_indicators, graph.n_leaves
    edges, most = 0, CircuitPolicy.current().stored_edges
    for part in pieces(gates.starts, most):
        children = gates.children[gates.starts[part.start] : gates.starts[part.stop]]
        edges += int(np.count_nonzero((children < first) | (children >= last)))
    yield f"nnf {first + len(gates)} {edges} {len(graph.variables.dims)}\n"
    for v, state in graph.indicators.T.tolist():
        yield f"L {v + 1 if state else -v - 1}\n"
    for part in pieces(gates.starts, most):
        starts = np.array(gates.starts[part.start : part.stop + 1])
        children = np.array(gates.children[starts[0] : starts[-1]])
        numbers = np.where(children < first, children, children - last + first).tolist()
        written = ((children < first) | (children >= last)).tolist()
        decided = np.where(np.diff(starts) == 2, graph.decisions[part.start : part.stop] + 1, 0).tolist()
        ends = (starts - starts[0]).tolist()
        for k, is_sum in enumerate(gates.is_sum[part.start : part.stop].tolist()):
            own = list(compress(numbers[ends[k] : ends[k + 1]], written[ends[k] : ends[k + 1]]))
            yield " ".join(map(str, ["O", decided[k], len(own), *own] if is_sum else ["A", len(own), *own])) + "\n"
    for literal in sorted({*weights, *[-known for known in weights]}, key=lambda one: (abs(one), one)):
        yield f"c p weight {literal} {weights.get(literal, 1.0)!r} 0\n"


def _d4_lines(graph: CircuitGraph) -> Iterator[str]:
    """Yield the lines of a ``.ddnnf``: literals stand at edges to the node that is true, weights nowhere."""
    gates, first, last = graph.gates, graph.n_indicators, graph.n_leaves
    literals = [v + 1 if state else -v - 1 for v, state in graph.indicators.T.tolist()]
    parts = [*pieces(gates.starts, CircuitPolicy.current().stored_edges)]
    true = len(gates) + 1
    for part in reversed(parts):
        kinds = gates.is_sum[part.start : part.stop].tolist()
        yield from (f"{'o' if kinds[k] else 'a'} {true - 1 - part.start - k} 0\n" for k in reversed(range(len(kinds))))
    yield f"t {true} 0\n"
    for part in parts:
        starts = np.array(gates.starts[part.start : part.stop + 1])
        children = gates.children[starts[0] : starts[-1]].tolist()
        ends = (starts - starts[0]).tolist()
        for k in range(len(ends) - 1):
            parent = true - 1 - part.start - k
            for child in children[ends[k] : ends[k + 1]]:
                if child < first:
                    yield f"{parent} {true} {literals[child]} 0\n"
                elif child >= last:
                    yield f"{parent} {true - 1 - (child - last)} 0\n"
