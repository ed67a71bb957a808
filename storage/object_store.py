"""Folders of object stores: the part of ``pathlib`` that run directories use, for URLs such as ``s3://bucket/run``.

An object is put whole or not at all, so it needs no partial file. A folder exists as soon as an object lies below it.
Every failure of a store becomes the ``OSError`` that a file system would raise, so callers handle both alike.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .faults import StoreError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")

#: Schemes of URLs that run directories, jobs and batches accept, beside local paths and ``file://``.
SCHEMES: Final = ("s3", "gs", "az", "memory")
# Requests of one process at the same time: a store answers many small requests in the time of one.
_REQUESTS = 16


class StaleObjectError(OSError):
    """An object that another process replaced or created first."""


class ObjectPath:
    """An object of a store, or a folder of objects.

    Parameters
    ----------
    root : str
        Scheme and bucket, such as ``"s3://bucket"``.
    key : str
        The path in the bucket.

    Examples
    --------
    >>> path = ObjectPath.of_url("s3://bucket/run/") / "plan.json"
    >>> str(path), path.name, str(path.parent)
    ('s3://bucket/run/plan.json', 'plan.json', 's3://bucket/run')
    """

    __slots__ = ("key", "root")

    def __init__(self, root: str, key: str):
        self.root = root
        self.key = key

    @classmethod
    def of_url(cls, url: str) -> ObjectPath:
        """Return the path of a URL."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        return cls(f"{scheme.lower()}://{bucket}", "/".join(filter(None, key.split("/"))))

    # names

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.key.rpartition("/")[2] or self.root

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> ObjectPath:
        """The folder that holds this object."""
        return ObjectPath(self.root, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.root, f"{self.key}/{name}" if self.key else name)

    def with_name(self, name: str) -> ObjectPath:
        """Return the path of an object in the same folder."""
        return self.parent / name

    def absolute(self) -> ObjectPath:
        """Return the path itself: every URL is absolute."""
        return self

    def __str__(self) -> str:
        return f"{self.root}/{self.key}"

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and (self.root, self.key) == (other.root, other.key)

    def __lt__(self, other: ObjectPath) -> bool:
        return (self.root, self.key) < (other.root, other.key)

    def __hash__(self) -> int:
        return hash((self.root, self.key))

    # what is there

    def exists(self) -> bool:
        """Whether there is such an object or folder."""
        try:
            self.version()
        except FileNotFoundError:
            return self.is_dir()
        return True

    def is_dir(self) -> bool:
        """Whether an object lies below this path."""
        return next(self._listed(), None) is not None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every object below this folder, by its path from here."""
        start = len(self.key) + 1 if self.key else 0
        return {meta["path"][start:]: meta["size"] for meta in self._listed()}

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the objects and folders of this folder."""
        return self.glob("*")

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield the objects and folders whose path from here matches a pattern, in order."""
        wanted = pattern.split("/")
        found = set[str]()
        for path in self.sizes():
            parts = path.split("/")[: len(wanted)]
            if len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)):
                found.add("/".join(parts))
        yield from (self / path for path in sorted(found))

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        with _requests(self) as obstore:
            for metas in obstore.list(_store(self.root), self.key or None):
                yield from metas

    # objects

    def read_bytes(self) -> bytes:
        """Return the content."""
        return bytes(self.read())

    def read(self) -> memoryview:
        """Return the content without a copy of it."""
        with _requests(self) as obstore:
            return memoryview(obstore.get(_store(self.root), self.key).bytes())

    def read_text(self) -> str:
        """Return the content as text."""
        return self.read_bytes().decode()

    def version(self) -> Mapping[str, str]:
        """Return what the store knows this version of the object by.

        Raises
        ------
        FileNotFoundError
            If there is no such object.
        """
        with _requests(self) as obstore:
            return _version(obstore.head(_store(self.root), self.key))

    def read_version(self) -> tuple[bytes, Mapping[str, str]]:
        """Return the content, and what the store knows its version by."""
        with _requests(self) as obstore:
            found = obstore.get(_store(self.root), self.key)
            return bytes(found.bytes()), _version(found.meta)

    def put(self, content: bytes | memoryview) -> None:
        """Replace the object."""
        with _requests(self) as obstore:
            obstore.put(_store(self.root), self.key, content)

    def create(self, content: bytes) -> Mapping[str, str]:
        """Put the object if it is absent; return its version.

        Raises
        ------
        StaleObjectError
            If it is there.
        """
        return self._put_if("create", content)

    def replace(self, content: bytes, version: Mapping[str, str]) -> Mapping[str, str]:
        """Replace one version of the object; return the new version.

        Raises
        ------
        StaleObjectError
            If another process replaced it.
        """
        return self._put_if({**version}, content)

    def _put_if(self, mode: Any, content: bytes) -> Mapping[str, str]:
        with _requests(self) as obstore:
            return _version(obstore.put(_store(self.root), self.key, content, mode=mode))

    def write_text(self, text: str) -> None:
        """Replace the object by text."""
        self.put(text.encode())

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists by its objects."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object; a store does not say whether it was there."""
        self._remove([self.key])

    def remove_all(self) -> None:
        """Remove every object below this folder."""
        self._remove([meta["path"] for meta in self._listed()])

    def _remove(self, keys: list[str]) -> None:
        with _requests(self) as obstore:
            if keys:
                obstore.delete(_store(self.root), keys)


