"""Output of ``info``, ``inspect``, ``examples`` and ``calibrate``, and the printing of lines and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...storage import ledger
from ...storage.faults import StorageError
from ...storage.files import Place, file_bytes
from ...storage.run_folder import stored_bounds, stored_plan, stored_result
from ...storage.spec import Receipt
from ...storage.tables import stored_arrays
from ..drawings.shown import LISTED_MEMBERS, LISTED_STEPS, SAME_SECONDS, wrapped
from ..errors import IncompatibleRunError, counted, encodable, format_bytes, logarithm, printable, shorten
from ..examples import examples
from ..formats.registry import formats, unread_formats
from ..learning.fit_folder import fit_facts, stored_fit

_NO_BREAK = "\u00a0"


def print_facts(facts: dict[str, Any]) -> None:
    """Print labelled facts, leaving out what does not apply; notes are printed by themselves."""
    shown = {label: value for label, value in facts.items() if value is not None and value != "" and label != "notes"}
    print_rows((k.replace("_", " "), f"{v:,}" if isinstance(v, int) else str(v)) for k, v in shown.items())


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print labelled lines, wrapped at the terminal's width."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        lead = f"{label:<{width}}  "
        for line in wrapped(lead, encodable(printable(text, len(text)))):
            show(Text.assemble((line[: len(lead)], "dim"), line[len(lead) :]), soft_wrap=True, highlight=False)


def print_run(facts: dict[str, Any]) -> None:
    """Print the state of a run directory: its answer or bounds, its stages, and its slowest tasks.

    Parameters
    ----------
    facts : dict
        As returned by :func:`run_facts`.
    """
    head = [(label, str(facts[label])) for label in ("model", "query", "status")]
    if facts["query"] == "fit":
        print_rows([*head, *_fit_rows(facts)])
        return
    if facts["answer"]:
        found = {k: logarithm(v) if "log10" in k and v is not None else v for k, v in facts["answer"].items()}
        head.append(("answer", ", ".join(f"{k} {v}" for k, v in found.items() if v is not None)))
    if facts["bounds"]:
        ends = ["unknown" if facts["bounds"][end] is None else str(facts["bounds"][end]) for end in ("lower", "upper")]
        head.append(("bounds", " … ".join(ends)))
    planned, expected = format_bytes(facts["disk_bytes_planned"]), facts["disk_bytes_expected"]
    disk = f"{format_bytes(facts['disk_bytes'])} of {planned} planned"
    # the planned bytes of sparse tables are an upper bound, so the expectation is printed beside them
    if expected is not None:
        disk = f"{format_bytes(facts['disk_bytes'])}, planned about {format_bytes(expected)} and at most {planned}"
    print_rows([*head, ("on disk", disk)])
    stages = table("stages", "table")
    for column in ("boxes", "chunks done", "bytes", "planned peak", "seconds"):
        stages.add_column(column, justify="right", no_wrap=True)
    for s in facts["stages"]:
        figures = (format_bytes(s["bytes"]), format_bytes(s["peak_bytes_planned"]), f"{s['seconds']:.2f}")
        boxes = f"{s['boxes_done']:,} of {s['boxes']:,}" if "boxes_done" in s else f"{s['boxes']:,}"
        stages.add_row(s["table"], boxes, f"{s['chunks_done']:,}", *figures)
    if facts["stages"]:
        show(stages)
    if facts["arrays"]:
        show(_arrays_table(facts["arrays"]))
    for task in facts["slowest"]:
        click.echo(f"slow: {task['table']} {task['chunk']} {task['seconds']} s")


_FIT_ENDS: Final = {"counted": "counted", "converged": "converged", "iterations": "the limit of iterations"}
"""How a start of a fit ended, by its status."""


def _fit_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the starts of a fit with their iterations and log-likelihoods, and the settings of the call."""
    for number, start in enumerate(facts["starts"]):
        ended = _FIT_ENDS[facts["ended"][number]] if facts["ended"] else "unfinished"
        logs = start["log_likelihoods"]
        rise = f", log-likelihood {logs[0]:.10g} … {logs[-1]:.10g}" if logs else ""
        yield f"start {number + 1}", f"{counted(start['iterations'], 'iteration')}, {ended}{rise}"
    for name, value in facts["settings"].items():
        if value not in (None, [], ""):
            yield name.replace("_", " "), shorten(str(value))


def _arrays_table(arrays: Sequence[Mapping[str, Any]]) -> Table:
    """The largest arrays that any Zarr reader opens."""
    most = LISTED_MEMBERS
    columns = ("array", "step", "variables", "shape", "dtype", "chunks done", "bytes", "ratio")
    rows = []
    for array in sorted(arrays, key=lambda one: -one["bytes_on_disk"])[:most]:
        names = ", ".join(printable(name, 20) for name in array["variables"][:4])
        more = f", … {len(array['variables'])} in all" if len(array["variables"]) > 4 else ""
        rows.append(
            (
                f"{array['group']}/{array['name']}",
                "" if array["step"] is None else str(array["step"]),
                names + more,
                "×".join(map(str, array["shape"])) or "1 number",
                array["dtype"],
                f"{array['chunks_done']:,} of {array['chunks']:,}",
                format_bytes(array["bytes_on_disk"]),
                "" if array["ratio"] is None else f"{array['ratio']:.3g}",
            )
        )
    title = "arrays" if len(arrays) <= most else f"arrays, the largest {most} of {len(arrays):,}"
    return fitted(title, columns, rows, ("variables", "dtype", "ratio", "shape", "step"), columns[5:])


