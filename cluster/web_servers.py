"""The web servers of Dask's schedulers and workers: only this machine reaches them, unless somebody asks for more.

Dask starts one in each scheduler and worker, without a dashboard too, and by default on all addresses of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Any free port that other machines do not reach.
LOOPBACK: Final = "127.0.0.1:0"
NO_DASHBOARD: Final = {"dashboard": False, "dashboard_address": LOOPBACK}

_OPTION: Final = "--dashboard-address"


def without_web_server(cluster: Any) -> None:
    """Close the port on which a scheduler of this process serves its figures: nobody was told of it."""
    server = getattr(getattr(cluster, "scheduler", None), "http_server", None)
    if server is not None:
        cluster.loop.add_callback(server.stop)


def is_asked_for(arguments: Any) -> bool:
    """Whether arguments of a deployer say where a scheduler or a worker serves its figures."""
    if isinstance(arguments, Mapping):
        return any(
            (str(name).endswith("dashboard_address") and value is not None) or is_asked_for(value)
            for name, value in arguments.items()
        )
    if isinstance(arguments, list | tuple):
        return any(str(text).startswith(_OPTION) for text in arguments)
    return False


def kept_local(made_by: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a deployer with which web servers are reached from their own machine only.

    Those of Kubernetes and Dask Gateway stand behind a network of their own, which needs to reach them.

    Parameters
    ----------
    made_by : class or function
        The deployer.
    arguments : mapping
        What its user says, which is kept where it says an address.
    """
    from distributed import LocalCluster, SSHCluster

    found = dict(arguments)
    if isinstance(made_by, type) and issubclass(made_by, LocalCluster):
        if found.get("dashboard_address") is None:
            found["scheduler_kwargs"] = {**NO_DASHBOARD, **(found.get("scheduler_kwargs") or {})}
    elif made_by is SSHCluster:
        for name, default in (("scheduler_options", NO_DASHBOARD), ("worker_options", {"dashboard_address": LOOPBACK})):
            found[name] = {**default, **(found.get(name) or {})}
    elif getattr(made_by, "job_cls", None) is not None:
        found |= _of_jobs(made_by.job_cls, found)
    return found


def _of_jobs(job: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a class of dask-jobqueue, which takes what its user does not say from Dask's configuration."""
    from dask import config

    section = f"jobqueue.{arguments.get('config_name') or job.config_name}"

    def said(name: str) -> Any:
        given = arguments.get(name)
        return config.get(f"{section}.{name.replace('_', '-')}", None) if given is None else given

    words = list(said("worker_extra_args") or said("extra") or ())
    if not is_asked_for(words):
        words += [_OPTION, LOOPBACK]
    return {"scheduler_options": {**NO_DASHBOARD, **(said("scheduler_options") or {})}, "worker_extra_args": words}
