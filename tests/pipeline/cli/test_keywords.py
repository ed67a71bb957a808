"""Keywords of the public functions have types, so that type checkers see typing errors; queries have one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, get_type_hints

import pytest

import bucketflow
from bucketflow.pipeline.api.answering import running
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.keywords import Bounding, Keywords, Sharing, Where
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.query_kinds import QUERIES, VALUES


def test_keywords_are_the_options() -> None:
    assert get_type_hints(Sharing) == {name: get_type_hints(Options)[name] for name in Options.__dataclass_fields__}
    assert get_type_hints(Sharing).keys() - get_type_hints(Keywords).keys() == {"priority", "most_workers"}


def test_bounds_take_some_of_them() -> None:
    every = get_type_hints(Keywords)
    assert {name: every[name] for name in get_type_hints(Bounding)} == get_type_hints(Bounding)


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        *((function, Keywords) for function in (bucketflow.solve, bucketflow.plan, bucketflow.marginals)),
        (bucketflow.compile, Keywords),
        (bucketflow.submit, Sharing),
        (bucketflow.bound, Bounding),
        *((function, Where) for function in (bucketflow.resume, bucketflow.Compiled.marginals_batch)),
        (bucketflow.Compiled.batches, Where),
    ],
)
def test_public_functions_say_which_keywords_they_take(function: Callable[..., Any], keywords: type) -> None:
    assert function.__annotations__["options"] == f"Unpack[{keywords.__name__}]"
    assert function.__globals__[keywords.__name__] is keywords
    assert function.__globals__["Unpack"] is Unpack


def test_every_query_has_an_answer_and_is_known_on_the_command_line() -> None:
    assert list(running._ANSWERS) == list(QUERIES)
    offered = {
        name: next(p.type for p in main.commands[name].params if p.name == "query") for name in ("solve", "plan")
    }
    assert [list(choice.choices) for choice in offered.values()] == [list(VALUES), list(QUERIES)]
    for name, kind in QUERIES.items():
        assert kind.name == name
        assert QUERIES[kind.swept].swept == kind.swept
        assert not QUERIES[kind.swept].both_ways
