"""The version of the package, and the name under which it is installed: the only place where either is written."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.2.0.dev0"

#: What ``pip`` calls the package that is imported as ``bucketflow``; the public package ``bucketflow`` is another one.
DISTRIBUTION: Final = "bucketflow-inference"


def install_hint(extra: str) -> str:
    """Return the commands that install an extra, from the index or in a checkout.

    Examples
    --------
    >>> install_hint("ssh")
    "pip install 'bucketflow-inference[ssh]', or in a checkout: pip install -e '.[ssh]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a checkout: pip install -e '.[{extra}]'"
