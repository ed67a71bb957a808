"""Opening a Dask client: a local cluster of single-threaded processes, or a scheduler's address."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from . import address as addresses
from .address import ANSWER_SECONDS, ClusterLostError, verify_listening
from .address import ClusterError as ClusterError
from .starting import LOOPBACK, NO_DASHBOARD, UNSAMPLED, children_ignore_interrupts, starting, without_web_server
from .version import install_hint
from .worker_facts import worker_facts

T = TypeVar("T")


@contextmanager
def local_client(workers: int, on_dashboard: Callable[[str], None] | None = None) -> Iterator[Any]:
    """Start ``workers`` processes of one thread each and yield their client; stop them on the way out.

    Dask's own memory limit is off: plans keep their budgets themselves, and a worker that pauses or spills
    behind their back only makes them wrong.

    Parameters
    ----------
    on_dashboard : callable, optional
        Serve Dask's page meanwhile, for this machine only, and call this with its address.

    Raises
    ------
    ClusterError
        If they do not start, for example because each worker would run the calling script again, or if the packages of
        Dask's dashboard are missing.
    """
    if on_dashboard is not None:
        verify_dashboard()
    from dask import config
    from distributed import Client, LocalCluster

    def cluster() -> Any:
        with config.set(UNSAMPLED if on_dashboard is None else {}):
            return LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address=None if on_dashboard is None else LOOPBACK,
                worker_dashboard_address=None,
                scheduler_kwargs=NO_DASHBOARD if on_dashboard is None else {},
                silence_logs=logging.CRITICAL,
            )

    served = on_dashboard is not None
    with started(cluster, f"{workers} worker processes", served=served) as opened, Client(opened) as client:
        if on_dashboard is not None:
            on_dashboard(str(opened.dashboard_link))
        yield client


def verify_dashboard() -> None:
    """Make sure that Dask has what serves its page.

    Raises
    ------
    ClusterError
        If bokeh is missing.
    """
    if find_spec("bokeh") is None:
        raise ClusterError(f"Dask's pages need bokeh: {install_hint('report')}")


def verify_report(file: Path) -> None:
    """Make sure that Dask can write its report to a file.

    Raises
    ------
    ClusterError
        If bokeh is missing, or the file cannot be written.
    """
    verify_dashboard()
    try:
        file.open("a").close()
    except OSError as error:
        raise ClusterError(f"{file}: {error.strerror}; name another file for Dask's report") from None


@contextmanager
def reported(client: Any, file: Path) -> Iterator[None]:
    """Write Dask's report of the tasks of a cluster during the block, as an HTML page."""
    from distributed import performance_report

    # above all frames: the report would show this function as the code that ran
    report = performance_report(filename=str(file), stacklevel=1_000_000)
    with client.as_current():
        report.__enter__()
    try:
        yield
    finally:
        if client.status == "running":  # otherwise the scheduler took the facts along
            with client.as_current():
                report.__exit__(None, None, None)


@contextmanager
def started(cluster: Callable[[], Any], what: str, *, served: bool = False) -> Iterator[Any]:
    """Start a cluster of processes of this machine, a second time where one of them dies meanwhile; stop it at the end.

    Parameters
    ----------
    cluster : callable
        Starts the processes.
    what : str
        They, in words.
    served : bool
        Whether the scheduler's page stays open.

    Raises
    ------
    ClusterError
        If one dies again.
    """
    with ExitStack() as opened:
        with starting(what), children_ignore_interrupts():
            try:
                found = cluster()
            except _NOT_STARTED:  # a process may fail for a passing reason
                found = cluster()
            opened.enter_context(found)
        if not served:
            without_web_server(found)
        yield found


# Exceptions that Dask raises if a process that it started is gone.
_NOT_STARTED = (RuntimeError, OSError, TimeoutError)


def client_of(given: Any, address: str | None, *, with_workers: bool = True) -> AbstractContextManager[Any]:
    """The client that the caller gave, or one of the scheduler at an address.

    Raises
    ------
    ClusterError
        If the client is asynchronous. On entering, if no scheduler answers there, or if it has no workers that can be
        used and some are needed.
    """
    if given is not None:
        verify_synchronous(given)
        return nullcontext(given)
    return remote_client(str(address)) if with_workers else connection(str(address))


def verify_synchronous(client: Any) -> None:
    """Refuse an asynchronous client where this thread runs its event loop, which every call would block.

    Raises
    ------
    ClusterError
    """
    if getattr(client, "asynchronous", False):
        raise ClusterError(
            "the client is asynchronous, and this call would block its event loop: await bucketflow.asolve or "
            "bucketflow.amarginals, or give a distributed.Client without asynchronous=True"
        )


@contextmanager
def remote_client(address: str) -> Iterator[Any]:
    """Connect to a running scheduler and yield its client.

    Raises
    ------
    ClusterError
        If nothing answers there, no worker is attached, or the workers cannot import bucketflow.
    """
    with connection(address, addresses.LISTENING_SECONDS) as client:
        verify_workers(client)
        try:
            yield client
        except ClusterLostError:
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it would say the same once more
            raise


