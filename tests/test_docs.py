"""What the documentation says of the code: worked examples give what they show, and what is named is there."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import bucketflow
from bucketflow.cluster.version import DISTRIBUTION, REPOSITORY
from tests.test_structure import ROOMS, ROOT, modules

ARCHITECTURE = ROOT / "docs" / "architecture.md"
EXTENDING = ROOT / "docs" / "extending.md"
WORKED = [
    *("cluster.version", "pipeline.errors", "pipeline.plans.plan", "pipeline.orders.last_variables"),
    *("pipeline.orders.tree_search", "pipeline.trees.tree", "pipeline.trees.cutsets", "pipeline.trees.memory"),
    *("pipeline.plans.two_way_steps", "pipeline.plans.recompute", "pipeline.plans.task_graph", "pipeline.budget.spill"),
    *(f"pipeline.answering.engines.{name}" for name in ("engine_options", "strategy_policy", "turn_account")),
    *("tasks.steps.axes", "tasks.steps.lowering", "tasks.sweeps.sweep"),
]


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"bucketflow.{name}"))
    assert found.attempted
    assert not found.failed


# Names whose example needs a GPU, a server or a framework, and libraries that examples use.
_NO_EXAMPLE = {"jax", "serve", "torch"}
_LIBRARIES = {
    "BayesClassifier": "sklearn",
    "from_cpmpy": "cpmpy",
    "from_networkx": "networkx",
    "from_pandas": "pandas",
    "from_pgmpy": "pgmpy",
    "from_pyagrum": "pyagrum",
    "from_pytoulbar2": "pytoulbar2",
    "to_pgmpy": "pgmpy",
    "to_pyagrum": "pyagrum",
    "ContractionOptimizer": "opt_einsum",
    "einsum": "opt_einsum",
}


@pytest.mark.parametrize("name", sorted({*bucketflow.__all__} - _NO_EXAMPLE))
@pytest.mark.filterwarnings("default")
def test_every_public_name_has_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in _LIBRARIES:
        pytest.importorskip(_LIBRARIES[name])
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    (example,) = finder.find(getattr(bucketflow, name), name, module=False, globs={})
    assert example.examples
    assert not doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed


def test_the_example_of_the_architecture() -> None:
    found = doctest.testfile(str(ARCHITECTURE), module_relative=False)
    assert found.attempted
    assert not found.failed


def named(pattern: str) -> list[str]:
    """Return the code of the given form on the pages that describe the source."""
    text = ARCHITECTURE.read_text() + EXTENDING.read_text()
    return [name for name in re.findall(r"`([^`\n]+)`", text) if re.fullmatch(pattern, name)]


def test_the_examples_of_tensor_networks() -> None:
    found = doctest.testfile(str(ROOT / "docs/tutorials/tensor-networks.md"), module_relative=False)
    assert found.attempted
    assert not found.failed


def stores_examples() -> tuple[str, str]:
    """How tables on disk are opened, with Zarr and with xarray."""
    page = (ROOT / "docs" / "out-of-core.md").read_text().partition("## Looking at tables")[2]
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return first, second


def test_tables_on_disk_open_with_zarr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(stores_examples()[0], names)
    assert len(names["tables"]) >= 2
    largest = names["largest"]
    assert largest[...].size == largest.size
    assert names["group"].attrs["semiring"] == "sum_product"


def test_tables_on_disk_open_with_xarray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for example in stores_examples():
        exec(example, names)
    assert set(names["tables"].sizes) >= set(names["largest"].metadata.dimension_names)


def test_the_architecture_names_every_folder() -> None:
    """Those of rooms; what folders inside them hold, their packages say."""
    folders = {path.parent.relative_to(ROOT) for path in modules()}
    assert {f"{folder}/" for folder in folders if len(folder.parts) < 3} - set(named(r"[\w/]+/")) == set()
    undescribed = [f for f in folders if not ast.get_docstring(ast.parse((ROOT / f / "__init__.py").read_text()))]
    assert undescribed == []


def test_every_folder_that_the_architecture_names_is_there() -> None:
    assert [name for name in named(r"[\w/]+/") if not (ROOT / name).is_dir()] == []


def test_every_file_and_function_that_the_architecture_names_is_there() -> None:
    names = named(r"[\w/]+\.py(:[\w.]+)?")
    assert names
    for file, _, function in (name.partition(":") for name in names):
        assert (ROOT / file).is_file(), file
        assert not function or function in defined(ROOT / file), f"{file} has no {function}"


@cache
def defined(path: Path) -> frozenset[str]:
    """Names that a module defines, those inside its classes too, alone and after the name of the class."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        names |= set(_bound(node))
        if isinstance(node, ast.ClassDef):
            inside = {name for member in node.body for name in _bound(member)}
            names |= inside | {f"{node.name}.{name}" for name in inside}
    return frozenset(names)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


