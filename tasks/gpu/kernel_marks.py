"""Marks of the CUDA kernels that were compiled before, so that a plan can be priced before a device is started.

CuPy keeps machine code on disk. It names the files by what NVRTC says, and loading NVRTC and CuPy takes a second.
Therefore an empty file, a mark, stands for each compiled source. Its name is a digest of the source, of CuPy's version,
of the driver and of the models of GPUs. Marks are in CuPy's own folder, so they disappear together with its files.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_DRIVER: Final = Path("/proc/driver/nvidia")
_VERSION: Final = re.compile(r"__version__ = '([^']+)'")


def is_marked(source: str) -> bool:
    """Whether a source was compiled for this machine's devices, and its code is still on disk."""
    folder = _folder()
    return folder is not None and (folder / _name(source, _platform(_cupy_version()))).exists()


def mark(source: str) -> None:
    """Note that a source was compiled; nothing happens where CuPy's folder cannot be written to."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _name(source, _platform(_cupy_version()))).touch()


def _folder() -> Path | None:
    """Return the folder of marks; None if CuPy keeps no code on disk."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    given = os.environ.get("CUPY_CACHE_DIR")
    return Path(given or os.path.expanduser("~/.cupy/kernel_cache")) / "bucketflow"


@lru_cache(maxsize=256)  # each join of sparse tables looks at the same sources
def _name(source: str, platform: str) -> str:
    from hashlib import blake2b

    return blake2b(source.encode(), key=platform.encode()[:64], digest_size=16).hexdigest()


@cache
def _platform(version: str) -> str:
    """Return a digest of what machine code depends on besides its source: CuPy, the driver, the models of GPUs."""
    from hashlib import blake2b

    found = [version]
    for path in (_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))):
        with suppress(OSError):
            lines = path.read_text().splitlines()
            found += [line for line in lines if line.startswith(("Model", "NVRM"))]
    return blake2b("\n".join(found).encode(), digest_size=16).hexdigest()


def _cupy_version() -> str:
    """Return CuPy's version, without importing CuPy."""
    module = sys.modules.get("cupy")
    return _installed_version() if module is None else str(module.__version__)


@cache
def _installed_version() -> str:
    spec = find_spec("cupy")
    if spec is None or spec.origin is None:
        return ""
    for path in Path(spec.origin).parent.glob("_version.*"):
        if found := _VERSION.search(path.read_text()):
            return found[1]
    return ""
