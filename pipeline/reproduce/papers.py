"""Papers as files: their measurements, the available figures, and the places of instances. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import ModelError

Kind = Literal["optimum", "bound", "propagation", "agents"]
Figure = int | float | tuple[float, float]
"""A published figure, or the range that is known of it."""

PAPERS = ("cube", "gpube", "gpudbe", "gottoli", "bp-layout", "bp-regression")


@dataclass(frozen=True)
class PaperRow:
    """One instance, or one problem that is drawn.

    Parameters
    ----------
    instance : str
        Its name in the paper.
    files : tuple of str
        Where it may be below the folder of instances, without ``.gz`` or ``.xz``.
    answer : int or None
        The optimum that is known.
    published : mapping of str to Figure
        By column.
    problem : mapping
        Arguments of :func:`bucketflow.generate`, where it is drawn.
    z : int or None
        Most variables of a mini-bucket.
    """

    instance: str
    files: tuple[str, ...] = ()
    answer: int | None = None
    published: Mapping[str, Figure] = field(default_factory=dict)
    problem: Mapping[str, Any] = field(default_factory=dict)
    z: int | None = None


@dataclass(frozen=True)
class PaperTable:
    """One table of a paper.

    Parameters
    ----------
    title : str
    kind : Kind
        Which experiment it is.
    columns : mapping of str to str
        Available published columns, and their headings.
    source : str
        Where the figures are from.
    missing : tuple of str
        Published columns that are not available.
    rows : tuple of PaperRow
    against : str or None
        The published column that our seconds are compared with; its name ends in ``_s`` or ``_ms``.
    """

    title: str
    kind: Kind
    columns: Mapping[str, str]
    source: str
    missing: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    against: str | None = None

    @property
    def published(self) -> int:
        """Number of available published figures, without known answers."""
        return sum(len(row.published) for row in self.rows)


@dataclass(frozen=True)
class Paper:
    """A paper: its title, the device of its figures, its claims, incomparable parts, and its tables."""

    name: str
    title: str
    device: str | None
    claims: tuple[str, ...]
    apart: str
    tables: tuple[PaperTable, ...]

    def only(self, instances: tuple[str, ...], sample: int | None) -> Paper:
        """Return the paper restricted to some instances, and to at most ``sample`` rows of each table.

        Raises
        ------
        ModelError
            If an instance is in no table.
        """
        known = dict.fromkeys(row.instance for table in self.tables for row in table.rows)
        if unknown := [name for name in instances if name not in known]:
            raise ModelError(f"{self.name} has no instance {unknown[0]!r}; there are {', '.join(known)}")
        tables = []
        for table in self.tables:
            rows = [row for row in table.rows if not instances or row.instance in instances]
            tables.append(replace(table, rows=tuple(rows[:sample])))
        return replace(self, tables=tuple(table for table in tables if table.rows))


def paper(name: str) -> Paper:
    """Return the paper of a name.

    Raises
    ------
    ModelError
        If there is none.
    """
    if name not in PAPERS:
        raise ModelError(f"no paper {name!r}; one of {', '.join(PAPERS)}")
    return read_paper(Path(__file__).with_name(f"{name}.json"))


def read_paper(path: Path) -> Paper:
    """Read a paper's file.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tables = tuple(map(_table, found["tables"]))
        return Paper(path.stem, found["paper"], found["device"], tuple(found["claims"]), found["apart"], tables)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{path.name} is not a paper file: {type(error).__name__} {error}") from error


def _table(found: Mapping[str, Any]) -> PaperTable:
    kind = found["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"no kind of experiment {kind!r}")
    rows = [replace(row, z=z) for row in _rows(found) for z in found.get("z", [row.z])]
    columns, missing, against = found["columns"], tuple(found["missing"]), found.get("against")
    return PaperTable(found["title"], kind, columns, found["source"], missing, tuple(rows), against)


def _rows(found: Mapping[str, Any]) -> Iterator[PaperRow]:
    for row in found.get("rows", ()):
        published = {k: tuple(v) if isinstance(v, list) else v for k, v in row.get("published", {}).items()}
        yield PaperRow(row["instance"], tuple(row["files"]), row.get("answer"), published)
    for series in found.get("series", ()):
        yield from _drawn(series)


def _drawn(series: Mapping[str, Any]) -> Iterator[PaperRow]:
    """One problem for each combination of the values that a series lists."""
    varied = {key: values for key, values in series.items() if key != "kind"}
    for chosen in product(*varied.values()):
        point = dict(zip(varied, chosen, strict=True))
        z = point.pop("z", None)
        name = " ".join([series["kind"], *(f"{key}={value:g}" for key, value in point.items())])
        yield PaperRow(name, problem={"kind": series["kind"], "tightness": 0.5, **point}, z=z)


@dataclass(frozen=True)
class Instances:
    """A folder of instances, or none."""

    folder: Path | None

    def __post_init__(self) -> None:
        if self.folder is not None and not self.folder.is_dir():
            raise ModelError(f"no folder of instances {str(self.folder)!r}")

    @cached_property
    def _named(self) -> dict[str, Path]:
        """Files by their names, the first of each."""
        found: dict[str, Path] = {}
        for path in sorted(self.folder.rglob("*")) if self.folder else ():
            if path.is_file():
                found.setdefault(path.name, path)
        return found

    def path(self, row: PaperRow) -> Path | None:
        """Return where the instance of a row is: at one of its places, or anywhere under its name; None if nowhere."""
        if self.folder is None:
            return None
        names = [f"{file}{packed}" for file in row.files for packed in ("", ".gz", ".xz")]
        there = (path for name in names if (path := self.folder / name).is_file())
        anywhere = (self._named[name] for name in (Path(name).name for name in names) if name in self._named)
        return next(there, None) or next(anywhere, None)
