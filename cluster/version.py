"""The version of the package, the name under which it is installed, and the address of its repository.

No other file states one of them: the metadata and the site read them here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

__version__: Final = "0.2.0.dev0"

#: The name of the package for ``pip``. It is imported as ``bucketflow``; the public package named ``bucketflow`` is
#: another project.
DISTRIBUTION: Final = "bucketflow-inference"

#: The address of the repository, for the metadata, the site and the README; empty until it is known.
REPOSITORY: Final = ""


# What is installed of the package: not its tests, which a checkout has beside it.
_ROOMS: Final = ("cluster", "pipeline", "storage", "tasks")


@cache
def source_digest() -> str:
    """Return a digest of the package's Python files, which differs between any two commits that change one of them."""
    from hashlib import sha256

    root, digest = Path(__file__).parents[1], sha256()
    for path in (root / "__init__.py", *sorted(path for room in _ROOMS for path in (root / room).rglob("*.py"))):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def install_hint(extra: str) -> str:
    """Return the commands that install an extra, from the index or in a checkout.

    Examples
    --------
    >>> install_hint("ssh")
    "pip install 'bucketflow-inference[ssh]', or in a checkout: pip install -e '.[ssh]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a checkout: pip install -e '.[{extra}]'"
