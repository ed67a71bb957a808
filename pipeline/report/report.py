"""``report``: one page about a run directory, a job, a batch or an answer."""

from __future__ import annotations

import json
from os import PathLike
from os.path import isdir
from pathlib import Path
from typing import Any

from ..errors import FormatError, writing
from ..figures.pages import page, verify_installed
from ..formats.whole_files import whole_file
from .agents import dpop_sections, is_dpop
from .answers import Sections, answer_sections
from .batches import batch_sections, is_batch
from .runs import run_sections


def report(source: str | PathLike[str], out: str | PathLike[str]) -> None:
    """Write a page that needs no network: question, answer, plan, tasks.

    Parameters
    ----------
    source : path
        A run directory (that of a job too), the folder of a batch, or a file that ``--json`` printed.
    out : path
        The page, ``.html``.

    Raises
    ------
    IncompatibleRunError
        If the folder is neither.
    FormatError
        If the file is no answer.
    ModelError
        If the page cannot be written.
    BucketflowError
        If bokeh is not installed.
    """
    verify_installed()
    text = page(f"bucketflow: {Path(source).name}", _sections(Path(source)))
    with whole_file(out) as path, writing(out):
        path.write_text(text, encoding="utf-8")


def _sections(source: Path) -> Sections:
    if not isdir(source):
        found = _answer(source)
        if is_dpop(found):
            return _agents(found, source)
        return answer_sections(found, str(found.get("query", "")))
    return batch_sections(source) if is_batch(source) else run_sections(source)


def _agents(found: dict[str, Any], path: Path) -> Sections:
    try:
        return dpop_sections(found)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise FormatError(str(path), None, "the JSON object of dpop", "a damaged one") from None


def _answer(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(str(path), None, "a folder or an answer", error.strerror or str(error)) from None
    except ValueError:
        raise FormatError(str(path), None, "the JSON object of an answer", "something else") from None
    if not isinstance(found, dict) or "status" not in found or "seconds" not in found:
        raise FormatError(str(path), None, "the JSON object of an answer", "another one")
    return found
