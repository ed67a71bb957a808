"""Shared fixtures: hypothesis profile, benchmark files; in which order files are tested, and what is compiled first."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from fcntl import LOCK_EX, flock
from math import inf
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import HealthCheck, settings

from tests.few_cases import FewCases
from tests.object_server import bucket, buckets  # noqa: F401
from tests.policies import InForce

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("ci")

_SLOW = Path(__file__).with_name("slow.txt")


class RootIsNoPackage:
    """Collect the repository's root as a folder, not as the package that its ``__init__.py`` makes of it.

    Otherwise pytest imports the root under the name of its folder. It fails if that name is no Python identifier,
    such as `bucketflow-main`, and imports a second copy of the package if it is one.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == parent.config.rootpath else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let callers ask for a few cases of each test function."""
    parser.addoption("--cases", type=int, metavar="N", help="run only N cases of each test function")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the root as a folder, and let workers take files in the order that is made here."""
    config.pluginmanager.register(RootIsNoPackage())
    if config.option.cases is not None:
        config.pluginmanager.register(FewCases(config.option.cases))
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what ``slow.txt`` lists, a test or a whole file in a line; workers begin with what is slow.

    Otherwise one of them tests the last file while the others have nothing to do.
    """
    listed = set(_SLOW.read_text().split())
    slow = Counter[Path]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in listed or name.partition("::")[0] in listed:
            item.add_marker(pytest.mark.slow)
            slow[item.path] += 1
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(autouse=True)
def kernels_count_as_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let GPU tests use the GPU for small questions too, as if all kernels were compiled."""
    if request.node.get_closest_marker("gpu") is not None:
        from bucketflow.tasks.gpu import kernels

        monkeypatch.setattr(kernels, "is_marked", lambda _: True)


@pytest.fixture(scope="session", autouse=True)
def same_on_every_machine() -> Iterator[None]:
    """Let no test depend on the machine's speed, nor on tests before it in its process.

    What may be compiled is compiled when it is first used, and slices are run in order, all of them.
    """
    import numba  # noqa: F401  # whether it is there moves a threshold

    from bucketflow.pipeline.runs.slices import SlicePolicy
    from bucketflow.tasks.compiler import code_cache
    from bucketflow.tasks.compiler.compile_limits import CompilerPolicy

    code_cache._PATIENCE._spent = inf
    with SlicePolicy.using(least_seconds=inf), CompilerPolicy.using(weight=0.0):
        yield


@pytest.fixture(scope="session")
def warmed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder that was empty before ``bucketflow warm``; ``warm.json`` there holds its code and output.

    One worker runs the command while the others wait. Its machine code is also copied to where tests look for it, so
    that no worker compiles it again.
    """
    from bucketflow.tasks.compiler.code_cache import code_home

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "warmed"
    folder.mkdir(exist_ok=True)
    report = folder / "warm.json"
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not report.exists():
            environment = {**os.environ, "BUCKETFLOW_CACHE": str(folder)}
            script = [sys.executable, "-m", "bucketflow", "warm"]
            done = subprocess.run(script, capture_output=True, text=True, env=environment)
            with suppress(OSError):  # no folder can be written to
                copytree(folder / "machine-code", code_home(), dirs_exist_ok=True)
            report.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    return folder


@pytest.fixture(scope="session", autouse=True)
def compiled_ahead(request: pytest.FixtureRequest, same_on_every_machine: None) -> None:
    """Begin with ``bucketflow warm`` if it is tested at all, as all other tests can use its machine code."""
    if any("warmed" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("warmed")


@pytest.fixture(scope="session", autouse=True)
def nothing_old_is_garbage(compiled_ahead: None) -> None:
    """Keep what was imported and collected so far out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Let tests of signals work in a shell's background too, as with ``nohup pytest &``, where SIGINT is ignored.

    Commands that tests start inherit what is ignored, and not what is handled.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def ctrl_c_stays(ctrl_c_is_heard: None) -> Iterator[None]:
    """Fail a test that leaves another handler of Ctrl-C behind: a later test in this process would fail instead."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is before or after == before, f"the test left {after} as the handler of Ctrl-C"


@pytest.fixture
def in_force() -> Iterator[InForce]:
    """Put other values of policies in force until the test ends: ``in_force(RowPolicy, small_cells=0)``."""
    with ExitStack() as stack:
        yield lambda policy, **changes: stack.enter_context(policy.using(**changes))


@pytest.fixture
def compiled_at_once() -> Iterator[None]:
    """Let a test that measures memory meet no compiler but in what it runs first."""
    from bucketflow.tasks.compiler.code_cache import impatient

    with impatient():
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public benchmark instances; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "MANIFEST.tsv").exists():
        pytest.skip(f"benchmark instances not found in {folder}; set BUCKETFLOW_DATA")
    return folder
