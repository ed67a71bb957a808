"""Where a server is, in files that its user alone can read: an address, a token, and a lock that it holds."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from io import FileIO
from pathlib import Path

from ...cluster.version import install_hint
from ...storage.faults import file_fault
from ...storage.files import UntrustedError, cache_folder, check_folder, opened, write_all
from ...storage.locks import PAUSE_SECONDS, open_lock, try_lock
from ..errors import BucketflowError, unreadable

_OWN_FILE = stat.S_IRUSR | stat.S_IWUSR
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LEAST_TOKEN, _MOST_TOKEN = 20, 1000
_NAME, _WARM = "server", "server-"
# A process that checks whether a server is alive holds the lock for a moment.
_TRIES = 5
# Variables of the environment on which answers, or how they are found, may depend.
_STEERING = ("BUCKETFLOW_", "CUDA_", "DASK_", "MKL_", "NUMBA_", "OMP_", "OPENBLAS_NUM_THREADS", "PYTHON", "XDG_")


@dataclass(frozen=True)
class ServerFolder:
    """A folder of one server.

    Parameters
    ----------
    path : Path
        Made, for its user alone, when a server starts.
    """

    path: Path

    @property
    def token_file(self) -> Path:
        """The file with the token, of mode 0600."""
        return self.path / "token"

    @property
    def url_file(self) -> Path:
        """The file with the address, such as ``http://127.0.0.1:34567``."""
        return self.path / "url"

    @property
    def certificate_file(self) -> Path:
        """A copy of the certificate of a server that speaks HTTPS, by which this machine knows the server."""
        return self.path / "certificate.pem"

    @property
    def log_file(self) -> Path:
        """Standard error of a server started in the background."""
        return self.path / "log"

    def lock(self) -> FileIO | None:
        """Take the lock that a server holds while it lives; None where one does.

        Raises
        ------
        BucketflowError
            If others than this user can change or read what is in the folder.
        """
        try:
            os.makedirs(self.path, mode=stat.S_IRWXU, exist_ok=True)
        except OSError as error:
            raise BucketflowError(f"cannot make {self.path}: {file_fault(error, self.path, 'write')}") from None
        self._check()
        file = open_lock(self.path)
        for _ in range(_TRIES):
            if try_lock(file):
                return file
            time.sleep(PAUSE_SECONDS)
        file.close()
        return None

    def wait_for_end(self) -> None:
        """Wait until no server holds the lock."""
        with suppress(OSError), open_lock(self.path) as file:
            while not try_lock(file):
                time.sleep(PAUSE_SECONDS)

    def is_served(self) -> bool:
        """Whether a server is alive or starting; files of a killed server do not count."""
        if not self.path.is_dir():
            return False
        with suppress(OSError), open_lock(self.path) as file:
            return not try_lock(file)
        return False

    def address(self) -> tuple[str, str] | None:
        """Return URL and token of the server; None where there is none, or where it is still starting.

        Raises
        ------
        BucketflowError
            If others than this user can change or read what is in the folder.
        """
        if not self.is_served():
            return None
        self._check()
        try:
            return self._read(self.url_file), self._read(self.token_file)
        except FileNotFoundError:
            return None

    @contextmanager
    def announced(self, url: str, token: str, certificate: str | None = None) -> Iterator[None]:
        """Let clients find a server that holds the lock, until the block ends."""
        texts = {self.token_file: token.encode(), self.url_file: url.encode()}  # the URL last: then it can be asked
        if certificate is not None:
            texts = {self.certificate_file: Path(certificate).read_bytes(), **texts}
        try:
            for path, text in texts.items():
                path.unlink(missing_ok=True)
                with FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_FILE), "w") as file:
                    write_all(file, memoryview(text))
            yield
        finally:
            for path in texts:
                path.unlink(missing_ok=True)

    def _check(self) -> None:
        try:
            check_folder(self.path, (os.geteuid(), 0))
            _check_private(self.path, self.path.stat())
        except UntrustedError as error:
            raise BucketflowError(f"no server can use {self.path}, because {error}") from None

    def _read(self, path: Path) -> str:
        with opened(path) as file:
            try:
                _check_private(path, os.fstat(file.fileno()))
            except UntrustedError as error:
                raise BucketflowError(f"no server can use {self.path}, because {error}") from None
            return file.readall().decode()


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise UntrustedError(f"{path} belongs to another user")
    if status.st_mode & _OTHERS:
        raise UntrustedError(f"others may use {path}, whose mode is {stat.S_IMODE(status.st_mode):04o}")


def read_token(path: str) -> str:
    """Return the token in a file, without the end of its line.

    Raises
    ------
    BucketflowError
        If everyone can read the file, or it holds no token.
    """
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise BucketflowError(f"{path}: everyone on this machine can read the token; chmod o-rwx {path}")
            token = file.read(_MOST_TOKEN + 1).strip()
    except OSError as error:
        raise unreadable(path, error, "; write a token to it, e.g. openssl rand -hex 32") from None
    except ValueError:
        token = ""
    if not (_LEAST_TOKEN <= len(token) <= _MOST_TOKEN and token.isprintable() and " " not in token):
        expected = f"a token of {_LEAST_TOKEN} to {_MOST_TOKEN} ASCII characters without blanks"
        raise BucketflowError(f"{path}: {expected} is expected; write one, e.g. openssl rand -hex 32")
    return token


def check_installed(command: str) -> None:
    """Check that the packages of the extra are installed.

    Raises
    ------
    BucketflowError
        If they are not.
    """
    if any(find_spec(package) is None for package in ("uvicorn", "starlette")):
        raise BucketflowError(f"{command} needs the packages uvicorn and starlette: {install_hint('serve')}")


def default_folder() -> ServerFolder:
    """Return the folder of the server that a user starts."""
    return ServerFolder(cache_folder() / _NAME)


def warm_folder(version: str, program: str) -> ServerFolder:
    """Return the folder of the server that ``--keep-warm`` starts for this program and environment."""
    steering = sorted((name, value) for name, value in os.environ.items() if name.startswith(_STEERING))
    known = sha256(repr((version, program, steering)).encode(errors="backslashreplace")).hexdigest()
    return ServerFolder(cache_folder() / f"{_WARM}{known[:16]}")


def all_folders() -> list[ServerFolder]:
    """Return the folders of all servers of this user."""
    return [default_folder(), *map(ServerFolder, sorted(cache_folder().glob(f"{_WARM}*")))]
