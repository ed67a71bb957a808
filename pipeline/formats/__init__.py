"""Readers and writers of model files, one module a format."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

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

__all__ = ["load", "load_evidence", "save"]

_READERS: dict[str, Callable[[Source], Model]] = {
    "wcsp": read_wcsp,
    "cfn": read_cfn,
    "uai": read_uai,
    "erg": read_erg,
    "bif": read_bif,
    "net": read_hugin,
}


def load(path: str | os.PathLike[str], evidence_path: str | os.PathLike[str] | None = None) -> Model:
    """Read a model, and evidence on it if a second file is given.

    The format follows from the name (``.wcsp .cfn .uai .erg .bif .net``, also with ``.gz`` or ``.xz``),
    or else from the content. Evidence files beside the model are never read on their own.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, or is of no known format.
    """
    source = read_source(path)
    model = _READERS[detect_format(source)](source)
    return model if evidence_path is None else replace(model, evidence=load_evidence(evidence_path, model))


def load_evidence(path: str | os.PathLike[str], model: Model) -> dict[int, int]:
    """Read an evidence file, or that of an example by its name, into variable index → state index.

    Raises
    ------
    FormatError
        If the file is malformed or does not fit the model.
    """
    return read_evidence(read_source(file_or_example(path)), model)
