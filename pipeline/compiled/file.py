"""Compiled models in files: one ``.npz`` of plain arrays and a line of JSON, nothing that runs when it is read.

The archive's comment is a checksum of all bytes before it: a file that is not as it was written is refused before
anything in it is looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from zipfile import ZipFile

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...tasks.sweeps.scaled import Scaled
from ..errors import BucketflowError, FormatError, unreadable, writing
from ..formats.format_policy import FormatPolicy
from ..formats.npz_files import read_npz
from ..local_paths import local_path, whole_file
from ..models.model import Function, Model
from ..options import Options
from ..plans.planner import Planner
from ..plans.problem import Problem
from ..preprocessing.preprocess import fixed_value
from ..queries.arithmetic import ScaledPartition
from ..queries.beliefs import BeliefRequest, local_targets
from ..trees.tree import Tree
from .structure import Skeleton, network_of

Array = NDArray[Any]
T = TypeVar("T")

_FORMAT = "bucketflow compiled model 2"
_SEAL, _DIGITS = b"crc32c ", 8
_BLOCK = FormatPolicy.chunk_bytes
_OPTIONS = ("memory", "seed", "threads")


@dataclass(frozen=True)
class Saved:
    """The content of a compiled model's file.

    Parameters
    ----------
    skeleton : Skeleton
    options : Options
        Tables; the file keeps only the tables that are still valid.
    findings : mapping of int to ndarray
        Likelihoods by variable.
    tables : mapping of int to Scaled
        The messages that are up to date under them.
    """

    skeleton: Skeleton
    options: Options
    findings: Mapping[int, Array]
    tables: Mapping[int, Scaled]


def save_compiled(saved: Saved, path: str | PathLike[str]) -> None:
    """Write the model, the tree, the findings and all tables that are up to date.

    Raises
    ------
    ModelError
        If the file cannot be written. An existing file then stays unchanged.
    """
    skeleton, findings, tables = saved.skeleton, saved.findings, saved.tables
    header = {
        "format": _FORMAT,
        "model": _model_facts(skeleton.model),
        "joints": skeleton.planned.joints,
        "pairs": [each for each in enumerate(skeleton.asked.joints) if each[1] not in skeleton.planned.joints],
        "families": bool(skeleton.asked.families),
        "children": skeleton.plan.tree.children if skeleton.plan else (),
        "findings": sorted(findings),
        "options": {key: getattr(saved.options, key) for key in _OPTIONS},
        "tables": [[n, t.values.size, t.log_scale, t.low, t.high, t.logs] for n, t in tables.items()],
    }
    functions = skeleton.model.functions
    with whole_file(path) as partial, writing(path):
        with partial.open("wb") as file:
            np.savez(
                file,
                header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
                functions=_flat([f.values for f in functions]),
                rows=_flat([f.rows for f in functions if f.rows is not None]).astype(np.int64),
                findings=_flat([findings[v] for v in sorted(findings)]),
                tables=_flat([t.values for t in tables.values()]),
            )
        _seal(partial)


def load_compiled(path: str | PathLike[str], restored: Callable[[Saved], T]) -> T:
    """Read a file of :func:`save_compiled`, and return the result of ``restored`` for its content.

    Raises
    ------
    BudgetError
        If its arrays do not fit memory.
    FormatError
        If the file is missing, damaged or something else.
    """
    try:
        with local_path(path).open("rb") as stream:
            _check_seal(stream)
            arrays = read_npz(stream, str(path), default_memory_bytes())
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != _FORMAT:
            raise ValueError(header["format"])
        return restored(_rebuilt(header, arrays))
    except (BucketflowError, MemoryError):
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except _SealError as error:
        raise FormatError(str(path), None, "a compiled model", str(error)) from None
    except Exception as error:  # any failure of reading content with a correct checksum
        raise FormatError(str(path), None, "a compiled model", f"{type(error).__name__}: {error}") from None


class _SealError(Exception):
    """A file without the checksum of its content."""


def _seal(path: Path) -> None:
    """Append the checksum of a whole archive to it."""
    with ZipFile(path, "a") as archive:
        archive.comment = _SEAL + bytes(_DIGITS)
    with path.open("r+b") as file:
        checksum = _checksum(file, path.stat().st_size - _DIGITS)
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(b"%08x" % checksum)


def _check_seal(file: BinaryIO) -> None:
    """Refuse a file that does not end with the checksum of all that stands before, and go back to its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - len(_SEAL) - _DIGITS, 0))
    seal = file.read()
    if not seal.startswith(_SEAL):
        raise _SealError("no checksum at its end: it is truncated, or another version wrote it; compile it again")
    if seal != _SEAL + b"%08x" % _checksum(file, size - _DIGITS):
        raise _SealError("a damaged one: its checksum differs")
    file.seek(0)


