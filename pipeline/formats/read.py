"""Readers and writers of model files, one module a format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from ...cluster.memory import default_memory_bytes
from ..errors import BudgetError, format_bytes
from ..examples import file_or_example
from ..models.dcop import Dcop, model_of, with_agents
from ..models.model import Model
from .evidence import read_evidence
from .registry import detect_format
from .text.source import Source, read_source

__all__ = ["load", "load_any", "load_dcop", "load_evidence"]

# Every state has a place in a few arrays of integers, whatever is asked.
_STATE_BYTES = 32

# Module and function by format; only what a file needs is imported.
_READERS = {
    "wcsp": ("wcsp", "read_wcsp"),
    "cfn": ("cfn", "read_cfn"),
    "uai": ("uai", "read_uai"),
    "erg": ("uai", "read_erg"),
    "bif": ("bif", "read_bif"),
    "xmlbif": ("bayesian_xml", "read_xmlbif"),
    "xdsl": ("bayesian_xml", "read_xdsl"),
    "net": ("hugin", "read_hugin"),
    "dimacs": ("dimacs.reader", "read_dimacs"),
    "xcsp": ("dcop.xcsp", "read_xcsp"),
    "pydcop": ("dcop.pydcop", "read_pydcop"),
}


def load(
    path: str | os.PathLike[str],
    evidence_path: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    *,
    check: bool = True,
) -> Model:
    """Read a model, and evidence on it if a second file is given, within ``memory`` bytes.

    The format follows from the name (``.wcsp .cfn .uai .LG .erg .bif .bifxml .xdsl .net .cnf .wcnf .yaml``, also with
    ``.gz`` or ``.xz``), which the content must not contradict, or else from the content. Of a distributed problem it is
    the model without its agents. Evidence files beside the model are never read on their own. A Bayesian network is
    checked, unless ``check`` is False.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, is of no known format, or its name and content contradict each other.
    BudgetError
        If reading takes more than ``memory``, by default most of what is free.
    """
    model = model_of(load_any(path, memory, check=check))
    return model if evidence_path is None else replace(model, evidence=load_evidence(evidence_path, model))


def load_dcop(
    path: str | os.PathLike[str], agents_path: str | os.PathLike[str] | None = None, memory: int | None = None
) -> Dcop:
    """Read a distributed problem within ``memory`` bytes; who owns what stands in the file, or in a second one.

    In a file without agents every variable has one of its own, which has its name.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, or is of no known format.
    ModelError
        If the model holds probabilities, or a variable has no agent.
    BudgetError
        If reading takes more than ``memory``, by default most of what is free.
    """
    found = load_any(path, memory)
    if agents_path is not None:
        from .dcop.pydcop_agents import read_owners_file

        return read_owners_file(read_source(agents_path, default_memory_bytes() if memory is None else memory), found)
    return with_agents(found)


def load_any(path: str | os.PathLike[str], memory: int | None = None, *, check: bool = True) -> Model | Dcop:
    """Read a model as :func:`load` does, with its agents where the format has some."""
    source = read_source(path, default_memory_bytes() if memory is None else memory)
    source = source if check else replace(source, checked=False)
    try:
        found = _reader(detect_format(source))(source)
    except MemoryError:
        raise BudgetError(f"{source.path}: reading it takes more memory than this process can get") from None
    _check_states(source, model_of(found))
    return found


def _reader(name: str) -> Callable[[Source], Model | Dcop]:
    module, function = _READERS[name]
    found: Callable[[Source], Model | Dcop] = getattr(import_module(f".{module}", __package__), function)
    return found


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


def evidence_of(model: Model, texts: Sequence[str]) -> dict[str, int | list[float]] | None:
    """Read every ``--evidence``: a file if one is there, otherwise a list; None where none is given.

    Returns
    -------
    dict of str to int or list of float
        Variable name → state index, or a likelihood for each state; that of the model's own evidence too.

    Raises
    ------
    ModelError
        If a list or a name is wrong, or a variable is observed in two states.
    """
    from .evidence_texts import findings_of_texts

    return findings_of_texts(model, texts, lambda path: load_evidence(path, model)) if texts else None
