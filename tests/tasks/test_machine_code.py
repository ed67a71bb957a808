"""Machine code that is kept in files, and the clock that does not count compiling."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bucketflow.storage.files import cache_folder, write_whole
from bucketflow.tasks.compiler import code_cache
from bucketflow.tasks.compiler.jit import njit
from bucketflow.tasks.compiler.working_time import working_seconds


def twice(x: Any) -> Any:
    return 2 * x


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / "cache"))
    assert code_cache.processor()  # known before the package's folder is replaced
    # the second place, where no cache folder can be written to
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path)
    return tmp_path / "cache"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def test_code_is_found_again(kept: Path) -> None:
    first = njit(cache=True)(twice)
    assert first(3) == 6
    assert [path.name.split("-")[0] for path in files(kept)] == ["twice"]
    second = njit(cache=True)(twice)
    assert (second(4), hits(first), hits(second)) == (8, 0, 1)
    assert second(0.5) == 1.0
    assert (hits(second), len(files(kept))) == (1, 2)


def test_code_beside_the_package_serves_users_with_caches_of_their_own(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = kept.parent
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(package / "__pycache__"))
    assert njit(cache=True)(twice)(3) == 6
    shared = files(package / "__pycache__")
    assert len(shared) == 1
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(kept))
    again = njit(cache=True)(twice)
    assert (again(3), hits(again), files(kept)) == (6, 1, [])
    assert again(0.5) == 1.0
    assert (len(files(kept)), files(package / "__pycache__")) == (1, shared)


USE = """
import sys
import numpy as np
from bucketflow.tasks.compiler.jit import njit

def twice(x):
    return 2 * x

def least(x):
    return np.sort(kept(x))[0]

kept = njit(cache=True, makes_arrays=True)(twice)
assert kept(np.arange(3)).tolist() == [0, 2, 4]
print("numba.np.arraymath" in sys.modules)
assert njit(makes_arrays=True)(least)(np.array([3.0, 1.0])) == 2.0
"""


RAISE = """
import sys
import numpy as np
from numba.core.runtime import rtsys
from bucketflow.tasks.compiler.jit import njit

def upper(x, end):
    if end > len(x):
        raise ValueError("only so many", len(x))
    return x[:end].copy(), x.sum()

kept = njit(cache=True, makes_arrays=True)(upper)
part, total = kept(np.arange(4.0), 3)
assert (part.tolist(), total) == ([0.0, 1.0, 2.0], 6.0)
try:
    kept(np.arange(4.0), 5)
except ValueError as error:
    assert error.args == ("only so many", 4)
