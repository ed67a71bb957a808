"""Files as text: opened, decompressed and decoded within limits, every failure one sentence."""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from time import monotonic
from typing import Any, cast

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import WORD_ONES
from ...errors import (
    BudgetError,
    DeadlineError,
    FormatError,
    UnreadableError,
    format_bytes,
    shorten,
    unreadable,
)
from ...examples import meant_example
from ...local_paths import local_path
from ..format_policy import FormatPolicy
from .unread import packed_or_binary

MAX_TEXT_BYTES = 4 << 30
# Reading may always take this: the interpreter and its libraries take more.
LEAST_MEMORY = 32 << 20
#: Bytes of Python objects for a byte of JSON: an empty list in two characters takes 64.
JSON_BYTES = 40
# Reading may always take this many seconds: to start the interpreter and import its libraries takes more.
LEAST_SECONDS = 0.5
_XZ_MEMORY_BYTES = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b\x08"
_XZ_MAGIC = b"\xfd7zXZ\x00"
# An .lzma file begins with its properties, the size of its dictionary, and the size of its text, or -1. It has no magic
# number. As in xz, only likely dictionary sizes are accepted.
_LZMA_HEADER = struct.Struct("<BIQ")
_BOM = b"\xef\xbb\xbf"
# Ctrl-Z, with which CP/M and DOS ended a text.
_DOS_END = b"\x1a"
#: Suffixes of formats that are no text.
BINARY = (".bgum",)
_BREAK = re.compile(rb"[ \t\n\r\f\v]")
BLOCK_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)", re.DOTALL)
_OTHERS = bytes(chr(code) not in "0123456789- \t\r\n" for code in range(256))
_BLANK = bytes(code if code == ord("\n") else ord(" ") for code in range(256))


_deadline: ContextVar[float] = ContextVar("deadline of reading", default=math.inf)


@contextmanager
def reading_within(seconds: float | None) -> Iterator[None]:
    """Set the deadline of all files that are read in this block; None sets none.

    Parameters
    ----------
    seconds : float or None
        From now on, in wall seconds; at least ``LEAST_SECONDS`` are allowed.
    """
    token = _deadline.set(math.inf if seconds is None else monotonic() + max(seconds, LEAST_SECONDS))
    try:
        yield
    finally:
        _deadline.reset(token)


def check_deadline() -> None:
    """Stop reading if its deadline has passed; loops of readers call this now and then.

    Raises
    ------
    DeadlineError
        If it has; :func:`~.read.load_any` adds the name of the file.
    """
    deadline = _deadline.get()
    if deadline < math.inf and monotonic() > deadline:
        raise DeadlineError("the time ended while the file was read; give more --time")


class Allowance:
    """The memory and the time that reading one file may take.

    The deadline is the one set by :func:`reading_within` when the allowance is created.

    Parameters
    ----------
    path : str
        The file as the user named it.
    memory : int
        Bytes; at least ``LEAST_MEMORY`` is allowed.
    """

    def __init__(self, path: str, memory: int):
        self.path: str = path
        self.memory: int = max(memory, LEAST_MEMORY)
        self.taken: int = 0
        self.timed: bool = _deadline.get() < math.inf

    def take(self, count: int, what: str, for_now: int = 0) -> None:
        """Count bytes that stay, and bytes that are needed only for a moment; check the deadline.

        Parameters
        ----------
        count : int
            Bytes that stay allocated.
        what : str
            The object that needs them, for the error message.
        for_now : int
            Bytes that are freed soon.

        Raises
        ------
        BudgetError
            If the file needs more memory than is allowed.
        DeadlineError
            If the deadline has passed.
        """
        if self.timed:
            check_deadline()
        self.taken += count
        needed = self.taken + for_now
        if needed > self.memory:
            raise BudgetError(
                f"{self.path}: reading it needs at least {format_bytes(needed)} of memory (with {what}), "
                f"allowed {format_bytes(self.memory)}; if the file is what it should be, give a larger --memory"
            )


