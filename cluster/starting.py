"""Starting processes of a cluster: Ctrl-C does not reach them, and they do not run the user's script once more.

The web servers of Dask's schedulers and workers are reached from this machine only, unless the user asks for more.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final, NoReturn

from .address import ClusterError

#: Any free port that other machines do not reach.
LOOPBACK: Final = "127.0.0.1:0"
NO_DASHBOARD: Final = {"dashboard": False, "dashboard_address": LOOPBACK}

#: Settings of Dask without its samples of call stacks (every 10 ms) and of its event loops (every 20 ms). Only
#: the dashboard shows them. With them an idle process takes 2% of a core, without them less than 0.5%.
UNSAMPLED: Final = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}

_OPTION: Final = "--dashboard-address"


def without_web_server(cluster: Any) -> None:
    """Close the port of a local scheduler's web pages, because no user was told its address."""
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
        Arguments from the user; a given address is kept.
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


# Names the file in which processes that we start say that they are running the user's script again.
_TOLD = "BUCKETFLOW_STARTING"


@contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Start processes and threads that Ctrl-C does not reach, and that start others like them.

    A terminal sends it to all processes at once. It is for this one, which stops the others.
    """
    resource_tracker.ensure_running()  # where it is not, starting it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """Start processes; where one cannot start, say why in one sentence.

    A process that Python starts imports the script that is running first. A script that is not written for that asks
    its question again there: that process only leaves a note, and ends.

    Parameters
    ----------
    what : str
        The processes, in words.

    Raises
    ------
    ClusterError
        If a process did not start, for any reason.
    """
    verify_first_import()
    with tempfile.NamedTemporaryFile(prefix="bucketflow-start-") as told:
        os.environ[_TOLD] = told.name
        try:
            yield
        except Exception as error:  # Dask and its deployers have their own
            if script := told.read().decode():
                raise ClusterError(_unguarded(script)) from None
            if isinstance(error, ClusterError):
                raise
            raise ClusterError(f"{what} did not start: {last_sentence(error)}") from None
        finally:
            os.environ.pop(_TOLD, None)


def verify_first_import() -> None:
    """Stop here if this process only imports the script of its parent process, and the script requests workers.

    Raises
    ------
    ClusterError
        If the process is not one of ours; ours leave a note, and end without a word.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # Python itself asks that
        _end_here()


def _end_here() -> NoReturn:
    script = str(getattr(sys.modules.get("__mp_main__"), "__file__", None) or "the script")
    path = os.environ.get(_TOLD)
    if path is None:
        raise ClusterError(_unguarded(script))
    Path(path).write_text(script)
    os._exit(1)


def _unguarded(script: str) -> str:
    return (
        f"each worker is a Python process that runs {script} again from its first line: "
        "put the work of the script under if __name__ == '__main__':"
    )


def last_sentence(error: BaseException) -> str:
    """Return an exception's message in one line; the message of its root cause is preferred."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
