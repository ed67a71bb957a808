"""Models of launches beside the rates that they were learnt with: kept as plain numbers, checked, put in force."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from ...tasks.learnt.learnt_launches import LaunchPolicy, LearntLaunches, Place, launches_from, put_in_force
from ...tasks.steps.light_dataclass import dataclass
from . import cpu as rate_files

_PACKAGE: Final = Path(__file__).parents[2]
# Sources of the kernels, of their choice, and of the models of steps.
_SOURCES: Final = ("tasks/steps", "tasks/cpu", "tasks/gpu", "tasks/learnt")
_ENTRY: Final = "launches"


@dataclass(frozen=True)
class KnownLaunches:
    """A model that may be used, or why none is.

    Parameters
    ----------
    model : LearntLaunches, optional
    text : str
        One line about it; empty where nothing is stored.
    """

    model: LearntLaunches | None = None
    text: str = ""


@cache
def kernel_fingerprint() -> str:
    """Return a fingerprint of the sources of the kernels and of their choice."""
    from hashlib import sha256

    digest = sha256()
    for folder in _SOURCES:
        for path in sorted((_PACKAGE / folder).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def place_name(place: Place) -> str:
    """Return under which name rates of this machine, or of its current device, are kept."""
    if place == "cpu":
        return rate_files.machine()
    from .device import device_name

    return device_name()


def keep_launches(name: str, model: Mapping[str, Any] | None) -> Path:
    """Keep a model beside a machine's or a device's rates, or forget that which was kept; return the file."""
    entry = None if model is None else {**model, "device": name, "kernels": kernel_fingerprint()}
    rate_files.write(name, {_ENTRY: entry})
    return rate_files.path_of(name)


# The object built from the last entry read, for each place; it is reused until the file changes.
_MADE: Final[dict[Place, tuple[Any, KnownLaunches]]] = {}


def known_launches(place: Place) -> KnownLaunches:
    """Return the model that is kept for this machine or its current device, if it may be used."""
    if not LaunchPolicy.current().uses_stored:
        return KnownLaunches()
    name = place_name(place)
    entry = rate_files.read(name).get(_ENTRY)
    if entry is None:
        return KnownLaunches()
    before = _MADE.get(place)
    if before is None or before[0] is not entry:
        before = _MADE[place] = entry, _checked(entry, name)
    return before[1]


def _checked(entry: Any, name: str) -> KnownLaunches:
    again = "`bucketflow tune` measures them again"
    try:
        if entry["device"] != name:
            return KnownLaunches(None, f"by the rules: the stored rates were learnt on another device; {again}")
        if entry["kernels"] != kernel_fingerprint():
            return KnownLaunches(None, f"by the rules: the stored rates were learnt from other kernels; {again}")
        model = launches_from(entry)
        text = f"learnt from {int(entry['steps']):,} steps by {entry['regression']!s:.40}"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return KnownLaunches(None, f"by the rules: the stored file holds no rates; {again}")
    return KnownLaunches(model, text + ("" if model.chooses else "; launches follow the rules"))


def use_launches(place: Place) -> None:
    """Let the model that is kept choose and predict from now on in this process, where it may be used."""
    put_in_force(place, known_launches(place).model)
