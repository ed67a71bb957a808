"""Rooms and their folders import only downwards, and planning never touches tables, disks or clusters."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from bucketflow.tasks.gpu.tiling.tiling_policy import NOMINAL

ROOT = Path(__file__).parents[1]
ROOMS = {
    "storage": set(),
    "tasks": {"storage"},
    "cluster": set(),
    "pipeline": {"storage", "tasks", "cluster"},
}
# From the ground up: a folder imports only from itself and from those before it. What stands in a folder of a folder
# without a floor of its own belongs to that folder's.
FLOORS = {
    "tasks": [
        *("steps", "gpu/tiling", "gpu", "compiler", "cpu", "sweeps", "rows", "boxes", "counting", "diagrams"),
        *("gpu/messages", "incremental", "networks", "search"),
    ],
    "pipeline": [
        *(
            "errors.py",
            "local_paths.py",
            "metrics.py",
            "drawings",
            "models",
            "trees",
            "orders",
            "plans",
            "budget",
            "simulation",
            "preprocessing",
        ),
        *(
            "cost_networks",
            "minibuckets",
            "proofs",
            "compiling.py",
            "options.py",
            "results",
            "queries",
            "machine",
            "runs",
            "gates",
            "agents",
        ),
        *(
            "examples",
            "formats",
            "answering",
            "assignments",
            "api",
            "compiled",
            "circuits",
            "dynamic",
            "learning",
            "bridges",
            "batches",
            "server",
            "jobs",
            "report",
            "reproduce",
            "cli",
        ),
    ],
}
PURE = ["pipeline/trees", "pipeline/orders", "pipeline/plans", "pipeline/budget", "tasks/steps", "tasks/gpu/tiling"]
HEAVY = {"zarr", "dask", "distributed", "cupy", "numba"}
# A folder is worth a name where it holds some modules, and is read at a glance up to this many. Examples are files,
# and tasks is a room of folders.
FEWEST_MODULES, MOST_MODULES = 3, 18
NO_MODULES = {"pipeline/examples", "tasks"}
# Modules of the command line are named as its commands are, which are named as the functions that they call.
COMMANDS = "pipeline/cli"


def modules(folder: str = "") -> Iterator[Path]:
    """All modules of the package below a folder."""
    for room in [folder] if folder else ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


@cache
def import_statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Those of a module, inside functions and for type checking too."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


@cache
def imported(path: Path) -> tuple[Path, ...]:
    """Files of the package that a module imports."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[Path]:
    package = path.relative_to(ROOT).parent
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ROOT.joinpath(*package.parts[: len(package.parts) - node.level + 1])
            target = base.joinpath(*node.module.split(".")) if node.module else base
            if target.with_suffix(".py").exists():
                yield target.with_suffix(".py")
                continue
            for alias in node.names:
                module = (target / alias.name).with_suffix(".py")
                yield module if module.exists() else target / "__init__.py"


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def floor_of(path: Path) -> int:
    """Where a module stands in its room: the floor of its folder, or its own."""
    room, *inside = path.relative_to(ROOT).parts
    floors = FLOORS[room]
    for depth in range(len(inside), -1, -1):
        if (name := "/".join(inside[:depth])) in floors:
            return floors.index(name)
    raise AssertionError(f"{path} stands on no floor")


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    for path in modules(room):
        assert {room_of(p) for p in imported(path)} <= {room, "", *ROOMS[room]}, path


def test_nobody_imports_the_root() -> None:
    for path in modules():
        for node in import_statements(path):
            depth = len(path.relative_to(ROOT).parts) - 1
            if isinstance(node, ast.ImportFrom) and node.level == depth + 1 and node.module is None:
                assert [a.name for a in node.names if a.name not in ROOMS] == [], path


@pytest.mark.parametrize("room", FLOORS)
def test_folders_import_downwards(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} -> {target.relative_to(ROOT)}"
        for path in modules(room)
        for target in imported(path)
        if path.name != "__init__.py" and room_of(target) == room and floor_of(target) > floor_of(path)
    ]
    assert wrong == []


