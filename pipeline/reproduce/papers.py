"""Papers as values: published figures row by row, and the measurements of ours that stand beside them. Pure.

The figures of all papers are in ``figures.json``, as printed; :mod:`.paper_tables` describes the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from ..errors import ModelError

Figure = int | float | str | None
"""A figure as printed: a number, a text such as ``oom``, or None where the paper prints nothing."""


@dataclass(frozen=True)
class Way:
    """One measurement of ours for each row of a table.

    Parameters
    ----------
    name : str
    experiment : str
        Its name in :data:`.experiments.EXPERIMENTS`.
    shown : mapping of str to str
        Our columns: measured figures, and their headings. A heading that ends in ``ms`` shows milliseconds.
    options : mapping
        Keywords of the public function.
    gpu : bool
        Whether a GPU is required.
    problem : mapping
        Arguments of :func:`bucketflow.generate`, for tables whose rows name no problem.
    """

    name: str
    experiment: str
    shown: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    gpu: bool = False
    problem: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times: published columns, or names of ways."""

    heading: str
    above: str
    below: str


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Parameters
    ----------
    instance : str
        The first figures of the row, which name it.
    published : mapping of str to Figure
        All figures of the row, by column.
    files : tuple of str
        Where the instance may be below the folder of instances, without ``.gz`` or ``.xz``.
    answer : int or None
        The known optimum.
    problem : mapping
        Arguments of :func:`bucketflow.generate`, where the instance is random.
    z : int or None
        Maximum number of variables of a mini-bucket.
    extra : bool
        Whether the row is measured with ``--all`` only.
    """

    instance: str
    published: Mapping[str, Figure] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    answer: int | None = None
    problem: Mapping[str, Any] = field(default_factory=dict)
    z: int | None = None
    extra: bool = False


@dataclass(frozen=True)
class PaperTable:
    """One table or figure of a paper.

    Parameters
    ----------
    title : str
    columns : tuple of str
        Published columns; the first ``keys`` of them name a row.
    rows : tuple of PaperRow
    ways : tuple of Way
    ratios : tuple of Ratio
    first : str
        Columns that a terminal shows, with ``|`` between them.
    notes : tuple of str
        What makes figures of the table comparable or incomparable.
    keys : int
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    ways: tuple[Way, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    first: str = ""
    notes: tuple[str, ...] = ()
    keys: int = 1

    @property
    def published(self) -> int:
        """Number of published numbers."""
        return sum(isinstance(each, int | float) for row in self.rows for each in row.published.values())


@dataclass(frozen=True)
class Paper:
    """A paper: its name here, its title, the device of its figures, its claims, differences, and its tables."""

    name: str
    title: str
    device: str
    claims: tuple[str, ...]
    differences: str
    tables: tuple[PaperTable, ...]

    def only(
        self, instances: tuple[str, ...] = (), sample: int | None = None, table: str = "", every: bool = True
    ) -> Paper:
        """Return a part of the paper.

        Parameters
        ----------
        instances : tuple of str
            Names of the rows; empty for all.
        sample : int or None
            Maximum number of rows of each table.
        table : str
            A part of the titles of the tables, in any case.
        every : bool
            Whether extra rows are included.

        Raises
        ------
        ModelError
            If an instance or a title is in no table.
        """
        tables = [each for each in self.tables if table.lower() in each.title.lower()]
        if not tables:
            raise ModelError(f"{self.name} has no table {table!r}; its tables are {_listed(self.tables)}")
        known = dict.fromkeys(row.instance for each in tables for row in each.rows)
        if unknown := [name for name in instances if name not in known]:
            raise ModelError(f"{self.name} has no instance {unknown[0]!r}; there are {', '.join(known)}")
        parts = []
        for each in tables:
            rows = [row for row in each.rows if row.instance in instances or (not instances and every >= row.extra)]
            parts.append(replace(each, rows=tuple(rows[:sample])))
        return replace(self, tables=tuple(part for part in parts if part.rows))


def _listed(tables: tuple[PaperTable, ...]) -> str:
    return ", ".join(repr(each.title) for each in tables)


@cache
def published_tables() -> Mapping[str, Any]:
    """Return the published figures: ``columns`` and ``rows`` of each table."""
    found: Mapping[str, Any] = json.loads(Path(__file__).with_name("figures.json").read_text(encoding="utf-8"))
    return found


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

    def path(self, *files: str) -> Path | None:
        """Return the first of some files that exists, packed or not: at its place, else anywhere under its name."""
        if self.folder is None:
            return None
        names = [f"{file}{packed}" for file in files for packed in ("", ".gz", ".xz")]
        there = (path for name in names if (path := self.folder / name).is_file())
        anywhere = (self._named[name] for name in (Path(name).name for name in names) if name in self._named)
        return next(there, None) or next(anywhere, None)


ANY: Final = Way("any", "optimum", {"answer": "optimum", "by": "engine", "seconds": "any engine s"})
ONE_CORE: Final = {"threads": 1, "tree": "bucket"}
WIDTH: Final = Way("width", "width", {"width": "w*"})
CORE: Final = Way("core", "optimum", {"seconds": "one core, dense s"}, {"method": "dense", **ONE_CORE})
DENSE_GPU: Final = Way(
    *("gpu", "optimum", {"seconds": "one GPU, dense s"}, {"method": "dense", "tree": "bucket"}), gpu=True
)
ROWS: Final = Way("rows", "optimum", {"seconds": "one core, rows s"}, {"representation": "rows", **ONE_CORE})
ROWS_GPU: Final = Way(
    *("gpu rows", "optimum", {"seconds": "one GPU, rows s"}, {"representation": "rows", "tree": "bucket"}), gpu=True
)
BOUND: Final = Way("bound", "bound", {"lower": "lower", "upper": "upper", "size": "mini-buckets"})
Z: Final = Way(
    *("z", "bound", {"lower": "lower", "upper": "upper", "quality": "lower / optimum", "seconds": "one core s"}),
    {"threads": 1},
)
Z_GPU: Final = Way("gpu z", "bound", {"seconds": "one GPU s"}, gpu=True)
TREE: Final = {
    **{"cliques": "cliques", "most": "max clique", "mean": "mean clique", "least": "min clique"},
    **{"separator": "max separator", "mean separator": "mean separator", "least separator": "min separator"},
}
JUNCTION: Final = Way(
    *("core", "propagation", {**TREE, "preprocessing": "preprocessing ms", "seconds": "one core ms"}),
    {"tree": "junction", "threads": 1},
)
OWN_TREE: Final = Way("own", "propagation", {"seconds": "own tree, all cores ms"})
JUNCTION_GPU: Final = Way(
    *("gpu", "propagation", {"graph": "one GPU, no transfers ms", "seconds": "one GPU, with transfers ms"}),
    {"tree": "junction"},
    gpu=True,
)
PROPAGATIONS: Final = (JUNCTION, OWN_TREE, JUNCTION_GPU)
AGENTS: Final = Way(
    *("agents", "agents", {"agent width": "DPOP width", "load": "network load", "seconds": "DPOP s"}), {"threads": 1}
)
AGENTS_GPU: Final = Way("gpu agents", "agents", {"seconds": "one GPU, DPOP s"}, {"threads": 1}, gpu=True)
ANY_POINT: Final = Way("any", "optimum", {"drawn": "problems", "seconds": "any engine s"})