@contextmanager
def connection(address: str, patience_seconds: float = 0.0) -> Iterator[Any]:
    """Connect to a scheduler, with or without workers, and yield its client.

    Raises
    ------
    ClusterError
        If nothing answers there.
    """
    from distributed import Client

    verify_listening(address, patience_seconds)
    if address.startswith("tls://"):
        verify_certificates(address)
    try:
        with addresses.waiting_for(
            f"waiting for the Dask scheduler at {address}, whose port is open but does not answer yet"
        ):
            client = Client(address, timeout=max(patience_seconds, ANSWER_SECONDS), set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(addresses.unanswered(address, str(error))) from None
    with client:
        yield client


class Link:
    """Asks a scheduler that may be gone again and again, over one connection.

    Parameters
    ----------
    given : distributed.Client, optional
        Used as long as it is connected.
    """

    def __init__(self, given: Any = None):
        self._given = given
        self._kept: Any = None
        self._address = ""
        self._opened = ExitStack()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def client(self, address: str) -> Any:
        """Return a client of a scheduler; None where that is gone."""
        if self._given is not None and self._given.status == "running":
            return self._given
        if self._kept is None or self._kept.status != "running" or self._address != address:
            self._opened.close()
            self._kept = None
            try:
                self._kept, self._address = self._opened.enter_context(connection(address)), address
            except ClusterError:
                return None
        return self._kept

    def asked(self, address: str, question: Callable[[Any], T]) -> T | None:
        """Return the result of a function called with a client; None if the scheduler is gone or disappears."""
        client = self.client(address)
        try:
            return None if client is None else question(client)
        except OSError:
            return None


def verify_certificates(address: str) -> None:
    """Verify that this process and a scheduler accept each other's certificates from Dask's configuration.

    Parameters
    ----------
    address : str
        A TLS address of a scheduler.

    Raises
    ------
    ClusterError
        If there are none, or one side refuses.
    """
    from ssl import SSLError

    from distributed.security import Security

    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        raise ClusterError(f"the certificates for {address} cannot be used: {error}") from None
    if context is None:
        raise ClusterError(
            f"{address} needs certificates: name them in Dask's configuration, distributed.comm.tls.ca-file and "
            "distributed.comm.tls.client.cert and .key"
        )
    try:
        place = addresses.host_and_port(address)
        with (
            socket.create_connection(place, timeout=ANSWER_SECONDS) as plain,
            context.wrap_socket(plain) as secured,
        ):
            accepted = secured.recv(1)  # a certificate of ours that is refused is refused only now
    except SSLError as error:
        raise ClusterError(
            f"{address} and this process do not accept each other's certificates ({error.reason or error})"
        ) from None
    except OSError as error:
        raise ClusterError(addresses.unanswered(address, error.strerror or str(error))) from None
    if not accepted:
        raise ClusterError(f"{address} refuses our certificate")


def verify_workers(client: Any, patience_seconds: float | None = None) -> None:
    """Make sure that there are workers, and that all have this build of the package.

    Raises
    ------
    ClusterError
        If there are none, or naming a worker with another build.
    """
    try:
        with addresses.waiting_for(f"the scheduler at {client.scheduler.address} has no workers yet; waiting for one"):
            patience = addresses.PATIENCE_SECONDS if patience_seconds is None else patience_seconds
            client.wait_for_workers(1, timeout=patience)
    except TimeoutError:
        place = client.scheduler.address
        raise ClusterError(f"the scheduler at {place} has no workers; start some: dask worker {place}") from None
    worker_facts(client)


def verify_shared(client: Any, folder: Any) -> None:
    """Make sure that every worker sees what this process writes into a folder, and the other way round.

    Parameters
    ----------
    client : distributed.Client
    folder : Path or ObjectPath

    Raises
    ------
    ClusterError
        Naming a worker that does not.
    """
    token = uuid.uuid4().hex
    path = folder / f"view-{token}"
    path.write_text(token)
    try:
        for worker, answer in client.run(_looked_into, path, on_error="return").items():
            theirs = path.with_name(answer) if isinstance(answer, str) else None
            if theirs is None or _read(theirs) != token:
                why = f" ({answer})" if isinstance(answer, Exception) else ""
                advice = "give a --workdir on a file system that all workers have under the same path"
                if not isinstance(folder, Path):
                    advice = "give every worker the same credentials and address of the object store"
                raise ClusterError(f"worker {worker} does not share {folder} with this process{why}; {advice}")
    finally:
        for left in folder.glob(f"view-{token}*"):
            left.unlink(missing_ok=True)


def _looked_into(path: Any) -> str | None:
    """On a worker: copy the client's token into a file of its own and return that file's name."""
    token = _read(path)
    if token is None:
        return None
    theirs = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    theirs.write_text(token)
    return str(theirs.name)


def _read(path: Any) -> str | None:
    try:
        return str(path.read_text())
    except FileNotFoundError:
        return None
