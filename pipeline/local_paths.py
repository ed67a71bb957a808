"""Paths that users give: local paths, and URLs of object stores if a folder may be in a store.

Files of models, answers, circuits, drawings and reports are written completely or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote, urlsplit

from ..storage.faults import StorageError
from ..storage.files import Place, cache_folder
from ..storage.object_store import SCHEMES, ObjectPath
from .errors import ModelError, writing

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
# pathlib turns s3://bucket into s3:/bucket
_COLLAPSED_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


def url_scheme(path: str | os.PathLike[str]) -> str | None:
    """Return the scheme of a URL, or None for a local path.

    Examples
    --------
    >>> url_scheme("s3://bucket/run"), url_scheme(Path("s3://bucket/run")), url_scheme("models/a.uai")
    ('s3', 's3', None)
    """
    pattern = _URL if isinstance(path, str) else _COLLAPSED_URL
    found = pattern.match(os.fspath(path))
    return found["scheme"] if found else None


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a local path.

    Raises
    ------
    ModelError
        If it is a URL.
    """
    if (scheme := url_scheme(path)) is not None:
        raise ModelError(
            f"{os.fspath(path)} is a URL, and {scheme}:// is not supported here; give the path of a local or mounted "
            "file"
        )
    return Path(path)


def verify_cache_folder() -> None:
    """Refuse a cache folder that is a URL.

    Raises
    ------
    ModelError
    """
    try:
        cache_folder()
    except StorageError as error:
        raise ModelError(str(error)) from None


def folder_path(path: str | os.PathLike[str] | ObjectPath) -> Place:
    """Return the path of a folder of a run, a job or a batch, which may be the URL of an object store.

    Raises
    ------
    ModelError
        If the URL has another scheme, or names no bucket or no folder in it.

    Examples
    --------
    >>> str(folder_path("runs/a")), str(folder_path("file:///runs/a")), str(folder_path("s3://bucket/a"))
    ('runs/a', '/runs/a', 's3://bucket/a')
    """
    if isinstance(path, ObjectPath):
        return path
    if (scheme := url_scheme(path)) is None:
        return Path(path)
    if not isinstance(path, str):
        raise ModelError(f"{os.fspath(path)} was a URL before it became a Path, which drops a slash; give it as text")
    if scheme.lower() == "file" and not urlsplit(path).netloc:
        return Path(unquote(urlsplit(path).path))
    if scheme.lower() == "file":
        raise ModelError(f"{path} names a host; give file:///FOLDER for a folder of this machine")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{known}://" for known in (*SCHEMES, "file"))
        raise ModelError(f"{path} has the unknown scheme {scheme}://; give one of {known}, or a path")
    found = ObjectPath.of_url(path)
    if found.root.endswith("//") or not found.key:
        raise ModelError(f"{path} does not name a folder; give {scheme}://BUCKET/FOLDER")
    return found


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