@dataclass(frozen=True, eq=False)
class Source:
    """The text of one file as bytes, its path as the user named it, and its name without folder and compression.

    Whether it holds a Bayesian network is to be ``checked``, unless it is to be taken as it is.
    """

    path: str
    name: str
    data: bytearray
    encoding: str
    allowance: Allowance
    checked: bool = True

    @property
    def text(self) -> str:
        """All of the text, decoded anew."""
        self.allowance.take(0, "the text", for_now=self.text_bytes)
        return self.data.decode(self.encoding)

    @property
    def text_bytes(self) -> int:
        """Maximum bytes of the decoded text."""
        return len(self.data) * (1 if self.data.isascii() else 4)

    @property
    def stem(self) -> str:
        """The name without any suffix."""
        return self.name.partition(".")[0] or self.name

    @property
    def suffix(self) -> str:
        """The last suffix, lower case and with its dot, or an empty string."""
        return Path(self.name).suffix.lower()

    def head(self, size: int) -> str:
        """Return the beginning of the text, up to ``size`` bytes of it, without block comments."""
        head = self.data[:size]
        blank(head, BLOCK_COMMENT)
        return head.decode(self.encoding, errors="ignore")

    def blank(self, comment: re.Pattern[bytes], stop: int | None = None) -> Source:
        """Turn comments before an index into spaces, in place. Matches of the pattern's group are not comments."""
        blank(self.data, comment, stop)
        return self

    @property
    def lettered(self) -> int:
        """Where only lines of integers follow: patterns that want letters find nothing behind it."""
        last = self.data.translate(_OTHERS).rfind(1)
        return 0 if last < 0 else self.data.find(b"\n", last) + 1 or len(self.data)


def read_source(path: str | os.PathLike[str], memory: int) -> Source:
    """Read a file, plain, gzip, xz or lzma (by its first bytes), as UTF-8 or else Latin-1.

    Raises
    ------
    FormatError
        If the file cannot be read, is damaged, is an archive, holds NUL bytes, or is larger than ``MAX_TEXT_BYTES``
        once decompressed.
    BudgetError
        If its text alone takes more than ``memory`` bytes.
    """
    shown = os.fspath(path)
    local_path(path)
    allowance = Allowance(shown, memory)
    data = _read(shown, allowance)
    name = strip_compression(Path(shown).name)
    if name.lower().endswith(BINARY):
        return Source(shown, name, data, "latin-1", allowance)
    if what := packed_or_binary(data, name):
        raise UnreadableError(shown, f"this is {what}")
    if data.endswith(_DOS_END):
        del data[-1:]
    nul = data.find(b"\x00")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise UnreadableError(shown, f"this is not a text file: line {line} has a NUL byte")
    if data.startswith(_BOM):
        del data[: len(_BOM)]
    encoding = "utf-8" if _is_utf8(data) else "latin-1"
    return Source(shown, name, data, encoding, allowance)


def beginning(path: Path, size: int) -> str | None:
    """Return the first bytes of a file, decompressed, as text; None if it cannot be read."""
    import gzip

    try:
        with open(path, "rb") as file:
            start = file.peek(_LZMA_HEADER.size)
            if (is_lzma := _is_lzma(start)) or start.startswith(_XZ_MAGIC):
                unpacked = next(_xz_chunks(file, Allowance(str(path), 0), is_lzma), b"")
                return unpacked[:size].decode(errors="replace")
            with gzip.open(file) if start.startswith(_GZIP_MAGIC[:2]) else nullcontext(file) as plain:
                return plain.read(size).decode(errors="replace")
    except BudgetError:
        return None
    except _damage():
        return None


def read_json(path: str | os.PathLike[str], memory: int) -> Any:
    """Read a file of JSON, within the memory that its objects may take.

    Raises
    ------
    FormatError
        If the file cannot be read.
    BudgetError
        If its objects may take more than ``memory`` bytes.
    ValueError, RecursionError
        If its text is no JSON.
    """
    source = read_source(path, memory)
    if not source.data.strip():
        raise UnreadableError(source.path, "the file is empty")
    source.allowance.take(JSON_BYTES * len(source.data), "its values")
    return json.loads(source.text)


def strip_compression(name: str) -> str:
    """Return a file name without a trailing ``.gz``, ``.xz`` or ``.lzma``."""
    return name.rpartition(".")[0] if name.lower().endswith((".gz", ".xz", ".lzma")) else name


def _is_lzma(start: bytes) -> bool:
    """Whether a file begins with the header of an .lzma file, as no text does."""
    if len(start) < _LZMA_HEADER.size:
        return False
    properties, dictionary, size = _LZMA_HEADER.unpack_from(start)
    high = 1 << max(dictionary.bit_length() - 1, 0)
    is_likely = dictionary in (high, high | high >> 1, (1 << 32) - 1)
    # the largest values that xz takes, too
    return properties < 225 and is_likely and (size == WORD_ONES or size < 1 << 38)


