"""``--cluster``: a cluster that one of Dask's deployers starts for it."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from .options import Command

_option = click.option(
    "--cluster",
    metavar="FILE|NAME",
    help="Start a cluster as a YAML file, or bucketflow.clusters.NAME in Dask's configuration, says.",
)


def on_cluster(command: Command) -> Command:
    """Give a command the option, and the client of the cluster in place of it."""

    @_option
    @wraps(command)
    def run(*args: Any, cluster: str | None, **options: Any) -> None:
        if cluster is None:
            command(*args, **options)
            return
        if options.get("scheduler") or options.get("workers"):
            raise click.UsageError("--cluster starts a cluster; leave out --scheduler and --workers")
        from ...cluster.connections.address import ClusterError
        from ...cluster.connections.deployed import deployed_client
        from ..errors import BucketflowError

        try:
            with deployed_client(cluster) as client:
                command(*args, **options, client=client)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    return run
