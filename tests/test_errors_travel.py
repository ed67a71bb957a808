"""Every exception of the package survives pickling, as workers send them: its type, its attributes, its message."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import bucketflow
from bucketflow.cluster.worker_facts import WorkerFacts
from bucketflow.pipeline.trees.tree import Tree

# An argument of each annotated type; the parameter's name makes texts differ.
_ARGUMENTS: dict[Any, Any] = {
    int: 7,
    float: 0.5,
    bool: True,
    HTTPStatus: HTTPStatus.BAD_REQUEST,
    Path: Path("some/file"),
    Tree: Tree((2, 2), ((0, 1),), ((0,),)),
    WorkerFacts: WorkerFacts("tcp://host:1", "host", 1, 10**9, 10**10),
}


def _modules() -> Iterator[Any]:
    """Import the modules of the package, but those that need what is not installed."""
    for found in pkgutil.walk_packages(bucketflow.__path__, "bucketflow."):
        parts = found.name.split(".")
        if parts[1] in ("tests", "docs", "setup") or parts[-1] == "__main__":
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:
            continue


def _errors() -> list[type[BaseException]]:
    """Return every exception class that a module of the package defines."""
    found = {
        each
        for module in _modules()
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, BaseException)
        if each.__module__.partition(".")[0] == "bucketflow"
    }
    return sorted(found, key=lambda each: each.__qualname__)


def _argument(name: str, annotation: Any) -> Any:
    """Return a plausible argument for an annotated parameter."""
    if get_origin(annotation) is tuple:
        kind = get_args(annotation)[0]
        return (_argument(name, kind), _argument(name, kind))
    for each in (annotation, *get_args(annotation)):
        if each in _ARGUMENTS:
            return _ARGUMENTS[each]
    if annotation is str or str in get_args(annotation):
        return f"text of {name}"
    raise AssertionError(f"the test has no argument for {name}: {annotation}")


def _made(kind: type[BaseException]) -> BaseException:
    """Build an exception with all its arguments."""
    if not inspect.isfunction(kind.__init__):  # the one of Exception
        return kind("a sentence")
    hints = get_type_hints(kind.__init__)
    names = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    return kind(*[_argument(name, hints[name]) for name in names])


@pytest.fixture(scope="module")
def errors() -> list[type[BaseException]]:
    """Every exception class of the package. A fixture, because importing all modules takes seconds."""
    return _errors()


def test_the_errors_of_all_rooms_are_found(errors: list[type[BaseException]]) -> None:
    names = {each.__name__ for each in errors}
    assert {"FormatError", "HopelessError", "TooManyRowsError", "ChunkLostError", "NotCompiledError"} <= names
    assert len(errors) > 40


def test_errors_survive_pickling(errors: list[type[BaseException]]) -> None:
    for kind in errors:
        error = _made(kind)
        found = pickle.loads(pickle.dumps(error))
        assert type(found) is kind
        assert vars(found) == vars(error)
        assert str(found) == str(error)
        assert found.args == error.args