def blank(data: bytearray, comment: re.Pattern[bytes], stop: int | None = None) -> None:
    """Turn comments into spaces, in place, including their line breaks.

    Matches of the pattern's group are not comments.
    """
    if comment is BLOCK_COMMENT and data.find(b"/*") < 0:  # ten times as fast as the pattern
        return
    for found in comment.finditer(data, 0, len(data) if stop is None else stop):
        if found.lastindex is None:
            data[found.start() : found.end()] = found.group().translate(_BLANK)


def pieces(data: bytearray, size: int) -> Iterator[tuple[int, int]]:
    """Cut data behind white space into ranges of about ``size`` bytes; no token and no letter is cut."""
    start = 0
    while start < len(data):
        end = _BREAK.search(data, start + size)
        stop = end.end() if end else len(data)
        yield start, stop
        start = stop


def _is_utf8(data: bytearray) -> bool:
    policy = FormatPolicy.current()
    try:
        return data.isascii() or all(
            data[start:stop].decode() or True for start, stop in pieces(data, policy.chunk_bytes)
        )
    except UnicodeDecodeError:
        return False


def _damage() -> tuple[type[Exception], ...]:
    """Return what reading a file raises if the file cannot be read or decompressed."""
    import lzma
    import zlib

    return EOFError, OSError, ValueError, zlib.error, lzma.LZMAError


def _read(path: str, allowance: Allowance) -> bytearray:
    packed = False
    try:
        with open(path, "rb") as file:
            start = file.peek(_LZMA_HEADER.size)
            is_lzma = _is_lzma(start)
            packed = is_lzma or start.startswith((_GZIP_MAGIC, _XZ_MAGIC))
            if start.startswith(_GZIP_MAGIC):
                import gzip

                return _collected(path, _chunks(cast(BufferedReader, gzip.GzipFile(fileobj=file))), allowance)
            chunks = _xz_chunks(file, allowance, is_lzma) if packed else _chunks(file)
            return _collected(path, chunks, allowance)
    except _damage() as error:
        if packed:
            raise FormatError(path, None, "an undamaged compressed file", shorten(str(error), 80)) from error
        raise unreadable(path, error, meant_example(path) if isinstance(error, FileNotFoundError) else "") from error


def _collected(path: str, chunks: Iterator[bytes], allowance: Allowance) -> bytearray:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_TEXT_BYTES:
            raise FormatError(path, None, f"at most {MAX_TEXT_BYTES} bytes of text", "more")
        allowance.take(len(chunk), f"{format_bytes(len(data))} of text")
    return data


def _chunks(file: BufferedReader) -> Iterator[bytes]:
    # Not read(limit): that allocates the limit first.
    policy = FormatPolicy.current()
    return iter(lambda: file.read(policy.chunk_bytes), b"")


def _xz_chunks(file: BufferedReader, allowance: Allowance, is_lzma: bool) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, a chunk at a time.

    Parameters
    ----------
    file : binary file
    allowance : Allowance
        The memory budget of reading.
    container : int
        ``lzma.FORMAT_XZ`` or ``lzma.FORMAT_ALONE``.

    Raises
    ------
    BudgetError
        If the dictionary of the file needs more memory than allowed.
    EOFError
        If the file is cut off.
    """
    import lzma

    # lzma.LZMAFile sets no memory limit, and the size of the dictionary is only a claim of the file.
    policy = FormatPolicy.current()
    limit = min(max(allowance.memory, 2 * LEAST_MEMORY), _XZ_MEMORY_BYTES)
    data = file.read(policy.chunk_bytes)
    while data:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_ALONE if is_lzma else lzma.FORMAT_XZ, memlimit=limit)
        while not decoder.eof:
            if not data and decoder.needs_input and not (data := file.read(policy.chunk_bytes)):
                raise EOFError("compressed file ended before the end-of-stream marker was reached")
            try:
                chunk = decoder.decompress(data, policy.chunk_bytes)
            except lzma.LZMAError as error:
                if "limit" not in str(error):
                    raise
                raise BudgetError(
                    f"{allowance.path}: decompressing it needs more than {format_bytes(limit)} of memory; give a "
                    "larger --memory, or decompress it beforehand"
                ) from None
            if chunk:
                yield chunk
            data = b""
        if is_lzma:  # which has one stream
            if decoder.unused_data or file.read(1):
                raise EOFError("there is something behind the compressed text")
            return
        data = decoder.unused_data.lstrip(b"\x00")  # padding between streams
        while not data and (more := file.read(policy.chunk_bytes)):
            data = more.lstrip(b"\x00")