print(sum(kept.stats.cache_hits.values()), "numba.np.arrayobj" in sys.modules, rtsys._init)
assert njit()(lambda x: x + 1)(1) == 2
assert kept(np.arange(4), 1)[0].tolist() == [0]
"""


def test_kept_code_is_loaded_without_what_it_was_made_with(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "raise.py").write_text(RAISE)
    command = [sys.executable, str(tmp_path / "raise.py")]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert said == ["0 True True", "1 False False"]


def test_kept_code_needs_no_compiler(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, str(tmp_path / "use.py")]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert said == ["True", "False"]


@pytest.mark.parametrize("damaged", [b"", b"nothing", None])
def test_damaged_code_is_compiled_again(damaged: bytes | None, kept: Path) -> None:
    assert njit(cache=True)(twice)(3) == 6
    (path,) = files(kept)
    path.write_bytes(path.read_bytes()[:-1] if damaged is None else damaged)
    again = njit(cache=True)(twice)
    assert (again(3), hits(again)) == (6, 0)
    found = njit(cache=True)(twice)
    assert (found(3), hits(found)) == (6, 1)


def test_a_folder_that_cannot_be_written_to_only_means_another(kept: Path, tmp_path: Path) -> None:
    kept.write_text("not a folder")
    assert njit(cache=True)(twice)(3) == 6
    again = njit(cache=True)(twice)
    assert (again(3), hits(again)) == (6, 1)
    assert files(tmp_path / "__pycache__")
    assert not write_whole(kept / "file", b"")


def test_code_follows_the_sources_of_what_it_inlines(tmp_path: Path, kept: Path) -> None:
    for name, text in {
        "a.py": "from .b import (\n    x,\n)\n",
        "b.py": "from .. import other\nfrom .folder.c import y\n",
        "folder/c.py": "y = 1\n",
        "d.py": "z = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def digest() -> str:
        code_cache.sources_digest.cache_clear()
        code_cache._imported.cache_clear()
        return code_cache.sources_digest(tmp_path / "a.py")

    before = digest()
    (tmp_path / "d.py").write_text("z = 2\n")
    assert digest() == before
    (tmp_path / "folder" / "c.py").write_text("y = 2\n")
    assert digest() != before


def test_whether_a_function_is_compiled(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("")
    assert not code_cache.is_compiled("loops", "advance")
    write_whole(code_cache.code_folders(tmp_path / "loops.py")[0] / f"advance-{code_cache.processor()}-0.nbc", b"")
    assert code_cache.is_compiled("loops", "advance")
    assert not code_cache.is_compiled("loops", "adv")


OLD = "vendor_id : GenuineIntel\nmodel name : Old\nflags : fpu sse4_2 avx\n"
NEW = f"vendor_id : AuthenticAMD\nmodel name : New\nflags : {' '.join(code_cache._NEEDED)}\n"


def imagined(monkeypatch: pytest.MonkeyPatch, folder: Path, facts: str) -> str:
    """Imagine another processor, and return its name."""
    (folder / "cpuinfo").write_text(facts)
    monkeypatch.setattr(code_cache, "INFO", folder / "cpuinfo")
    code_cache.cpu_facts.cache_clear()
    code_cache._processor.clear()
    code_cache.forget_folders()
    return code_cache.host_processor()


@pytest.fixture
def any_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    yield
    monkeypatch.undo()
    code_cache.cpu_facts.cache_clear()
    code_cache._processor.clear()
    code_cache.forget_folders()


def test_portable_code_serves_processors_without_code_of_their_own(
    any_processor: None, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = tmp_path / "tasks" / "cpu" / "stream_loops.py"
    loops.parent.mkdir(parents=True)
    loops.write_text("")

    def chosen(facts: str) -> str:
        imagined(monkeypatch, tmp_path, facts)
        return code_cache.processor()

    old, new = (imagined(monkeypatch, tmp_path, facts) for facts in (OLD, NEW))
    assert len({old, new, code_cache.PORTABLE}) == 3
    assert (chosen(OLD), chosen(NEW)) == (old, new)  # nothing is compiled yet
    folder = code_cache.code_folders(loops)[0]
    write_whole(folder / f"stream-{code_cache.PORTABLE}-0.nbc", b"")
    assert (chosen(OLD), chosen(NEW)) == (old, code_cache.PORTABLE)
    assert code_cache.is_compiled("tasks.cpu.stream_loops", "stream")
    write_whole(folder / f"stream-{new}-0.nbc", b"")
    assert (chosen(OLD), chosen(NEW)) == (old, new)
    assert not code_cache.is_compiled("tasks.cpu.stream_loops", "other")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert chosen(NEW) == "generic"


ELSEWHERE = """
import sys
from pathlib import Path
from bucketflow.tasks.compiler import code_cache

code_cache.INFO = Path(sys.argv[1])
if sys.argv[2:]:
    code_cache.compile_for(sys.argv[2])
    loops = code_cache.PACKAGE / "tasks" / "cpu" / "stream_loops.py"
    (planted,) = [folder / f"stream-{sys.argv[2]}-0.nbc" for folder in code_cache.code_folders(loops)[:1]]
    planted.parent.mkdir(parents=True)
    planted.touch()

from bucketflow.tasks.compiler.jit import njit

def twice(x):
    return 2 * x

