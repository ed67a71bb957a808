"""Workers of another build, or without a package, are refused in one sentence that names them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import bucketflow
from bucketflow.cluster import worker_facts
from bucketflow.cluster.address import ClusterError
from bucketflow.cluster.dask_pool import DaskPool
from bucketflow.cluster.version import __version__, source_digest
from bucketflow.cluster.worker_facts import Admission
from tests.clusters import Cluster, cluster
from tests.models import grid

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(bucketflow.__file__).parent
REFUSED = (
    rf"^worker tcp://\S+ has bucketflow \S+ with the sources \w+, this is bucketflow {__version__} with the sources "
)


def test_the_digest_is_of_every_source(tmp_path: Path) -> None:
    copy = changed_copy(tmp_path)
    assert _digest_of(copy) != source_digest()
    changed = copy / "storage" / "spec.py"
    changed.write_bytes((ROOT / "storage" / "spec.py").read_bytes())
    assert _digest_of(copy) == source_digest()


def _digest_of(package: Path) -> str:
    """Return the digest that a copy of the package has of itself."""
    scope: dict[str, Any] = {"__file__": str(package / "cluster" / "version.py"), "__name__": "version"}
    exec((package / "cluster" / "version.py").read_text(), scope)
    return str(scope["source_digest"]())


def changed_copy(folder: Path) -> Path:
    """Copy the package, and change one of its files."""
    copy = folder / "other" / "bucketflow"
    copy.mkdir(parents=True)
    shutil.copy(ROOT / "__init__.py", copy)
    for room in ("cluster", "pipeline", "storage", "tasks"):
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "storage" / "spec.py").open("a") as file:
        file.write("# changed\n")
    return copy


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, 1) as started:
        yield started


def test_a_worker_of_another_commit_that_joins_later_is_refused(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = changed_copy(tmp_path)
    with Client(running.address, set_as_default=False) as client:
        pool = DaskPool(client, "later", admission=Admission(client))
        assert pool.get(pool.submit(abs, -1)) == 1
        assert len(pool.slots()) == 1
        monkeypatch.setenv("PYTHONPATH", str(copy.parent), prepend=os.pathsep)
        place = ("--local-directory", str(tmp_path / "scratch"), "--no-nanny", "--nthreads", "1")
        running.workers.append(running._started("worker", running.address, *place))
        client.wait_for_workers(2, timeout=600)
        with pytest.raises(ClusterError, match=REFUSED):
            pool.slots()
        bucketflow.solve(grid(2, 2, 2), client=client)  # too small for a worker
        with pytest.raises(bucketflow.BucketflowError, match=REFUSED):
            bucketflow.solve(grid(2, 2, 2), client=client, tasks="steps")
    with pytest.raises(bucketflow.BucketflowError, match=REFUSED):
        bucketflow.solve(grid(2, 2, 2), scheduler=running.address, tasks="steps")


class _Unreadable:
    """Cannot be loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _fails, ("numba",)


def _fails(name: str) -> None:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Worker:
    """Has what a worker reports of itself."""

    class state:
        nthreads = 1

    class memory_manager:
        memory_limit = None


class _Client:
    """Asks a worker of this process, whose answer is changed."""

    status = "running"

    def __init__(self, answer: object):
        self.answer = answer

    def run(self, function: Any, sample: bytes, **_: Any) -> dict[str, Any]:
        if isinstance(self.answer, Mapping):
            return {"tcp://w": {**function(sample, _Worker()), **self.answer}}
        return {"tcp://w": self.answer}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"version": "0.1.0", "sources": "abc"}, "has bucketflow 0.1.0 with the sources abc, this is bucketflow"),
        (ModuleNotFoundError("no", name="bucketflow"), "has no bucketflow"),
        (ModuleNotFoundError("no", name="bucketflow.cluster.worker_facts"), "has another version of bucketflow"),
    ],
)
def test_other_builds(answer: object, sentence: str) -> None:
    with pytest.raises(ClusterError, match=f"^worker tcp://w {sentence}.*install the same one there$"):
        worker_facts.worker_facts(_Client(answer))


def test_a_worker_that_cannot_load_a_task_is_refused() -> None:
    assert len(worker_facts.worker_facts(_Client({}))) == 1
    with pytest.raises(ClusterError, match=r"^worker tcp://w cannot load a task \(ModuleNotFoundError: .*'numba'\)"):
        worker_facts.worker_facts(_Client({}), task=_Unreadable())
    assert worker_facts.worker_facts(_Client(OSError("it left"))) == []
