"""Where the machine code of compiled loops is kept, in files that other processes, installations and machines can use.

A file is found by the inputs of its code: the sources of the function and of the modules that it may inline, the types
of its arguments, the compiler, the processor. A file therefore survives a reinstallation, never fits another version,
and may be written by many processes at the same time. Nothing here needs a compiler.

The processor is this machine's own, or any with the instructions of x86-64-v3: an image is built on one machine and
runs on others. Code for x86-64-v3 runs on all Intel and AMD servers since 2015.

A user who can write these files can run any code in the processes that load them. Folders and files are therefore
ignored if users other than this user, root, and the owner of the package may write to them.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Final

from ...storage.files import UntrustedError, cache_folder, check_entry, check_folder, read_trusted
from ..steps.step import QUICK_CELLS
from .compile_limits import CompilerPolicy, may_compile
from .numba_parts import unknown_numba

PORTABLE: Final = "x86-64-v3"
#: The instructions of x86-64-v3 beyond those of every 64-bit processor, in the words of LLVM.
PORTABLE_FEATURES: Final = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3"
# The same instructions, in the words of Linux; it calls LZCNT "abm" and SSE3 "pni".
_NEEDED = {
    *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
}
# Beginnings of the names of instructions that compilers use.
_COMPILED = ("avx", "amx", "bmi", "fma")
INFO = Path("/proc/cpuinfo")


@cache
def cpu_facts() -> dict[str, str]:
    """Return what Linux says about the first processor, by its words; {} on other systems."""
    try:
        with INFO.open() as file:
            first = [line.partition(":") for line in takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in first}


def cpu_model() -> str:
    """Return the model of this machine's processors, as sellers write it."""
    facts = cpu_facts()
    arm = " ".join(facts[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in facts)
    return facts.get("model name") or arm or platform.processor() or platform.machine()


def host_processor() -> str:
    """Return a short name for processors of this model with these instructions."""
    from hashlib import sha256

    facts = cpu_facts()
    model = [platform.machine(), cpu_model(), facts.get("vendor_id"), facts.get("cpu family"), facts.get("model")]
    instructions = sorted(flag for flag in _flags() if flag.startswith(_COMPILED))
    return f"host{sha256(repr((model, instructions)).encode()).hexdigest()[:8]}"


def runs_portable_code() -> bool:
    """Return whether this machine's processors have all instructions of x86-64-v3."""
    return _flags() >= _NEEDED


def _flags() -> frozenset[str]:
    return frozenset(cpu_facts().get("flags", "").split())


PACKAGE = Path(__file__).parents[2]
_COMPILER = Path(__file__).with_name("jit.py")
_IMPORT = re.compile(r"^from (\.+)([\w.]*) import \(?([\w, ]*)", re.MULTILINE)


def code_roots() -> tuple[Path, ...]:
    """Return where machine code belongs: in the cache folder, or beside the package."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    first = Path(given) / "bucketflow" if given else cache_folder() / "machine-code"
    return first, PACKAGE / "__pycache__" / "machine-code"


def code_folders(source: Path) -> tuple[Path, ...]:
    """Return where the code of a module is looked for; it is written to the first that can be written to.

    Folders that others may write to are left out, which is said once.
    """
    name = f"{source.stem}-{sources_digest(source)[:16]}"
    found = []
    for root in code_roots():
        try:
            folder = _place_of(root) / name
            check_entry(folder, owners())
            found.append(folder)
        except UntrustedError as error:
            _say(root, error)
    return tuple(found)


#: Folders for machine code that were examined, and whether they existed. An existing folder cannot have been changed by
#: others since.
_places: dict[Path, tuple[Path, bool]] = {}


def _place_of(root: Path) -> Path:
    """Return the real path of a folder for machine code; refuse a folder that others may write to."""
    place, there = _places.get(root, (root, False))
    if root not in _places or (not there and os.path.lexists(place)):
        place = check_folder(root, owners())
        _places[root] = place, place.is_dir()
    return place


def read_code(path: Path) -> bytes:
    """Read a file of a folder that :func:`code_folders` returned; nothing where others may have written it.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    try:
        return read_trusted(path, owners())
    except UntrustedError as error:
        _say(path.parents[1], error)
        return b""


def code_home() -> Path:
    """Return where code is kept from now on.

    Raises
    ------
    OSError
        If that is nowhere; it says why.
    """
    why = list[str]()
    for root in code_roots():
        try:
            place = check_folder(root, owners())
        except UntrustedError as error:
            why.append(_unused(root, error))
            continue
        there = next(one for one in (place, *place.parents) if one.exists())
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            return place
        why.append(f"{root} cannot be written to")
    raise OSError("; ".join(why))


def owners() -> frozenset[int]:
    """Return who may write code: who runs it, and who could change this program too."""
    return frozenset((0, os.geteuid(), PACKAGE.stat().st_uid))


_said: set[Path | None] = set()


def forget_folders() -> None:
    """Look at the folders again, and say again what is wrong with them: as in a new process."""
    _places.clear()
    _said.clear()


def _say(root: Path, error: UntrustedError) -> None:
    """Say, once, that what is in a folder is not used."""
    _warn_once(root, _unused(root, error))


def warn_of_unkept_code() -> None:
    """Warn, once for all loops, that compiled code could not be written to any folder that may be used."""
    full = [str(root) for root in code_roots() if root not in _said]
    if full:
        _warn_once(
            None,
            f"every process compiles its loops again, because no file can be written to {' or '.join(full)}: set "
            "BUCKETFLOW_CACHE to a folder of your own that you can write to",
        )


def _warn_once(key: Path | None, text: str) -> None:
    if key not in _said:
        _said.add(key)
        import logging

        logging.getLogger(__name__).warning("bucketflow: %s", text)


def _unused(root: Path, error: UntrustedError) -> str:
    return (
        f"machine code is neither read from {root} nor kept there, because {error}, and whoever changes it could run "
        "anything as you: take that right away (chmod go-w), or set BUCKETFLOW_CACHE to a folder of your own"
    )


def is_compiled(module: str, function: str) -> bool:
    """Return whether there is code of a function of a module ("tasks.rows.layer_loops"), for whatever types."""
    return _is_compiled_for(processor(), module, function)


def _is_compiled_for(processor: str, module: str, function: str) -> bool:
    source = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    return any(next(folder.glob(f"{function}-{processor}-*"), None) for folder in code_folders(source))


_processor: list[str] = []


def processor() -> str:
    """Return the processor that this process loads and compiles code for; the first call decides.

    Code for this machine's own processor is preferred. If ``bucketflow warm`` left only portable code, the process uses
    portable code alone: functions that pass vectors to each other must all be compiled for the same processor.
    """
    if not _processor:
        given, host = os.environ.get("NUMBA_CPU_NAME"), host_processor()
        _processor.append(given or (PORTABLE if _has_only_portable_code(host) else host))
    return _processor[0]


def compile_for(processor: str) -> None:
    """Let this process, which has not loaded the compiler yet, load and compile code for a processor."""
    _processor[:] = [processor]


def _has_only_portable_code(host: str) -> bool:
    def is_warm(processor: str) -> bool:
        return _is_compiled_for(processor, "tasks.cpu.stream_loops", "stream")

    return runs_portable_code() and is_warm(PORTABLE) and not is_warm(host)


@cache
def sources_digest(source: Path) -> str:
    """Return a digest of the sources of a module's code."""
    from hashlib import sha256

    digest = sha256()
    for path in sorted(sources_of(source)):
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def sources_of(source: Path) -> set[Path]:
    """Return a module and all modules of the package that it imports, without the compiler's own."""
    found, waiting = {source}, [source]
    while waiting:
        fresh = {path for path in _imported(waiting.pop()) if path != _COMPILER} - found
        found |= fresh
        waiting += fresh
    return found


@cache
def _imported(source: Path) -> tuple[Path, ...]:
    """The modules of the package that one names in its import statements."""

    def named() -> Iterator[Path]:
        for dots, module, names in _IMPORT.findall(source.read_text()):
            base = source.parents[len(dots) - 1].joinpath(*filter(None, module.split(".")))
            yield base.with_suffix(".py")
            yield from (base / f"{name.strip()}.py" for name in names.split(","))

    return tuple(path for path in named() if path.is_file())


def seconds_to_compile(module: str, function: str, seconds: float) -> float:
    """Return the weighted seconds of compiling loops; 0 if they are compiled, or must be."""
    known = _impatient[0] or f"{PACKAGE.name}.{module}" in sys.modules or is_compiled(module, function)
    return 0.0 if known else seconds * CompilerPolicy.current().weight


_impatient = [False]


@contextmanager
def impatient() -> Iterator[None]:
    """Let compiled loops do whatever they can do."""
    _impatient[0] = True
    try:
        yield
    finally:
        _impatient[0] = False


class Patience:
    """Whether compiled loops had better do what NumPy can do too, with the same results.

    Loading a compiler and compiled loops takes some tenths of a second, compiling them several seconds: as long as
    NumPy took less than that in this process, it goes on.

    Parameters
    ----------
    module, function : str
        Of the loops.
    loading, loading_more, compiling : float
        Seconds of loading the compiler and the loops, of loading the loops once a process has loaded the compiler, and
        of compiling them.
    """

    def __init__(
        self, module: str, function: str, loading: float = 0.3, loading_more: float = 0.04, compiling: float = 3.0
    ) -> None:
        self._module, self._function, self._compiling = module, function, compiling
        self._loading, self._loading_more = loading, loading_more
        self._spent = 0.0

    def ends(self, seconds: float, ahead: float = 0.0) -> bool:
        """Return whether loops should replace NumPy for work of ``seconds`` seconds, with ``ahead`` more seconds
        likely.

        If not, these seconds count as spent. Compilation takes too long to begin for work that is only likely, and does
        not begin if it would exceed the remaining time.
        """
        if not may_compile(self._compiling) and not is_compiled(self._module, self._function):
            return False
        if _impatient[0] or f"{PACKAGE.name}.{self._module}" in sys.modules:
            return True
        self._spent += seconds
        loading = self._loading_more if "numba" in sys.modules else self._loading
        return self._spent > self._compiling or (self._spent + ahead > loading and self.compiled)

    @cached_property
    def compiled(self) -> bool:
        """Whether there was code of the loops when it was first of interest."""
        return is_compiled(self._module, self._function)


# Whether compiled kernels pay: importing and starting the compiler costs what NumPy does millions of cells in.

# Cells that NumPy sweeps, at 1.5 to 3 x 10^8 per second, in the time of importing a compiler and loading loops, 0.2 CPU
# seconds. Once the compiler is loaded, compiled loops are faster from far fewer cells on: ``QUICK_CELLS``.
COLD_CELLS = 3 << 24
# In the worst case NumPy sweeps that many in a second: as long as it takes less than compiling would, it goes on.
_CELLS_PER_SECOND = 1 << 25
_LOADING = COLD_CELLS / _CELLS_PER_SECOND
#: Cells that NumPy sweeps, in the worst case, in the time that compiling takes.
COMPILING_CELLS = 3 * _CELLS_PER_SECOND
_PATIENCE = Patience("tasks.cpu.stream_loops", "stream", loading=_LOADING)


def compiler_pays(cells: int) -> bool:
    """Return whether a run with ``cells`` cells should use compiled kernels.

    The compiler is loaded as soon as the runs of this process together have so many cells that loading it earlier would
    have paid. A process with many small runs is then as fast as one that began with a large run.
    """
    if cells < QUICK_CELLS:
        return False
    ahead = _LOADING if "numba" in sys.modules else 0.0
    return _PATIENCE.ends(cells / _CELLS_PER_SECOND, ahead=ahead) and not unknown_numba()