class ObjectReader(RawIOBase):
    """An object that is read as a file is: with one request, when its first bytes are read."""

    def __init__(self, path: ObjectPath):
        super().__init__()
        self._path = path
        self._content: memoryview | None = None
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place that is counted from the beginning."""
        assert whence == 0
        self._at = offset
        return offset

    def content(self) -> memoryview:
        """Return all bytes, without a copy of them."""
        if self._content is None:
            self._content = self._path.read()
        return self._content

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the content goes."""
        part = self.content()[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class ObjectWriter(RawIOBase):
    """An object that is written as a file is, and put at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes | memoryview] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Take bytes, which stay unchanged until the object is put."""
        self._pieces.append(data)
        return len(data)

    def content(self) -> bytes | memoryview:
        """Return all bytes; a single piece is not copied."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function for every item, in threads: most of a request is waiting."""
    items = list(items)
    if len(items) <= 1:
        return [function(item) for item in items]
    return list(_threads().map(function, items))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process that wait for requests."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_REQUESTS, "bucketflow-objects")


_OPENING = threading.Lock()


def _store(root: str) -> Any:
    """Return the store of a bucket; all threads share its connections."""
    with _OPENING:
        return _opened(root)


@lru_cache(maxsize=64)
def _opened(root: str) -> Any:
    """Open the store of a bucket, whose address and credentials the environment gives.

    Raises
    ------
    StoreError
        If the environment lacks something.
    """
    from obstore import store

    scheme, _, bucket = root.partition("://")
    try:
        if scheme == "memory":
            return store.MemoryStore()
        opening: Any = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[scheme]
        return opening(bucket)
    except Exception as error:  # whatever the library finds missing
        raise StoreError(errno.EINVAL, _reason(error), root) from None


@contextmanager
def _requests(path: ObjectPath) -> Iterator[Any]:
    """Yield the library, and turn what it raises into what a file system would raise."""
    try:
        import obstore
        from obstore import exceptions
    except ImportError:
        raise StoreError(errno.ENOPKG, "the package obstore is missing: pip install obstore", str(path)) from None
    try:
        yield obstore
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such object", str(path)) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise StaleObjectError(errno.EEXIST, "another process wrote it first", str(path)) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise StoreError(errno.EACCES, _reason(error), str(path)) from None
    except exceptions.BaseError as error:
        raise StoreError(errno.EIO, _reason(error), str(path)) from None


def _reason(error: Exception) -> str:
    """Return what a library says, on one line; the debugging information below it is left out."""
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return text if len(text) <= 400 else f"{text[:399]}…"


def _version(meta: Mapping[str, Any]) -> Mapping[str, str]:
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}
