"""What a terminal shows before and beside the bar: planning, and that loops are compiled; what compiling took."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.answering import answer_question
from bucketflow.pipeline.api import bound as bound_module
from bucketflow.pipeline.api import progress
from bucketflow.pipeline.compiling import apart, counts_compiling
from bucketflow.pipeline.drawings.shown import DisplayPolicy
from bucketflow.pipeline.results.remaining_time import ClosingBounds, SweptShare
from bucketflow.pipeline.results.result import Result
from bucketflow.tasks.compiler import jit, working_time
from bucketflow.tasks.compiler.working_time import compiling_seconds, say_compiling, told_of_compiling


@pytest.fixture(autouse=True)
def bars_at_once() -> Iterator[None]:
    with DisplayPolicy.using(bar_seconds=-1.0):
        yield


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Let standard error be one; called by tests, as pytest takes it back before them."""
    made = io.StringIO()
    monkeypatch.setattr(made, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setenv("COLUMNS", "100")
    return made


def since(terminal: io.StringIO) -> str:
    """What was drawn since the last look."""
    shown = terminal.getvalue()
    terminal.seek(0)
    terminal.truncate()
    return shown


def test_planning_is_a_phase_and_compiling_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with progress.progress_lines(hidden=False) as report:
        assert report is not None
        assert "planning" in since(terminal)
        with progress.status_line(False, "another") as status:
            say_compiling(True)
            status.end()
            assert progress.COMPILING in since(terminal)
        say_compiling(False)
        report(ClosingBounds(None, None, "preparation"))
        report(ClosingBounds(90, 100, "rows"))
        report(SweptShare(1, 4, 12.5))  # the line is drawn a last time, and the bar a first time
        drawn = since(terminal)
        assert "rows: at least 90, at most 100" in drawn
        assert "sweeping" in drawn
        assert "25%, 12.5 s left" in drawn
        say_compiling(True)
        report(SweptShare(3, 4))
    assert progress.COMPILING in since(terminal)
    assert not working_time._listeners


def test_nobody_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    with progress.progress_lines(hidden=True) as hidden, progress.status_line(False, "planning") as status:
        say_compiling(True)
        status.say("something")
        assert hidden is None
        assert not working_time._listeners
    assert output.getvalue() == ""


def test_pipes_get_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    output, now = io.StringIO(), [0.0]
    monkeypatch.setattr("sys.stderr", output)
    with progress.progress_lines(hidden=False, clock=lambda: now[0]) as report:
        assert report is not None
        for second in range(36):
            now[0] = float(second)
            if second < 15:
                report(ClosingBounds(90, 100, "rows"))
            else:
                report(SweptShare(second, 100, 100.0 - second))
    assert output.getvalue().splitlines() == [
        "rows: at least 90, at most 100, gap 0.1",
        "sweeping: 20%, 80.0 s left",
        "sweeping: 30%, 70.0 s left",
    ]


def test_batches_draw_the_same_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    rows = [SimpleNamespace(number=n, name=str(n)) for n in (1, 2)]
    with progress.rows_bar(hidden=False) as draw:
        draw("begin", {"asked": 2})
        for row in rows:
            draw("asking", {"rows": [row]})
            draw("row", {"key": row.name})
    drawn = since(terminal)
    assert re.search(r"asking row 2\b.*100%", drawn)


@DisplayPolicy.using(bar_seconds=600.0)
def test_a_short_command_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with progress.progress_lines(hidden=False) as report:
        assert report is not None
        report(ClosingBounds(1, 2, "rows"))
        report(SweptShare(1, 2))
    assert terminal.getvalue().strip("\n") == ""


def test_compilers_tell_and_count() -> None:
    told: list[bool] = []
    before = compiling_seconds()

    @jit.njit()
    def doubled(x: float) -> float:
        return x * 2

    with told_of_compiling(told.append):
        assert doubled(1.5) == 3.0
        assert doubled(2.5) == 5.0
    assert told == [True, False]
    assert compiling_seconds() > before
    assert doubled(np.float32(1.5)) == 3.0
    assert told == [True, False]


def compile_meanwhile(function: Any) -> Any:
    """The function, in which compiling takes a day."""

    def slow(*args: Any, **kwargs: Any) -> Any:
        working_time.count_compiling(0.0, 86_400.0)
        return function(*args, **kwargs)

    return slow


def test_answers_say_how_long_compiling_took(monkeypatch: pytest.MonkeyPatch) -> None:
    model, posterior = bucketflow.load("satellite"), bucketflow.load("diagnosis")
    # compile what the cache lacks
    bucketflow.solve(model)
    bucketflow.marginals(posterior)
    bucketflow.bound(model, z=2)
    assert "compile" not in bucketflow.solve(model).seconds
    for place, name in ((answer_question, "walk"), (bound_module, "_question")):
        monkeypatch.setattr(place, name, compile_meanwhile(getattr(place, name)))
    for found in (bucketflow.solve(model), bucketflow.marginals(posterior), bucketflow.bound(model, z=2)):
        assert found.seconds["compile"] == pytest.approx(86_400.0)
        assert all(seconds >= 0.0 for seconds in found.seconds.values())


def test_compiling_is_part_of_no_phase() -> None:
    assert apart({"plan": 2.0, "run": 5.0, "decode": 1.0}, 6.5, 8.0) == pytest.approx(
        {"plan": 0.5, "run": 0.0, "decode": 1.0, "compile": 6.5}
    )
    assert apart({"run": 5.0, "compile": 4.0}, 4.0, 20.0) == {"run": 5.0, "compile": 4.0}

    @counts_compiling
    def nested() -> Result:
        return bucketflow.solve(bucketflow.load("satellite"))

    nested()  # compiles what the cache lacks
    assert "compile" not in nested().seconds


def test_progress_is_drawn_in_python_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    terminal = on_a_terminal(monkeypatch)
    expected = bucketflow.solve("satellite")
    assert since(terminal) == ""
    told: list[tuple[int, int]] = []
    bucketflow.solve("satellite", progress=lambda done, planned: told.append((done, planned)))
    assert since(terminal) == ""
    for ask, phases in (
        (lambda: bucketflow.solve("satellite", progress=True), ("reading", "planning")),
        (lambda: bucketflow.marginals("diagnosis", progress=True), ("reading", "planning")),
        (lambda: bucketflow.compile("diagnosis", progress=True), ("reading", "planning")),
        (lambda: bucketflow.sample("diagnosis", 2, progress=True), ("reading", "drawing")),
        (lambda: bucketflow.bound("satellite", z=3, progress=True), ("reading", "mini-buckets")),
        (lambda: bucketflow.batch([{"model": "satellite"}], tmp_path / "out", progress=True), ("asking row 1",)),
    ):
        found = ask()
        drawn = since(terminal)
        assert all(phase in drawn for phase in phases), drawn
        if isinstance(found, Result):
            assert found.value == expected.value


def test_progress_is_for_those_who_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.StringIO()
    monkeypatch.setattr("sys.stderr", made)
    bucketflow.solve("satellite", progress=True)
    assert made.getvalue() == ""


@pytest.mark.parametrize(
    ("shell", "drawn"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)]
)
def test_a_notebook_is_a_kernel_that_runs(shell: object, drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a module that somebody imported."""
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress, "find_spec", lambda name: ModuleSpec(name, None))
    assert progress.is_drawn(hidden=False) == drawn


def test_a_notebook_without_widgets_is_told_once_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.StringIO()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    progress._say_what_is_missing.cache_clear()
    for _ in range(2):
        assert bucketflow.solve("satellite", progress=True).status == "optimal"
    assert made.getvalue() == "bucketflow: progress in a notebook needs ipywidgets: pip install ipywidgets\n"
