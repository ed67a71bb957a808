"""Notebooks as pages: their texts and code, and the results of their cells.

The cells run in this process, one notebook after the other: six kernels would import everything six times.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Cell = dict[str, Any]


def notebook_page(path: Path, run: bool) -> str:
    """Return a notebook as Markdown; if ``run``, it is executed first, and its results stand under its code."""
    text = path.read_text()
    cells: list[Cell] = executed(path.name, text) if run else json.loads(text)["cells"]
    first, *others = ["\n\n".join(_blocks(cell)) for cell in cells]
    title, _, rest = first.partition("\n")
    from_here = (
        f"[The notebook]({path.name}) of this page runs as it is.{'' if run else ' Its results are not shown here.'}"
    )
    return "\n\n".join([title, from_here, rest.strip(), *others])


@cache
def executed(name: str, text: str) -> list[Cell]:
    """Return the cells of a notebook with their results.

    Raises
    ------
    ValueError
        If a cell fails.
    """
    cells: list[Cell] = json.loads(text)["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    with TemporaryDirectory() as folder, chdir(folder):
        for k, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                try:
                    cell["outputs"] = results("".join(cell["source"]), names)
                except Exception as error:
                    raise ValueError(f"{name}: cell {k + 1} failed: {error!r}") from error
    return cells


def results(source: str, names: dict[str, Any]) -> list[Cell]:
    """Run the code of a cell; return its printed text and the value of its last expression, as notebooks store them."""
    *body, last = ast.parse(source).body
    shown = isinstance(last, ast.Expr)
    printed, value = io.StringIO(), None
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        exec(compile(ast.Module(body if shown else [*body, last], []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    found: list[Cell] = [{"name": "stdout", "text": printed.getvalue()}] if printed.getvalue() else []
    if value is not None:
        kinds = (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_"))
        data = {kind: getattr(value, method)() for kind, method in kinds if hasattr(value, method)}
        found.append({"data": {**data, "text/plain": repr(value)}})
    return found


def _blocks(cell: Cell) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield from _shown(output)


def _shown(output: Cell) -> Iterator[str]:
    """Yield a result: a drawing or a table as it is, otherwise its text; no progress messages."""
    data = output.get("data", {})
    if rich := data.get("text/html") or data.get("image/svg+xml"):
        yield f'<div class="notebook-output">{_one_line("".join(rich))}</div>'
    elif (text := "".join(output.get("text") or data.get("text/plain") or "")) and output.get("name") != "stderr":
        yield f"```{{.text .notebook-output}}\n{text.rstrip()}\n```"


def _one_line(markup: str) -> str:
    """Return markup without line breaks: Markdown takes an empty line, or an indented one, for its own."""
    return "&#10;".join(line.strip() for line in markup.strip().splitlines())
