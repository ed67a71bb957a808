"""Opening the pool that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ...cluster.address import ClusterError, ClusterLostError, verify_listening
from ...cluster.dask_pool import Begin, DaskPool
from ...cluster.pool import Pool, SerialPool
from ...storage import ledger
from ...storage.run_folder import sweep_partial_files
from ...storage.spec import disk_full
from ...storage.tables import create_group, drop_damaged_tables
from ...tasks.sweeps.program import pick
from ..errors import BucketflowError, StoppedError
from ..machine.resources import Resources


class DaskPools(AbstractContextManager[Pool]):
    """Opens the client that was asked for and closes it if it was opened here.

    With GPUs, ``at_a_time`` is how many tasks one device has room for; ``begins`` submit calls that are several tasks.
    """

    def __init__(
        self,
        resources: Resources,
        at_a_time: int = 1,
        begins: Mapping[Callable[..., Any], Begin] | None = None,
    ):
        options, self._begins = resources.asked, begins
        self._resources = resources
        self._at_a_time = at_a_time
        self._opened: AbstractContextManager[Any]
        if options.remote:
            from ...cluster.connect import client_of

            self._opened = client_of(options.client, options.scheduler)
        elif resources.gpu_count:
            from ...cluster.gpus import gpu_client

            self._opened = gpu_client(resources.gpu_count)
        else:
            from ...cluster.connect import local_client

            self._opened = local_client(options.workers or 1, told_address if options.dashboard else None)

    def __enter__(self) -> Pool:
        from uuid import uuid4

        try:
            client, key = self._opened.__enter__(), uuid4().hex[:8]
            asked = self._resources.asked
            limits = asked.priority, asked.most_workers, self._begins
            if not self._resources.gpu_count:
                return DaskPool(client, key, *limits)
            addresses = [worker.address for worker in self._resources.gpu_workers]
            from ...cluster.gpus import GpuPool

            return GpuPool(client, key, addresses, self._at_a_time, (pick,), *limits)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    def __exit__(self, *details: Any) -> bool | None:
        closed = self._opened.__exit__(*details)
        if isinstance(details[1], ClusterLostError):
            raise self._lost(details[1]) from None
        return closed

    def _lost(self, error: ClusterLostError) -> BucketflowError:
        folder = self._resources.asked.folder
        if folder is not None:
            return StoppedError(f"{error}; continue with: bucketflow resume {folder}")
        return BucketflowError(f"{error}; ask again once there are workers, with --workdir DIR to keep finished work")


def told_address(address: str) -> None:
    """Print where Dask's page is, at once: it goes with the workers."""
    print(f"bucketflow: Dask's dashboard is at {address} while workers run", file=sys.stderr, flush=True)


def width_of(resources: Resources) -> int:
    """Return how many tasks run at the same time: one a GPU, or as many as the workers have threads."""
    if resources.gpu_count or not resources.asked.remote:
        return resources.gpu_count or resources.asked.workers or 1
    with DaskPools(resources) as pool:
        return pool.width


@contextmanager
def serial_pool(resources: Resources) -> Iterator[Pool]:
    """A pool of this thread, for what is too small for a cluster; the address of one has to be right still.

    Raises
    ------
    BucketflowError
        If no scheduler is there.
    """
    asked = resources.asked
    if asked.scheduler is not None and asked.client is None:
        try:
            verify_listening(asked.scheduler)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None
    yield SerialPool()


def open_tables(pool: Pool, folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a Zarr group, and room for receipts beside it, in a folder that all workers of a pool share.

    Parameters
    ----------
    attributes : mapping
        What the group says of itself.

    Raises
    ------
    BucketflowError
        If a worker does not share the folder.
    DiskFullError
        If no space is left.
    """
    create_group(folder, attributes)
    ledger.folder_of(folder).mkdir(parents=True, exist_ok=True)
    try:
        pool.share(folder.absolute())
    except ClusterLostError:
        raise
    except ClusterError as error:
        raise BucketflowError(str(error)) from None
    except OSError as error:
        raise disk_full(error, f"no space left in {folder}") from None
    sweep_partial_files(folder)
    drop_damaged_tables(folder)
