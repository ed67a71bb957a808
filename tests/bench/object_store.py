"""Chunks in an object store beside a plain copy and a local disk: ``python tests/bench/object_store.py [URL]``.

Without a URL an S3 server of this machine is started, which needs moto. Chunks are written with their receipts and read
with their checksums. A plain copy puts and gets the same bytes through the same library, one object after the other.
CPU seconds are those of this process, not of the server.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

import bucketflow
from bucketflow.storage import ledger
from bucketflow.storage.files import Place, remove_folder
from bucketflow.storage.object_store import ObjectPath
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.storage.tables import create_group
from bucketflow.tasks.boxes.stores import chunk_store
from tests.models import grid

TOTAL_BYTES = 1 << 25
CHUNK_BYTES = (1 << 12, 1 << 18, 1 << 22)
MOST_CHUNKS = 64
SHAPE = (9, 9, 4)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of some work."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def show(what: str, chunks: int, nbytes: int, spent: tuple[float, float]) -> None:
    """Print a line: rate, and milliseconds of wall and CPU a chunk."""
    wall, cpu = spent
    each = f"{1e3 * wall / chunks:8.2f} ms {1e3 * cpu / chunks:7.2f} CPU-ms a chunk"
    print(f"  {what:<28} {nbytes / wall / 1e6:8.1f} MB/s {each}", flush=True)


def plain(folder: ObjectPath, table: NDArray[Any]) -> None:
    """Copy the chunks of a table to a store and back, without checksums and receipts."""
    names = [folder / str(chunk) for chunk in range(len(table))]
    rows = [row.view(np.uint8).data for row in table]
    spent = timed(lambda: [name.put(row) for name, row in zip(names, rows, strict=True)])
    show("plain put", len(table), table.nbytes, spent)
    spent = timed(lambda: [np.frombuffer(name.read(), np.uint8).copy() for name in names])
    show("plain get", len(table), table.nbytes, spent)


def stored(what: str, folder: Place, table: NDArray[Any]) -> None:
    """Write a table with receipts, one chunk a task as boxes do, and read it."""
    spec = TableSpec("table", (0, 1), ("a", "b"), table.shape, frozenset((0,)), table.dtype.name)
    create_group(folder, {})
    ledger.folder_of(folder).mkdir(parents=True, exist_ok=True)
    store, receipts = chunk_store(folder), list[Receipt]()
    store.create(spec)

    def write() -> None:
        for number in range(len(table)):
            ((chunk, nbytes, checksum),) = store.save(spec, table[number : number + 1], [(number, 0)], {0: number})
            receipts.append(Receipt("table", chunk, nbytes, checksum, 0.1, 1, {}, time.time()))
            store.record(receipts[-1:])

    show(f"{what}, write", len(table), table.nbytes, timed(write))
    out = np.empty_like(table)
    show(f"{what}, read", len(table), table.nbytes, timed(lambda: store.load(spec, out, receipts, {})))
    assert (out == table).all()


def run(what: str, folder: Place) -> None:
    """Solve a grid whose tables stay in a folder."""
    model = grid(*SHAPE)
    spent = timed(lambda: bucketflow.solve(model, method="dense", fit="store", workdir=folder))
    receipts = ledger.load(folder / "tables").values()
    nbytes = sum(receipt.nbytes for receipt in receipts)
    print(f"  {what:<28} {spent[0]:.2f} s, {spent[1]:.2f} CPU-s, {len(receipts)} receipts, {nbytes / 1e6:.1f} MB")


@contextmanager
def server() -> Iterator[str]:
    """Start an S3 server and yield the URL of a bucket."""
    from tests.object_server import served

    with served() as make:
        bucket = make()
        os.environ.update(bucket.environment)
        # past the proxy, which takes longer than the server
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{bucket._proxy.behind}"
        yield bucket.url


def main(url: str) -> None:
    """Measure a store."""
    folder, rng = ObjectPath.of_url(f"{url.rstrip('/')}/bench-{os.getpid()}"), np.random.default_rng(0)
    with TemporaryDirectory() as local:
        for nbytes in CHUNK_BYTES:
            chunks = min(MOST_CHUNKS, TOTAL_BYTES // nbytes)
            for kind, most in (("costs below 1,000", 1000), ("random bits", 1 << 62)):
                table = rng.integers(0, most, (chunks, nbytes // 8))
                print(f"{chunks} chunks of {nbytes:,} bytes, {kind}")
                plain(folder / f"plain-{nbytes}-{most}", table)
                stored("object store", folder / f"stored-{nbytes}-{most}" / "tables", table)
                stored("local disk", Path(local) / f"stored-{nbytes}-{most}" / "tables", table)
        print("a run that stores all its tables")
        bucketflow.solve(grid(*SHAPE), method="dense")  # compiles
        run("object store", folder / "run")
        run("local disk", Path(local) / "run")
    remove_folder(folder)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        with server() as own:
            main(own)
