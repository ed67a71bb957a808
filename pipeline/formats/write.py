"""Writing models: .uai, .bif and .net of probabilities, .wcsp and .cfn of costs, .xml and .yaml with agents."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from io import BufferedWriter
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ModelError, checks_keywords, public, writing
from ..local_paths import local_path, whole_file
from ..models.dcop import Dcop, model_of, with_agents
from ..models.model import Model
from .dcop.pydcop_agents import is_told, owner_lines
from .format_policy import FormatPolicy
from .registry import Format, written_format, written_suffixes
from .text.source import strip_compression
from .text.written_words import WrittenFile, counted, lost_of_agents


@public
@checks_keywords
def save(model: Model | Dcop, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write a model as its name says: .uai, .bif, .net, .wcsp, .cfn, .xml (XCSP 2.1) or .yaml (pyDCOP), or packed.

    The file is written atomically. For a distributed problem in .wcsp or .cfn, ``NAME.agents.yaml`` stores the owners
    of variables, unless every variable has an agent with its name; :func:`load_dcop` takes this file. In .xml and .yaml
    a model without agents gets one agent per variable. Returns notes about differences from the model, one sentence
    each: .uai and .wcsp have no place for names, labels and evidence, and costs in .wcsp are integers of at least 0 to
    be minimised.

    Raises
    ------
    ModelError
        If the format cannot hold the model, the name says no format that can be written, or a file
        cannot be written.

    Examples
    --------
    >>> import bucketflow
    >>> model = bucketflow.Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])], top=10)
    >>> notes = bucketflow.save(model, "small.wcsp")
    >>> bucketflow.solve("small.wcsp").value
    1
    """
    target = local_path(path)
    written = verify_written(model, path)
    files, notes = {target: written.lines}, [*written.notes]
    if isinstance(model, Dcop) and written.names and not is_told(model, written.names):
        beside = target.with_name(f"{Path(strip_compression(target.name)).stem}.agents.yaml")
        files[beside] = owner_lines(model, written.names)
        notes.append(f"the owners of variables are stored in {beside.name}, for --agents")
    with ExitStack() as stack:
        for file, lines in files.items():
            partial = stack.enter_context(whole_file(file))
            with writing(file):
                _write(partial, file, lines)
    return tuple(notes)


def verify_written(model: Model | Dcop, path: str | os.PathLike[str]) -> WrittenFile:
    """Return what a file of a model would hold, before anything is written.

    Raises
    ------
    ModelError
        If models are not written in such a file, if its format cannot hold the model, or if its folder is not there.
    """
    target = local_path(path)
    suffix = Path(strip_compression(target.name)).suffix.lower()
    form = written_format(suffix)
    if form is None:
        raise ModelError(f"cannot write {os.fspath(path)}: models are written as {written_suffixes()}")
    if not target.parent.is_dir():
        raise ModelError(f"cannot write {os.fspath(path)}: there is no folder {target.parent}")
    return _written(model, form, suffix)


def _write(partial: Path, target: Path, lines: Iterable[str]) -> None:
    """Write the lines of a file some at a time, compressed as its name says."""
    policy = FormatPolicy.current()
    with ExitStack() as stack:
        plain = stack.enter_context(partial.open("wb", buffering=policy.chunk_bytes))
        file = stack.enter_context(_compressed(plain, target.suffix.lower()))
        if file is not plain:  # compressors are slow on many small pieces
            file = stack.enter_context(BufferedWriter(file, policy.chunk_bytes))
        for line in lines:
            file.write(f"{line}\n".encode())


def _compressed(plain: BinaryIO, suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=plain, mtime=0)  # no time stamp: equal models give equal files
    return lzma.open(plain, "wb") if suffix == ".xz" else nullcontext(plain)


def _written(problem: Model | Dcop, form: Format, suffix: str) -> WrittenFile:
    """Return the content of a file, with notes about all parts that it does not keep."""
    if "agents" in form.keeps:
        dcop = with_agents(problem)
        if not dcop.model.names:
            raise ModelError(f"the model has no variables; {suffix} holds problems with some")
        written = form.write(dcop)
        return replace(written, notes=(*written.notes, *_lost_questions(dcop.model)))
    model = model_of(problem)
    written = form.write(model)
    lost = () if "names" in form.keeps else tuple(_lost(model))
    agents = lost_of_agents(problem) if isinstance(problem, Dcop) else ()
    return replace(written, notes=(*lost, *written.notes, *_lost_questions(model), *agents))


def _lost(model: Model) -> Iterator[str]:
    """Say which names and labels have no place in .uai and .wcsp."""
    if any(name != f"x{v}" for v, name in enumerate(model.own_names)):
        yield "names of variables are not kept: variables are numbered from 0 in the model's order"
    if not all(map(counted, model.states)):
        yield "labels of states are not kept: states are numbered from 0 in the model's order"


def _lost_questions(model: Model) -> Iterator[str]:
    if model.hidden:
        over = ", so that an optimum of the file also covers them" if model.summed else ""
        yield f"{model.hidden} hidden variables, the last ones, are variables of the file{over}"
    if model.evidence:
        yield f"the model's evidence on {len(model.evidence)} variables is not kept"
    if model.projection:
        yield f"the projection on {len(model.projection.variables)} variables is not kept"
