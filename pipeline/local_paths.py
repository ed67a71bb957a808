"""Paths on this machine: a URL is refused by one sentence where only a local path works."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import ModelError

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
