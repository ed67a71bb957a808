"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import writing


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` once all is well; a device is written directly.

    Raises
    ------
    ModelError
        If the file cannot be made.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        yield target
        return
    with writing(path):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        os.close(handle)
    partial = Path(name)
    try:
        yield partial
        with writing(path):
            partial.chmod(0o666 & ~_umask())
            partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
