"""Notebooks as pages: their texts and code, and what their cells gave where they are run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def notebook_page(path: Path, run: bool) -> str:
    """Return a notebook as Markdown; if ``run``, it is executed first, and its results stand under its code."""
    cells: list[Cell] = executed(path) if run else json.loads(path.read_text())["cells"]
    first, *others = ["\n\n".join(_blocks(cell)) for cell in cells]
    title, _, rest = first.partition("\n")
    from_here = (
        f"[The notebook]({path.name}) of this page runs as it is.{'' if run else ' Its results are not shown here.'}"
    )
    return "\n\n".join([title, from_here, rest.strip(), *others])


def executed(path: Path) -> list[Cell]:
    """Return the cells of a notebook with what they gave."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return list(notebook["cells"])


def _blocks(cell: Cell) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield from _shown(output)


def _shown(output: Cell) -> Iterator[str]:
    """Yield what a cell gave: a drawing or a table as such, else its text; not what it wrote about its working."""
    data = output.get("data", {})
    if rich := data.get("text/html") or data.get("image/svg+xml"):
        yield f'<div class="notebook-output">{"".join(rich)}</div>'
    elif (text := "".join(output.get("text") or data.get("text/plain") or "")) and output.get("name") != "stderr":
        yield f"```{{.text .notebook-output}}\n{text.rstrip()}\n```"
