"""Models that came as text: files that the server keeps while questions need them, and as many others as have room."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock

from ...storage.files import write_whole
from ..errors import BucketflowError
from .server_policy import ServerPolicy


class InlineModels:
    """Files of texts, by their content, which threads share.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._needed: Counter[str] = Counter()
        self._lock = Lock()

    @contextmanager
    def request(self) -> Iterator[InlineFiles]:
        """Yield what keeps texts for as long as the block lasts."""
        files = InlineFiles(self)
        try:
            yield files
        finally:
            self._release(files.paths)

    def save(self, text: str, suffix: str) -> str:
        """Return the path of a file with a text, which is needed from now on.

        Raises
        ------
        BucketflowError
            If it cannot be written.
        """
        content = text.encode(errors="surrogatepass")
        path = self._folder / f"{sha256(content).hexdigest()[:32]}{suffix}"
        with self._lock:
            self._needed[str(path)] += 1
            if str(path) not in self._sizes and not write_whole(path, content):
                raise BucketflowError(f"the text of a model cannot be stored in {self._folder}")
            self._sizes[str(path)] = len(content)
            self._sizes.move_to_end(str(path))
        return str(path)

    def _release(self, paths: Sequence[str]) -> None:
        """Remove the files that were not needed for longest, where there are too many bytes."""
        with self._lock:
            self._needed.subtract(paths)
            spare = sum(self._sizes.values()) - ServerPolicy.current().inline_bytes
            for path in [path for path in self._sizes if not self._needed[path]]:
                if spare <= 0:
                    break
                spare -= self._sizes.pop(path)
                del self._needed[path]
                Path(path).unlink(missing_ok=True)


class InlineFiles:
    """Files of the texts of one request."""

    def __init__(self, models: InlineModels):
        self._models = models
        self.paths: list[str] = []

    def save(self, text: str, suffix: str) -> str:
        """Return the path of a file with a text."""
        self.paths.append(path := self._models.save(text, suffix))
        return path
