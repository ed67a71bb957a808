"""Clusters that one of Dask's deployers starts for a run, as a file or a section of Dask's configuration says.

A run waits for the first worker, or for the reason why none comes.
"""

from __future__ import annotations

import logging
import math
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from os.path import isfile
from pathlib import Path
from shutil import which
from typing import Any

from .address import LOOK_SECONDS, ClusterError
from .connect import verify_workers
from .starting import children_ignore_interrupts, is_asked_for, kept_local, last_sentence, starting, without_web_server
from .version import install_hint

# Deployers start workers in the background, where tornado logs what they raise.
_LOGGER = "tornado.application"


class _Ear(logging.Handler):
    """Keeps what went wrong, a sentence each."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(last_sentence(error) if error else record.getMessage())


@contextmanager
def heard_failures() -> Iterator[Sequence[str]]:
    """Yield a list that collects failures in the background; they are not printed."""
    logger, ear = logging.getLogger(_LOGGER), _Ear()
    before = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [ear]
    try:
        yield ear.found
    finally:
        logger.propagate, logger.handlers = before


def wait_for_worker(cluster: Any, client: Any, name: str, patience_seconds: float, failures: Sequence[str]) -> None:
    """Wait for the first worker, for as long as one may still come.

    Parameters
    ----------
    cluster : distributed.deploy.Cluster
    client : distributed.Client
    name : str
        Of the cluster's class.
    patience_seconds : float
    failures : sequence of str
        Failures in the background so far.

    Raises
    ------
    ClusterError
        If none came, with the reason where one is known.
    """
    end = time.monotonic() + patience_seconds
    while True:
        left = end - time.monotonic()
        try:
            client.wait_for_workers(1, timeout=max(min(LOOK_SECONDS, left), 0.01))
            return
        except TimeoutError:
            if failures and not _is_under_way(cluster):
                raise ClusterError(f"{name} started no worker: {failures[-1]}") from None
        if left <= 0:
            raise ClusterError(f"{name} had no worker after {patience_seconds:g} s ('wait'){_why(cluster, failures)}")


def _is_under_way(cluster: Any) -> bool:
    """Whether a worker that was asked for may still come; clusters of other kinds do not say."""
    from distributed.core import Status

    workers = getattr(cluster, "workers", None)
    if not isinstance(workers, dict):
        return True
    states = (getattr(worker, "status", None) for worker in workers.values())
    return any(state in (Status.running, Status.starting) for state in states)


def _why(cluster: Any, failures: Sequence[str]) -> str:
    """Return the known reason why no worker has come: the last failure, or the waiting jobs of a batch system."""
    if failures:
        return f": {failures[-1]}"
    workers = getattr(cluster, "workers", None)
    ids = [getattr(worker, "job_id", None) for worker in workers.values()] if isinstance(workers, dict) else []
    known = [str(each) for each in ids if each is not None][:3]
    return f": the batch system has not started job {', '.join(known)}" if known else ""


# More are a slip of the pen, or meant to do harm.
MOST_WORKERS = 100_000
_KEYS = ("class", "arguments", "adapt", "scale", "wait")
# Extras that install the packages of deployers outside Dask.
_EXTRAS = {
    "asyncssh": "ssh",
    "dask_gateway": "gateway",
    "dask_jobqueue": "jobqueue",
    "dask_kubernetes": "kubernetes",
}


@dataclass(frozen=True)
class Deployment:
    """How a cluster is started.

    Parameters
    ----------
    made_by : str
        Dotted name of the class, such as ``dask_jobqueue.SLURMCluster``.
    arguments : mapping
        Of the class.
    adapt : mapping
        ``minimum`` and ``maximum`` workers, for the deployer's own ``adapt``.
    scale : int or None
        The number of workers.
    wait_seconds : float
        For the first worker.
    """

    made_by: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    adapt: Mapping[str, Any] = field(default_factory=dict)
    scale: int | None = None
    wait_seconds: float = 600.0


def read_deployment(name: str) -> Deployment:
    """Read a YAML file, or the section ``bucketflow.clusters.NAME`` of Dask's configuration.

    Raises
    ------
    ClusterError
        If it is neither, or says something else.
    """
    found = _file(Path(name)) if isfile(name) else _section(name)
    if not isinstance(found, Mapping) or not isinstance(found.get("class"), str):
        raise ClusterError(
            f"the cluster {name} has no 'class', the Python class that starts it, such as distributed.LocalCluster"
        )
    unknown = [key for key in found if key not in _KEYS]
    if unknown:
        raise ClusterError(f"the cluster {name} says {unknown[0]!r}; expected {', '.join(_KEYS)}")
    for key in ("arguments", "adapt"):
        if not isinstance(found.get(key) or {}, Mapping):
            raise ClusterError(f"the cluster {name} has {found[key]!r} for {key!r}; expected names with values")
    try:
        scale = None if found.get("scale") is None else int(found["scale"])
        wait = float(found.get("wait") or Deployment.wait_seconds)
    except (TypeError, ValueError, OverflowError):
        raise ClusterError(f"the cluster {name} needs numbers for 'scale' and 'wait'") from None
    if not 0 <= (scale or 0) <= MOST_WORKERS or not 0 < wait < math.inf:
        raise ClusterError(
            f"the cluster {name} needs a 'scale' of 0 to {MOST_WORKERS:,} workers and a 'wait' in seconds above 0"
        )
    return Deployment(found["class"], found.get("arguments") or {}, found.get("adapt") or {}, scale, wait)


def _file(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ClusterError(f"{path} is not a YAML file that describes a cluster: it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ClusterError(f"{path} is not text in UTF-8; save it as UTF-8") from None
    except (OSError, ValueError, OverflowError, yaml.YAMLError) as error:  # of text, dates and numbers too
        raise ClusterError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None


def _section(name: str) -> Any:
    from dask import config

    known = config.get("bucketflow.clusters", {}) or {}
    if name not in known:
        there = f"has {', '.join(known)}" if known else "has none"
        raise ClusterError(
            f"no cluster {name!r}: there is no such file, and bucketflow.clusters in Dask's configuration {there}"
        )
    return known[name]


@contextmanager
def deployed_client(name: str) -> Iterator[Any]:
    """Start a cluster, yield its client once there is a worker, and stop it at the end.

    Raises
    ------
    ClusterError
        If it cannot be started, or no worker comes.
    """
    from distributed import Client

    how = read_deployment(name)
    with ExitStack() as opened:
        with starting(how.made_by), heard_failures() as failures:
            with children_ignore_interrupts():
                cluster = _started(how)
            opened.callback(_close, cluster)
            _scale(cluster, how)
            client = opened.enter_context(Client(cluster, set_as_default=False))
            wait_for_worker(cluster, client, how.made_by, how.wait_seconds, failures)
        verify_workers(client)
        yield client


def _close(cluster: Any) -> None:
    with suppress(AssertionError):  # Dask's, last of all, where a worker was never started
        cluster.close()


def _scale(cluster: Any, how: Deployment) -> None:
    if how.adapt:
        # a command waits for the first worker before it sends any task
        first = {} if "minimum_jobs" in how.adapt else {"minimum": max(1, int(how.adapt.get("minimum") or 1))}
        cluster.adapt(**{**how.adapt, **first})
    elif how.scale is not None:
        cluster.scale(how.scale)


def _started(how: Deployment) -> Any:
    made_by = _deployer(how.made_by)
    _verify_commands(how.made_by, made_by)
    try:
        cluster = made_by(**kept_local(made_by, how.arguments))
    except Exception as error:  # every deployer has its own
        hint = _EXTRAS["asyncssh"] if "asyncssh" in str(error) else ""
        raise ClusterError(f"{how.made_by} did not start a cluster: {last_sentence(error)}{_hint(hint)}") from None
    if not is_asked_for(how.arguments):
        without_web_server(cluster)
    return cluster


def _deployer(name: str) -> Any:
    """Import what starts a cluster."""
    module, _, attribute = name.rpartition(".")
    try:
        with same_way_to_stop():
            return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        hint = _hint(_EXTRAS.get(module.partition(".")[0], ""))
        raise ClusterError(f"{name} is not installed here ({error}){hint}") from None


def _hint(extra: str) -> str:
    return f"; {install_hint(extra)}" if extra else ""


def _verify_commands(name: str, made_by: Any) -> None:
    """Make sure that the commands of a batch system are here, which dask-jobqueue submits and cancels jobs with."""
    job = getattr(made_by, "job_cls", None)
    for command in (getattr(job, "submit_command", None), getattr(job, "cancel_command", None)):
        program = shlex.split(command)[0] if command else ""
        if program and which(program) is None:
            raise ClusterError(
                f"{name} needs the command {program}, which is not on the PATH here: "
                "start bucketflow on a machine that has the commands of the batch system"
            )


@contextmanager
def same_way_to_stop() -> Iterator[None]:
    """Restore the handler of Ctrl-C afterwards: dask-jobqueue makes Ctrl-C end the process with exit code 0."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
