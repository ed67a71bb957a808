"""Put the package on the path of an editable install under its own name, which the checkout's folder need not have.

Everything else about the build stands in `pyproject.toml`.
"""

import os
import sys
from pathlib import Path
from runpy import run_path

from setuptools import setup

LINKS = Path(".editable")


def folder_with_link() -> str | None:
    """Return a folder that holds nothing but a link to the package, or None if the system makes no links.

    An editable install puts this folder on the path. Type checkers and editors then find `bucketflow` there: they do
    not run the import hook that setuptools installs otherwise.
    """
    link = LINKS / "bucketflow"
    try:
        LINKS.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.pardir, target_is_directory=True)
    except OSError:
        return None
    return str(LINKS)


links = folder_with_link() if "editable_wheel" in sys.argv else None
repository = run_path("cluster/version.py")["REPOSITORY"]
# the script's name keeps it out of the package, whose folder it stands in
setup(
    script_name="setup.py",
    package_dir={"": links} if links else {"bucketflow": "."},
    project_urls={"Repository": repository} if repository else {},
)
