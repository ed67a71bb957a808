"""A pool of threads in this process: tasks that wait for a device or a disk most of the time overlap."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from .pool import Node, SerialPool, _in_a_row, _Ready


class ThreadPool(SerialPool):
    """Runs graphs with some tasks at the same time, everything else at once in the calling thread."""

    def __init__(self, width: int):
        self.width = width

    def run_graph(self, nodes: Mapping[Any, Node]) -> Iterator[tuple[Any, Any]]:
        """Keep ``width`` tasks running; see :class:`~.pool.Pool`."""
        ready = _Ready(nodes)
        running: dict[Future[Any], Hashable] = {}
        with ThreadPoolExecutor(self.width) as threads:
            try:
                while True:
                    while len(running) < self.width and (key := ready.pop()) is not None:
                        function, *args = nodes[key].call(key)
                        running[threads.submit(_in_a_row, function, *args)] = key
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        key = running.pop(future)
                        error = future.exception()
                        if error is None:
                            ready.finish(key)
                        yield key, error or future.result()
            finally:
                threads.shutdown(wait=True, cancel_futures=True)