@cache
def everywhere() -> frozenset[str]:
    """Dotted names of all modules, and of what they define."""
    names = {f"bucketflow.{name}" for name in bucketflow.__all__}
    for path in modules():
        module = ".".join(("bucketflow", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        names |= {module, *(f"{module}.{name}" for name in defined(path))}
    return frozenset(names)


def resolves(target: str, path: Path) -> bool:
    """Whether a reference in a module's text is to something: by a whole name, from a dot on, or to a name nearby."""
    target = target.removeprefix("~")
    if target.startswith("."):
        return any(name.endswith(target) for name in everywhere())
    return target in defined(path) or target in bucketflow.__all__ or target in everywhere()


def test_references_in_docstrings_resolve() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in [*modules(), ROOT / "__init__.py"]
        for target in re.findall(r":(?:func|class|mod|meth|data|attr):`([^`]+)`", path.read_text())
        if not resolves(target, path)
    ]
    assert wrong == []


def texts_for_users() -> Iterator[Path]:
    """Everything that may say how the package is installed: modules, tests, benches, pages, settings."""
    yield from modules()
    yield from sorted((ROOT / "tests").rglob("*.py"))
    for pattern in ("*.md", "docs/**/*.md", "*.toml", "*.cff", ".ci/*", ".github/**/*.*", "__init__.py"):
        yield from sorted(ROOT.glob(pattern))


def test_no_text_installs_another_package() -> None:
    """The public package ``bucketflow`` is somebody else's; extras that are named are there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION == "bucketflow-inference"
    assert importlib.import_module("bucketflow.cluster.version").install_hint("ssh").count("[ssh]") == 2
    for path in texts_for_users():
        text = path.read_text()
        assert re.findall(r"install[^\n]*[ '\"`]bucketflow(?:\[|==|['\"`]|$)", text, re.MULTILINE) == [], path
        assert re.findall(r"[^-\w]bucketflow\[\w", text) == [], path
        named = re.findall(r"""install_hint\(["'](\w+)|(?:-inference|'\.)\[(\w+)\]""", text)
        assert {first or second for first, second in named} <= {*project["optional-dependencies"]}, path


def test_examples_in_python_import_what_they_use() -> None:
    """Every block of a page has its imports, or follows one that has them."""
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        known: set[str] = {*dir(builtins)}
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
            nodes = list(ast.walk(ast.parse(block)))
            for node in nodes:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    known |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    known.add(node.id)
                elif isinstance(node, ast.arg):
                    known.add(node.arg)
                elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                    known.add(node.name)
            used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            assert used <= known, f"{path.name}: {sorted(used - known)}"


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version", "urls"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "bucketflow.cluster.version.__version__"}
    assert bucketflow.__version__ == importlib.import_module("bucketflow.cluster.version").__version__
    written = [path for path in modules() if f'"{bucketflow.__version__}"' in path.read_text()]
    assert written == [ROOT / "cluster" / "version.py"]


def test_the_changelog_the_citation_and_the_version_agree() -> None:
    """What was released last is cited; what is worked on comes after it."""
    released = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    numbers = [tuple(map(int, version.split("."))) for version in released]
    assert numbers == sorted(numbers, reverse=True)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == released[0]
    ours, _, development = bucketflow.__version__.partition(".dev")
    assert tuple(map(int, ours.split("."))) > numbers[0] if development else ours == released[0]


def test_the_address_and_the_authors_are_written_once() -> None:
    """The metadata and the site take the address from `cluster/version.py`; the README names it once it is known."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert "urls" in project["dynamic"]
    assert REPOSITORY in (ROOT / "README.md").read_text()
    assert cited.get("repository-code", "") == REPOSITORY
    assert project["keywords"] == cited["keywords"]
    assert [author["name"] for author in project["authors"]] == [author["name"] for author in cited["authors"]]


def test_settings_for_others_are_yaml_and_name_what_is_there() -> None:
    files = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
    assert len(files) >= 5
    for path in files:
        assert yaml.safe_load(path.read_text())
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["check"]
    versions = matrix["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert f'VERSIONS="{" ".join(versions)}"' in (ROOT / ".ci" / "environments").read_text().splitlines()
    assert [step["run"] for step in matrix["steps"] if "run" in step] == [".ci/run"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"


def test_no_text_names_a_file_that_is_gone() -> None:
    rooms = [*ROOMS, "tests"]
    known = {path.name for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".cu", ".cuh")}
    texts = [*modules(), *(ROOT / "tasks/gpu/cuda").glob("*.cu*"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        for name in re.findall(r"\b\w+\.(?:py|cuh?)\b", path.read_text())
        if name not in known
    ]
    assert wrong == []


def test_public_names_are_american() -> None:
    """Prose is British; names follow the file formats and libraries, which write `maximize`."""
    british = re.compile(r"[a-z]+(?:alis|imis|aris|oris)(?:e|ed|es|er|ing|ation)\b|labelled|colour|neighbour|behaviour")
    named = set(bucketflow.__all__)
    for name in bucketflow.__all__:
        found = getattr(bucketflow, name)
        if inspect.isfunction(found):
            named.update(inspect.signature(found).parameters)
        if inspect.isclass(found):
            named.update(each for each in [*dir(found), *vars(found).get("__annotations__", ())] if each[0] != "_")
    assert not [name for name in named if british.search(name.lower())]
