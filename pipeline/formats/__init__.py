"""Readers and writers of model files, one module a format."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ...cluster.budget import default_memory_bytes
from ..errors import BudgetError, format_bytes
from ..examples import file_or_example
from ..models.model import Model
from .bif import read_bif
from .cfn.reader import read_cfn
from .erg import read_erg
from .evidence import read_evidence
from .hugin import read_hugin
from .text.detect import detect_format
from .text.source import Source, read_source
from .uai import read_uai
from .wcsp import read_wcsp
from .writers import save
from .xml_networks import read_xdsl, read_xmlbif

__all__ = ["load", "load_evidence", "save"]

# Every state has a place in a few arrays of integers, whatever is asked.
_STATE_BYTES = 32

_READERS: dict[str, Callable[[Source], Model]] = {
    "wcsp": read_wcsp,
    "cfn": read_cfn,
    "uai": read_uai,
    "erg": read_erg,
    "bif": read_bif,
    "xmlbif": read_xmlbif,
    "xdsl": read_xdsl,
    "net": read_hugin,
}


def load(
    path: str | os.PathLike[str],
    evidence_path: str | os.PathLike[str] | None = None,
    memory: int | None = None,
) -> Model:
    """Read a model, and evidence on it if a second file is given, within ``memory`` bytes.

    The format follows from the name (``.wcsp .cfn .uai .erg .bif .bifxml .xdsl .net``, also with ``.gz`` or ``.xz``),
    or else from the content. Evidence files beside the model are never read on their own.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, or is of no known format.
    BudgetError
        If reading takes more than ``memory``, by default most of what is free.
    """
    source = read_source(path, default_memory_bytes() if memory is None else memory)
    try:
        model = _READERS[detect_format(source)](source)
    except MemoryError:
        raise BudgetError(f"{source.path}: reading it takes more memory than this process can get") from None
    _check_states(source, model)
    return model if evidence_path is None else replace(model, evidence=load_evidence(evidence_path, model))


def _check_states(source: Source, model: Model) -> None:
    """Refuse domains whose states alone, one number each in several arrays, do not fit memory.

    Raises
    ------
    BudgetError
        If they do not.
    """
    allowed, largest = source.allowance.memory, max(model.dims, default=0)
    needed = _STATE_BYTES * sum(model.dims)
    if needed > allowed:
        raise BudgetError(
            f"{source.path}: its domains of up to {largest} states need {format_bytes(needed)} of memory, allowed "
            f"{format_bytes(allowed)}; if the file is what it should be, give a larger --memory"
        )


def load_evidence(path: str | os.PathLike[str], model: Model) -> dict[int, int]:
    """Read an evidence file, or that of an example by its name, into variable index → state index.

    Raises
    ------
    FormatError
        If the file is malformed or does not fit the model.
    """
    return read_evidence(read_source(file_or_example(path), default_memory_bytes()), model)
