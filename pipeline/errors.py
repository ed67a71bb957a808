"""The exceptions that bucketflow raises on purpose, each one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from .text import message


class BucketflowError(Exception):
    """Base of all expected failures. ``exit_code`` is what the command line returns."""

    exit_code = 2

    def __str__(self) -> str:
        return message(super().__str__())


class FormatError(BucketflowError):
    """A malformed input file.

    Parameters
    ----------
    path : str
        The file as the user named it.
    line : int or None
        One-based line, or None when no line is to blame (an empty file, a damaged archive).
    expected, found : str
        What the format asks for at this place, and what stands there.
    """

    def __init__(self, path: str, line: int | None, expected: str, found: str):
        self.path, self.line, self.expected, self.found = path, line, expected, found
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: expected {expected}, found {found}")

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, int | None, str, str]]:
        return FormatError, (self.path, self.line, self.expected, self.found)


class ModelError(BucketflowError):
    """A model, evidence or query that contradicts itself (an unknown variable, a state out of range)."""


class BudgetError(BucketflowError):
    """A plan that does not fit its budget; raised before anything runs, with both numbers."""

    exit_code = 3


class IncompatibleRunError(BucketflowError):
    """A run directory that belongs to another model, query or version, or that cannot be used."""


class StoppedError(BucketflowError):
    """A run that stopped before its answer and can be resumed: a full disk, Ctrl-C, a lost cluster."""

    exit_code = 4


class InternalError(BucketflowError):
    """An answer that failed its own check: a bug, never presented as an answer."""

    exit_code = 1


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[None]:
    """Turn a failure to write a file into one sentence.

    Raises
    ------
    ModelError
        Naming the file and the reason.
    """
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