def _checksum(file: BinaryIO, size: int) -> int:
    """Return the checksum of the first bytes of a file."""
    file.seek(0)
    checksum = 0
    for start in range(0, size, _BLOCK):
        checksum = google_crc32c.extend(checksum, file.read(min(_BLOCK, size - start)))
    return checksum


def _rebuilt(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Saved:
    """Rebuild a compiled model from the header and the arrays of its file.

    Parameters
    ----------
    header : mapping
        JSON types: the model, joints, findings and the tree.
    arrays : mapping of str to array
        ``functions``, ``rows``, ``findings`` and ``tables``, each flat.

    Raises
    ------
    ValueError, KeyError, IndexError
        If header and arrays contradict each other.
    """
    model = _model_from(header["model"], arrays["functions"], arrays["rows"])
    functions = tuple(range(len(model.functions))) if header["families"] else ()
    variables, joints = tuple(range(len(model.dims))), tuple(tuple(j) for j in header["joints"])
    planned, every = BeliefRequest(variables, joints, functions), [*joints]
    for place, pair in header.get("pairs", ()):  # in files of version 0.2 and later
        every.insert(place, tuple(pair))
    if not {*chain(*every), *header["findings"]} <= {*variables}:
        raise ValueError("joints or findings of variables that do not exist")
    network = network_of(model, planned)
    targets = local_targets(network, planned)
    plan = None
    if network.feasible and network.leaves:
        # the stored tree is planned again, because plans depend on the version and tables on the tree only
        tree = Tree(network.dims, network.scopes, tuple(tuple(kids) for kids in header["children"]))
        semiring = ScaledPartition(network).semiring
        problem = Problem(
            network.dims, network.scopes, semiring, semiring.itemsize, network.model.nbytes, tuple(targets)
        )
        plan = Planner(problem).of(tree)
    skeleton = Skeleton(model, network, plan, replace(planned, joints=tuple(every)), planned, fixed_value(network))
    findings = _cut(arrays["findings"], [model.dims[v] for v in header["findings"]])
    vectors = dict(zip(header["findings"], findings, strict=True))
    parts = _cut(arrays["tables"], [entry[1] for entry in header["tables"]])
    tables = {
        node: Scaled(values, log_scale, low, high, logs)
        for (node, _, log_scale, low, high, logs), values in zip(header["tables"], parts, strict=True)
    }
    return Saved(skeleton, Options(**header["options"]), vectors, tables)


def _model_facts(model: Model) -> dict[str, Any]:
    return {
        "kind": model.kind,
        "names": model.names,
        "dims": model.dims,
        "states": model.states,
        "name": model.name,
        "notes": model.notes,
        "evidence": sorted(model.evidence.items()),
        "functions": [
            [f.scope, f.values.shape, None if f.rows is None else f.rows.shape, float(f.default), f.child]
            for f in model.functions
        ],
    }


def _model_from(facts: Mapping[str, Any], values: Array, rows: Array) -> Model:
    functions = []
    for scope, shape, row_shape, default, child in facts["functions"]:
        own, values = np.split(values, [int(np.prod(shape, dtype=np.int64))])
        listed = None
        if row_shape is not None:
            listed, rows = np.split(rows, [int(np.prod(row_shape, dtype=np.int64))])
            listed = listed.reshape(row_shape)
        functions.append(Function(tuple(scope), own.reshape(shape), listed, default, child))
    return Model(
        facts["kind"],
        tuple(facts["names"]),
        tuple(facts["dims"]),
        tuple(None if labels is None else tuple(labels) for labels in facts["states"]),
        tuple(functions),
        name=facts["name"],
        evidence={int(v): int(s) for v, s in facts["evidence"]},
        notes=tuple(facts.get("notes", ())),
    )


def _flat(arrays: list[Array]) -> Array:
    return np.concatenate([np.zeros(0), *(a.reshape(-1) for a in arrays)])


def _cut(array: Array, sizes: list[int]) -> list[Array]:
    if sum(sizes) != array.size:
        raise ValueError(f"{array.size} numbers instead of {sum(sizes)}")
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes else []
