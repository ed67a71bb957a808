"""Files as text: opened, decompressed and decoded within limits, every failure a FormatError."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import FormatError

MAX_TEXT_BYTES = 4 << 30
_CHUNK_BYTES = 1 << 20
_XZ_MEMORY_BYTES = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"


@dataclass(frozen=True)
class Source:
    """The text of one file, the path as the user named it, and the name without folder and compression."""

    path: str
    name: str
    text: str

    @property
    def stem(self) -> str:
        """The name without any suffix."""
        return self.name.partition(".")[0] or self.name

    @property
    def suffix(self) -> str:
        """The last suffix, lower case and with its dot, or an empty string."""
        return Path(self.name).suffix.lower()


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a file, plain, gzip or xz (told apart by their first bytes), as UTF-8 or else Latin-1.

    Raises
    ------
    FormatError
        If the file cannot be read, is damaged, holds NUL bytes, or is larger than ``MAX_TEXT_BYTES``
        once decompressed.
    """
    shown = os.fspath(path)
    data = _decompress(shown, _read_bytes(shown))
    nul = data.find(b"\x00")
    if nul >= 0:
        raise FormatError(shown, data.count(b"\n", 0, nul) + 1, "text", "a NUL byte")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return Source(shown, strip_compression(Path(shown).name), text)


def strip_compression(name: str) -> str:
    """Return a file name without a trailing ``.gz`` or ``.xz``."""
    return name[:-3] if name.lower().endswith((".gz", ".xz")) else name


def shorten(text: str, width: int = 40) -> str:
    """Return the text itself, or its beginning when it is longer than ``width`` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            # Not read(limit): that allocates the limit first.
            return _collect(path, iter(lambda: file.read(_CHUNK_BYTES), b""))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FormatError(path, None, "a readable file", reason) from error


def _decompress(path: str, data: bytes) -> bytes:
    if data.startswith(_GZIP_MAGIC):
        chunks = _gzip_chunks(data)
    elif data.startswith(_XZ_MAGIC):
        chunks = _xz_chunks(data)
    else:
        return data
    try:
        return _collect(path, chunks)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise FormatError(path, None, "an undamaged compressed file", shorten(str(error), 80)) from error


def _collect(path: str, chunks: Iterator[bytes]) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_TEXT_BYTES:
            raise FormatError(path, None, f"at most {MAX_TEXT_BYTES} bytes of text", "more")
    return bytes(data)


def _gzip_chunks(data: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _xz_chunks(data: bytes) -> Iterator[bytes]:
    # lzma.LZMAFile sets no memory limit, and the size of the dictionary is only a claim of the file.
    while data:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
        chunk = decoder.decompress(data, _CHUNK_BYTES)
        while chunk or not decoder.eof:
            if not chunk and decoder.needs_input:
                raise EOFError("compressed file ended before the end-of-stream marker was reached")
            yield chunk
            chunk = b"" if decoder.eof else decoder.decompress(b"", _CHUNK_BYTES)
        data = decoder.unused_data.lstrip(b"\x00")  # padding between streams
