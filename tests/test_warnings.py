"""A warning that this project causes fails its test; what another package says does not."""

from __future__ import annotations

import warnings

import pytest


def warned(category: type[Warning], module: str, message: str = "text") -> None:
    warnings.warn_explicit(message, category, "file.py", 1, module)


@pytest.mark.parametrize("module", ["bucketflow.pipeline.errors", "tests.test_warnings"])
@pytest.mark.parametrize("category", [RuntimeWarning, UserWarning, SyntaxWarning])
def test_ours_are_errors(category: type[Warning], module: str) -> None:
    with pytest.raises(category, match="text"):
        warned(category, module)


@pytest.mark.parametrize(
    ("category", "module"),
    [
        *((category, "numpy.ma") for category in (RuntimeWarning, UserWarning, DeprecationWarning, ResourceWarning)),
        *((category, "bucketflow.pipeline.errors") for category in (DeprecationWarning, FutureWarning)),
    ],
)
def test_those_of_other_packages_are_listed(category: type[Warning], module: str) -> None:
    with pytest.warns(category, match="text"):
        warned(category, module)


def test_files_that_are_left_open_are_errors() -> None:
    with pytest.raises(ResourceWarning):
        warned(ResourceWarning, "sys", "unclosed file <a>")
