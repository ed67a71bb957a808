"""Files that appear whole or not at all: of models, answers, circuits, drawings and reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from .errors import writing
from .local_paths import local_path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` once all is well; a device is written directly.

    Raises
    ------
    ModelError
        If the path is a URL, or the file cannot be made.
    """
    target = Path(os.path.realpath(local_path(path)))
    if os.path.exists(target) and not os.path.isfile(target):
        yield target
        return
    partial = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}")
    try:
        with writing(path):
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        yield partial
        with writing(path):
            partial.replace(target)
    except BaseException:
        with suppress(OSError):  # a folder that is read-only refuses this too, and why is said above
            partial.unlink()
        raise


@contextmanager
def whole_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Give a file of text to write, which takes the place of ``path`` once all is well.

    Raises
    ------
    ModelError
        If it cannot be written.
    """
    with (
        whole_file(path) as partial,
        writing(path),
        partial.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield file