def print_examples() -> None:
    """List the example models."""
    for example in examples():
        show(Text.assemble((example.name, "bold"), "  ", example.title))
        for text in (example.description, example.query):
            show(Padding(Text(text), (0, 0, 0, 4)))
        for command in example.commands:
            show(Padding(Text(f"bucketflow {command}"), (0, 0, 0, 4)))


def print_formats() -> None:
    """List the formats of models, and kinds of files that are known and not read."""
    shown = table("formats of models", "suffixes")
    for column in ("read", "written", "what for"):
        shown.add_column(column)
    for row in formats():
        cells = ["yes" if row[key] else "no" for key in ("read", "written")]
        shown.add_row(" ".join(row["suffixes"]), *cells, row["about"])
    show(shown)
    unread = table("known, and not read", "suffixes")
    for column in ("what it is", "instead"):
        unread.add_column(column)
    for row in unread_formats():
        unread.add_row(" ".join(row["suffixes"]), row["what"], row["instead"])
    show(unread)


def print_calibration(found: dict[str, Any]) -> None:
    """Print what a machine and its GPU do in a second."""
    head = [("disk", f"{format_bytes(round(found['disk_bytes_per_second']))}/s")]
    gpu = found["gpu"]
    if gpu is None:
        head.append(("GPU", found["gpu_missing"]))
    else:
        head.append(("GPU", gpu["name"]))
        head.append(("link", f"{format_bytes(round(gpu['link_bytes_per_second']))}/s"))
        head.append(("upload", f"{gpu['upload_seconds'] * 1e6:.0f} us at least"))
    launches = (("CPU", found["launches"]), ("GPU", gpu and gpu["launches"]))
    head += [(f"launches, {place}", told) for place, told in launches if told]
    print_rows([*head, ("kept in", found["cache"])])
    shown = table("rates a second", "", "kernels")
    for column in ("cells", "of products", "bytes", "us/step", "from"):
        shown.add_column(column, justify="right", no_wrap=True)
    for place, kernels in (("CPU", found["cpu"]), ("GPU", gpu["kernels"] if gpu else {})):
        for name, rates in kernels.items():
            least = f"2^{math.log2(gpu['least_cells'][name]):.0f}" if place == "GPU" else ""
            figures = (_rate(rates[f]) for f in ("cells_per_second", "matmul_cells_per_second", "bytes_per_second"))
            shown.add_row(place, name, *figures, f"{rates['step_seconds'] * 1e6:.1f}", least)
    show(shown)


def _rate(value: float) -> str:
    return f"{value / 1e12:.3g} T" if value >= 1e12 else f"{value / 1e9:.3g} G"


def show(shown: RenderableType, **how: Any) -> None:
    """Print a renderable, with names from files unchanged, in any terminal encoding."""
    console = Console(markup=False, emoji=False)
    with console.capture() as capture:
        console.print(shown, **how)
    click.echo(encodable(capture.get()), nl=False)


def table(title: str, *columns: str) -> Table:
    """A table whose first columns are text, which is folded where there is no room for it."""
    made = Table(title=title, box=box.SIMPLE, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def fitted(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], figures: Sequence[str] = ()
) -> Table:
    """A table whose words stay whole: lines break at blanks, and a narrow terminal shows fewer columns.

    Parameters
    ----------
    title : str
    columns : sequence of str
    rows : sequence of sequence of str
        A cell for each column.
    spare : sequence of str
        Columns to leave out where there is no room, the first one first.
    figures : sequence of str
        Columns of numbers with their units, which stay on one line.
    """
    cells = {name: [name, *(row[k] for row in rows)] for k, name in enumerate(columns)}
    cells |= {name: [text.replace(" ", _NO_BREAK) for text in cells[name]] for name in figures}
    width = Console().width
    left_out = next(n for n in range(len(spare) + 1) if n == len(spare) or _room(cells, spare[:n], width) >= 0)
    kept = [name for name in columns if name not in spare[:left_out]]
    room = _room(cells, spare[:left_out], width)
    made = table(title)
    if left_out:
        made.caption, made.caption_justify = f"not shown on this narrow terminal: {', '.join(spare[:left_out])}", "left"
    for name in kept:
        least = _least_width(cells[name])
        more = min(max(map(cell_len, cells[name])) - least, max(room, 0))
        room -= more
        made.add_column(name, width=least + more, justify="right" if name in figures else "left", overflow="fold")
    for row in zip(*(cells[name][1:] for name in kept), strict=True):
        made.add_row(*(cell.replace(_NO_BREAK, " ") for cell in row))
    return made