def test_no_import_circles() -> None:
    """Also none that only type checkers would follow."""
    edges = {path: {t for t in imported(path) if t.name != "__init__.py"} - {path} for path in modules()}
    done: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        assert path not in trail, " -> ".join(str(p.relative_to(ROOT)) for p in (*trail, path))
        if path not in done:
            for target in edges.get(path, ()):
                visit(target, (*trail, path))
            done.add(path)

    for path in edges:
        visit(path, ())


def test_folders_hold_some_modules_and_not_too_many() -> None:
    for folder in {path.parent for path in modules()} - {ROOT / name for name in NO_MODULES}:
        count = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        assert FEWEST_MODULES <= count <= MOST_MODULES, f"{folder} has {count} modules"


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_name_stands_once_in_a_room(room: str) -> None:
    places: dict[str, list[Path]] = {}
    for path in modules(room):
        if path.name != "__init__.py" and not path.is_relative_to(ROOT / COMMANDS):
            places.setdefault(path.name, []).append(path.relative_to(ROOT))
    assert [found for found in places.values() if len(found) > 1] == []


def test_a_class_name_means_one_thing() -> None:
    found = defaultdict[str, list[str]](list)
    for path in modules():
        if "tests" not in path.relative_to(ROOT).parts:
            for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
                found[name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_every_folder_is_a_package_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = {name for name in project["tool"]["setuptools"]["packages"] if name.count(".")}
    folders = {path.parent.relative_to(ROOT) for path in modules()}
    folders |= {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.cu")}
    assert listed == {".".join(("bucketflow", *folder.parts)) for folder in folders}


def check_purity(path: Path, allowed: Collection[str] = ()) -> None:
    """A module imports no room of disks or workers, and nothing heavy but what is allowed."""
    assert not {room_of(p) for p in imported(path)} & {"storage", "cluster"}, path
    for node in import_statements(path):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        assert not {name.split(".")[0] for name in names} & HEAVY - {*allowed}, path


def test_every_room_of_the_pipeline_has_tests_of_its_own() -> None:
    rooms = {path.name for path in (ROOT / "pipeline").iterdir() if (path / "__init__.py").exists()}
    tested = {path.parent.name for path in (ROOT / "tests" / "pipeline").glob("*/test_*.py")}
    assert rooms <= tested


@pytest.mark.parametrize("folder", PURE)
def test_planning_is_pure(folder: str) -> None:
    for path in modules(folder):
        check_purity(path, {"numba"} if folder == "pipeline/orders" else ())


def test_modules_that_call_themselves_pure_are() -> None:
    elsewhere = [path for path in modules() if not any(path.is_relative_to(ROOT / folder) for folder in PURE)]
    named = [path for path in elsewhere if "Pure" in path.read_text()]
    pure = [path for path in named if "Pure" in (ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert len(pure) >= 4
    for path in pure:
        check_purity(path)


def test_processors_of_a_device_stand_in_one_place() -> None:
    """Everything else takes them from there, or asks the device it runs on."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*modules(), *sorted((ROOT / "tests" / "bench").rglob("*.py"))]
        if str(NOMINAL.processors) in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == NOMINAL.processors and path.name != "tiling_policy.py"
    ]
    assert wrong == []


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from bucketflow.pipeline.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'numba', 'dask', 'distributed', 'zarr', 'rich') if m in sys.modules])"
    )
    assert run_python(code).strip().endswith("[]")


def test_reading_a_model_imports_nothing_of_networks() -> None:
    code = (
        "import sys, bucketflow; bucketflow.load('satellite')\n"
        "print([m for m in ('urllib.request', 'http.client', 'email', 'ssl', 'asyncio') if m in sys.modules])"
    )
    assert run_python(code).strip() == "[]"


def test_planning_and_small_solves_need_no_compiler_disk_or_cluster() -> None:
    code = (
        "import sys\n"
        "for name in ('zarr', 'dask', 'distributed', 'cupy', 'numba', 'cotengra'): sys.modules[name] = None\n"
        "import bucketflow\n"
        "from bucketflow.pipeline.examples import example_path\n"
        "for name in ('satellite', 'diagnosis'):\n"
        "    print(bucketflow.solve(bucketflow.load(example_path(name)), memory='1GB').status)"
    )
    assert run_python(code).split() == ["optimal", "optimal"]


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("solve('satellite').status", ("pipeline.results.posteriors",)),
        ("solve('diagnosis').status", ("pipeline.results.posteriors", "pipeline.formats.global_functions")),
        ("marginals('diagnosis').status", ("pipeline.formats.global_functions",)),
    ],
)
def test_small_questions_load_nothing_of_rows_boxes_devices_or_other_formats(
    question: str, others: tuple[str, ...]
) -> None:
    rooms = (
        *("tasks.rows.algebra", "tasks.rows.joins", "tasks.boxes.box", "tasks.boxes.stores", "tasks.incremental"),
        *("tasks.gpu.decoding", "tasks.gpu.messages", "tasks.gpu.tiling"),
        *("storage.chunks", "storage.ledger", "storage.tables", "storage.spec", "cluster.connect"),
        *("cluster.worker_facts", "tasks.counting", "pipeline.answering.counts", "pipeline.queries.counting"),
        *("pipeline.queries.formula", "tasks.compiler.outside_process"),
        *("pipeline.budget.device_fit", "pipeline.budget.rows_fit", "pipeline.budget.spill"),
        *("pipeline.cost_networks.elimination", "pipeline.proofs.provers", "pipeline.runs.dense_boxes"),
        *("pipeline.formats.dcop", "pipeline.formats.write"),
    )
    begins = tuple(f"bucketflow.{room}" for room in (*rooms, *others))
    # of the standard library and NumPy, modules that take some tenths of a millisecond each, or more
    standard = ("asyncio", "concurrent.futures", "hashlib", "mmap", "numpy.ma", "select")
    code = (
        f"import sys, bucketflow; assert bucketflow.{question} is not None\n"
        f"print([m for m in sys.modules if m.startswith({begins}) or m in {standard}])"
    )
    assert run_python(code).strip() == "[]"


def test_a_test_or_a_bench_sets_every_policy_field() -> None:
    """Other tuned numbers are constants beside their use. Numbers that the limits of a device imply need no test."""
    tests = {word for path in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
    unset = [
        f"{cls.name}.{field.target.id}"
        for path in modules()
        if re.search(r"^class \w*Policy\(", path.read_text(), re.MULTILINE)
        for cls in ast.parse(path.read_text()).body
        if isinstance(cls, ast.ClassDef) and cls.name.endswith("Policy") and "Policy" in map(ast.unparse, cls.bases)
        for field in cls.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None
        if "NOMINAL" not in ast.unparse(field.value) and not field.target.id.startswith("_")
        if field.target.id not in tests
    ]
    assert not unset


#: Fields of policies and module constants with a numeric value may be this many. Lower it when numbers go.
MOST_NUMBERS = 1_008


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, or arithmetic of numbers."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def numbers_of(path: Path) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Names and values of a module's numeric constants and of its policies' fields."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and "Policy" in map(ast.unparse, node.bases):
            yield from ((f.target, f.value) for f in node.body if isinstance(f, ast.AnnAssign) and f.value is not None)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
            yield from ((name, value) for name, value in pairs if is_number(value))


def test_numbers_do_not_become_more() -> None:
    """A new number needs a measurement that it changes; it replaces another, or follows from others."""
    count = sum(1 for path in modules() for _ in numbers_of(path))
    assert count <= MOST_NUMBERS, f"{count} numbers, and {MOST_NUMBERS} are allowed"


#: Tests may replace this number of private attributes (``monkeypatch.setattr``). Lower it when replacements go.
MOST_PRIVATE_REPLACEMENTS = 12


def private_replacements(path: Path) -> Iterator[str]:
    """Calls of ``setattr`` in a module for a name that begins with one underscore."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
            if any(isinstance(text, str) and re.search(r"(^|\.)_[^_.][^.]*$", text) for text in texts):
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_private_names_are_not_replaced_more_often() -> None:
    """A test puts a policy in force, or gives a parameter, instead: it survives changes of private code."""
    found = [place for path in (ROOT / "tests").rglob("*.py") for place in private_replacements(path)]
    assert len(found) <= MOST_PRIVATE_REPLACEMENTS, found