kept = njit(cache=True)(twice)
assert kept(4) == 8
print(code_cache.processor(), sum(kept.stats.cache_hits.values()))
"""


@pytest.mark.skipif(not code_cache.runs_portable_code(), reason="this processor has not all instructions of x86-64-v3")
def test_portable_code_is_loaded_on_another_processor(any_processor: None, kept: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    (tmp_path / "cpuinfo").write_text(NEW)
    command = [sys.executable, str(tmp_path / "elsewhere.py"), str(tmp_path / "cpuinfo")]

    def printed(*more: str) -> str:
        return subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout.strip()

    assert printed(code_cache.PORTABLE) == f"{code_cache.PORTABLE} 0"
    assert printed() == f"{code_cache.PORTABLE} 1"
    assert {path.name.split("-", 1)[1][:9] for path in files(kept)} == {code_cache.PORTABLE}


def test_one_warning_says_that_code_cannot_be_kept(
    kept: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code_cache.forget_folders()
    for folder in (kept, tmp_path / "__pycache__"):
        folder.write_text("not a folder")
    loop = njit(cache=True)(twice)
    assert (loop(3), loop(0.5)) == (6, 1.0)
    assert njit(cache=True)(lambda x: x + 1)(3) == 4
    (warning,) = caplog.messages
    assert "every process compiles its loops again" in warning
    assert f"no file can be written to {kept / 'machine-code'} or {tmp_path / '__pycache__'}" in warning


def test_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETFLOW_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/bucketflow")
    monkeypatch.setenv("BUCKETFLOW_CACHE", "/mine")
    assert cache_folder() == Path("/mine")


def test_compiling_is_no_work(kept: Path) -> None:
    function = njit(cache=True)(twice)
    start, worked = time.process_time(), working_seconds()
    function(1 + 2j)
    assert working_seconds() - worked < (time.process_time() - start) / 2


def test_numpy_goes_on_for_as_long_as_compiling_would_take(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(seconds: float, ahead: float = 0.0) -> list[bool]:
        patience = code_cache.Patience("loops", "advance", loading=0.5, compiling=2.0)
        return [patience.ends(seconds, ahead) for _ in range(3)]

    compiler = sys.modules["numba"]
    monkeypatch.delitem(sys.modules, "numba")
    (kept.parent / "loops.py").write_text("")
    assert ends(0.75) == [False, False, True]
    assert ends(0.75, ahead=10.0) == [False, False, True]
    write_whole(code_cache.code_folders(kept.parent / "loops.py")[0] / f"advance-{code_cache.processor()}-0.nbc", b"")
    assert ends(0.3) == [False, True, True]
    assert ends(0.3, ahead=0.3) == [True, True, True]
    monkeypatch.setitem(sys.modules, "numba", compiler)
    assert ends(0.03) == [False, True, True]
    monkeypatch.setitem(sys.modules, f"{kept.parent.name}.loops", sys)
    assert ends(0.0) == [True, True, True]


class Planted:
    """A pickle that makes a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def plant(path: Path, harm: Path) -> None:
    """Replace a file of machine code by one that does something else."""
    code = pickle.dumps(Planted(harm))
    path.write_bytes(sha256(code).digest() + code)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was said of folders that are not used."""
    code_cache.forget_folders()
    yield lambda: [record.getMessage() for record in caplog.records]
    code_cache.forget_folders()


@pytest.mark.parametrize("wrong", ["root", "folder", "file", "link"])
def test_code_that_others_may_have_planted_is_not_run(
    wrong: str, kept: Path, tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    assert njit(cache=True)(twice)(3) == 6
    (path,) = files(kept)
    plant(path, tmp_path / "harm")
    changed = {"root": kept / "machine-code", "file": path}.get(wrong, path.parent)
    if wrong == "link":
        path.parent.rename(tmp_path / "moved")
        path.parent.symlink_to(tmp_path / "moved")
    else:
        changed.chmod(0o777)
    code_cache.forget_folders()  # as in a new process
    for _ in range(2):
        again = njit(cache=True)(twice)
        assert again(3) == 6
        assert not (tmp_path / "harm").exists()
    (sentence,) = said()
    assert sentence.startswith(f"bucketflow: machine code is neither read from {kept / 'machine-code'} nor kept there")
    assert f"{changed} is a symbolic link" in sentence or f"everybody may write to {changed}" in sentence
    assert "BUCKETFLOW_CACHE" in sentence
    # what cannot be kept there is kept beside the package
    assert len(files(tmp_path / "__pycache__")) == (wrong != "file")
    assert hits(again) == 1


def test_code_that_belongs_to_others_is_not_run(
    kept: Path, tmp_path: Path, said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert njit(cache=True)(twice)(3) == 6
    plant(files(kept)[0], tmp_path / "harm")
    monkeypatch.setattr(code_cache, "owners", lambda: frozenset({54321}))
    code_cache.forget_folders()
    assert njit(cache=True)(twice)(3) == 6
    assert not (tmp_path / "harm").exists()
    assert len(said()) == 2, "neither the cache nor the folder beside the package is ours"
    assert "belongs to" in said()[0]


def test_whether_a_function_is_compiled_is_not_asked_of_others(
    kept: Path, tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    (tmp_path / "loops.py").write_text("")
    write_whole(code_cache.code_folders(tmp_path / "loops.py")[0] / f"advance-{code_cache.processor()}-0.nbc", b"")
    assert code_cache.is_compiled("loops", "advance")
    (kept / "machine-code").chmod(0o777)
    code_cache.forget_folders()
    assert not code_cache.is_compiled("loops", "advance")
    assert len(said()) == 1