def _room(cells: Mapping[str, Sequence[str]], left_out: Sequence[str], width: int) -> int:
    """Return the remaining width of a line if each column is as wide as its longest word."""
    kept = [texts for name, texts in cells.items() if name not in left_out]
    return width - sum(map(_least_width, kept)) - 3 * len(kept)  # a line and two blanks for each


def _least_width(texts: Sequence[str]) -> int:
    """Return the width of the longest word of a column."""
    return max((cell_len(word) for text in texts for word in text.split(" ")), default=1)


# Output of ``bucketflow inspect``: the progress of a run directory, from its plan and its ledger alone.


def run_facts(path: Place) -> dict[str, Any]:
    """Describe a run directory: identity, bounds so far, stages with finished boxes and bytes, slowest tasks.

    Parameters
    ----------
    path : Place
        A run directory.

    Returns
    -------
    dict
        JSON types; sizes in bytes, times in seconds.

    Raises
    ------
    IncompatibleRunError
        If the folder is not a run directory.
    """
    if (fit := stored_fit(path)) is not None:
        return fit_facts(path, fit)
    try:
        stored, result, bounded = stored_plan(path), stored_result(path), stored_bounds(path)
        plan = stored.get("plan")
        written = ledger.history(path / "tables") if plan else []
        arrays = stored_arrays(path)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    # a chunk that was computed again has several receipts; the last one counts
    latest = {receipt.key: (writer, receipt) for writer, receipt in written}
    receipts = {key: receipt for key, (_, receipt) in latest.items()}
    blocks = _blocks(latest.values())
    return {
        "model": stored.get("source", ""),
        "query": stored["identity"]["query"],
        "status": "finished" if result else "unfinished",
        "answer": result and {name: result.get(name) for name in ("status", "value", "log10", "log10_evidence")},
        "bounds": _bounds(bounded) if bounded and not result else None,
        "stages": [*(_stage(s, receipts, blocks) for s in plan["stages"]), *_row_stages(plan, receipts, blocks)]
        if plan
        else [],
        "disk_bytes_planned": plan["disk_bytes"] if plan else 0,
        "disk_bytes_expected": plan["stored_bytes"][0] if plan and plan.get("rows_stored") else None,
        "disk_bytes": file_bytes(path, "c*"),
        "arrays": [array.to_dict() for array in arrays],
        "slowest": [_slow(r) for r in sorted(blocks, key=lambda r: -r.seconds)[:LISTED_STEPS]],
    }


def _bounds(bounded: dict[str, Any]) -> dict[str, Any]:
    proof = bounded.get("proof") or {}
    return {name: proof.get(name) for name in ("lower", "upper", "gap")}


def _blocks(written: Iterable[tuple[str, Receipt]]) -> list[Receipt]:
    """Return one receipt for each block of chunks that a task wrote: the last, which has the seconds of the block.

    Each receipt carries the seconds since its task began, so receipts of one task share the time of that beginning.
    """
    same = SAME_SECONDS
    found: list[Receipt] = []
    before: tuple[str, str, float] | None = None
    for writer, receipt in sorted(written, key=lambda w: (w[0], w[1].table, w[1].ended - w[1].seconds, w[1].ended)):
        begin = receipt.ended - receipt.seconds
        if before and receipt.ended and before[:2] == (writer, receipt.table) and begin - before[2] < same:
            found[-1] = max(found[-1], receipt, key=lambda each: each.seconds)
        else:
            found.append(receipt)
            before = writer, receipt.table, begin
    return found


def _stage(stage: dict[str, Any], receipts: dict[Any, Receipt], blocks: Sequence[Receipt]) -> dict[str, Any]:
    name = stage["table"]
    done = [r for r in receipts.values() if r.table == name]
    return {
        "table": name,
        "boxes": stage["boxes"],
        "chunks_done": len(done),
        "bytes": sum(r.nbytes for r in done),
        "peak_bytes_planned": stage["peak_bytes"],
        "seconds": round(sum(r.seconds for r in blocks if r.table == name), 3),
    }


def _row_stages(plan: dict[str, Any], receipts: dict[Any, Receipt], blocks: Sequence[Receipt]) -> list[dict[str, Any]]:
    """Describe the steps of a sweep by rows that are done in boxes, as they are cut by now, in the order of the sweep.

    Steps whose tables fit memory leave no receipts.
    """
    from ..runs.row_ledger import counted_boxes, table_name

    found = []
    for name in map(table_name, plan.get("row_steps", ())):
        done = [r for r in receipts.values() if r.table == name or r.table.startswith(f"{name}_")]
        if done:
            boxes, ended = counted_boxes(name, receipts)
            found.append(
                {
                    "table": name,
                    "boxes": boxes,
                    "boxes_done": ended,
                    "chunks_done": sum(bool(r.nbytes) for r in done),
                    "bytes": sum(r.nbytes for r in done),
                    "peak_bytes_planned": plan["peak_bytes"],
                    "seconds": round(sum(r.seconds for r in blocks if r.table == name), 3),
                }
            )
    return found


def _slow(receipt: Receipt) -> dict[str, Any]:
    return {"table": receipt.table, "chunk": list(receipt.chunk), "seconds": round(receipt.seconds, 3)}
