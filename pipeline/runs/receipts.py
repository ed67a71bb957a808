"""Slices in a run directory: the root tables of each leave a receipt, so that an interrupted run goes on after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...storage import ledger
from ...storage.spec import Receipt
from ...tasks.boxes.boxes import new_receipt
from ...tasks.boxes.codecs import Codec, packed_roots, root_table

T = TypeVar("T")

TABLE = "slices"

# Receipts are written in groups: a slice may take less time than a line of the ledger.
_GROUP_SECONDS = 0.1


def kept_roots(
    folder: Path, slices: int, codec: Codec[T], dtype: str, sweep: Callable[[Sequence[int]], Iterator[list[T]]]
) -> Iterator[list[Any]]:
    """Yield the root tables of every slice in order; those with a receipt are not swept again.

    Parameters
    ----------
    folder : Path
        Of the ledger.
    sweep : callable
        Yields the root tables of the given slices.
    """
    (folder / ledger.FOLDER).mkdir(parents=True, exist_ok=True)
    known = {key[1][0]: receipt for key, receipt in ledger.load(folder).items() if key[0] == TABLE}
    found = sweep([i for i in range(slices) if i not in known])
    waiting: list[Receipt] = []
    start = written = time.perf_counter()
    try:
        for i in range(slices):
            if i in known:
                yield [root_table(value, dtype) for value in known[i].value["roots"]]
                continue
            roots = next(found)
            waiting.append(new_receipt(TABLE, (i,), 0, 0, start, {"roots": packed_roots(codec, roots)}))
            start = time.perf_counter()
            if start - written > _GROUP_SECONDS:
                ledger.append(folder, waiting)
                waiting, written = [], start
            yield roots
    finally:
        if waiting:
            ledger.append(folder, waiting)
        ledger.sync(folder)
