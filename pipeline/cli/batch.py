"""``bucketflow batch``: many questions from a list, made for timers and schedulers of other kinds."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ..report.display_policy import DisplayPolicy
from .ending import guarded
from .options import (
    Grouped,
    complete_path,
    json_option,
    no_check_option,
    on_cluster,
    option,
    options_of,
    print_notes,
)

if TYPE_CHECKING:
    from ..batches.manifest import Row
    from ..batches.pricing import Price

_COLUMNS = ("model", "query", "how", "rows", "memory", "disk", "predicted")
# Events that are drawn on a terminal, and not told otherwise.
_DRAWN = ("pricing", "asking")


@click.command("batch", cls=Grouped)
@click.argument("manifest", shell_complete=complete_path)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="Folder for the results; questions that are answered there are not asked again.",
)
@click.option("--query", default="optimum", show_default=True, help="The query of rows that name none.")
@option("memory", "Memory budget of rows that name none.")
@options_of("workers", "scheduler", "gpus")
@click.option("--max-time", type=click.FloatRange(min=0), metavar="S", help="Stop after S seconds.")
@click.option("--stop-at", metavar="HH:MM", help="Stop at this time of day.")
@no_check_option
@click.option(
    "--log", "log", type=click.Choice(["json"]), help="Write a line of JSON for each event to standard error."
)
@json_option
@guarded
@on_cluster
def batch(manifest: str, out: str, as_json: bool, log: str | None, no_check: bool, **options: Any) -> None:
    """Answer the questions in MANIFEST: .csv, .jsonl or .yaml with a column `model`, or a folder of models.

    Exit codes: 0 all answered, 3 some refused because of a budget, 1 some failed, 4 stopped: run it again.
    """
    from ..batches.batch import batch as answered
    from .progress import rows_bar

    notes: dict[str, None] = {}

    with rows_bar(hidden=as_json or log is not None) as draw:

        def tell(event: str, **facts: Any) -> None:
            if log:
                _log(event, facts)
            elif event == "row":
                notes.update(dict.fromkeys(f"{facts['model']}: {note}" for note in facts.get("notes", ())))
            elif event == "note":
                print_notes([facts["note"]])
            draw(event, facts)
            if event == "prices" and not as_json:
                _print_prices(facts["prices"], facts["waiting"])

        summary = answered(manifest, out, tell=tell, check=not no_check, **options)
    print_notes(notes)
    for line in () if log else summary.unanswered:
        click.echo(f"bucketflow: {line}", err=True)
    click.echo(json.dumps(summary.to_dict()) if as_json else str(summary))
    sys.exit(summary.exit_code)


def _log(event: str, facts: dict[str, Any]) -> None:
    """Write a line of JSON to standard error."""
    from datetime import UTC, datetime

    if event in _DRAWN:
        return
    if event == "prices":
        prices = [price for _, price in facts["prices"]]
        finite = [price.seconds for price in prices if price.seconds < float("inf")]
        kinds = Counter(price.kind for price in prices)
        facts = {"kinds": kinds, "predicted_seconds": round(sum(finite), 3), "waiting": facts["waiting"]}
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
    click.echo(json.dumps(line), err=True)


def _print_prices(prices: list[tuple[Row, Price]], waiting: int) -> None:
    """Print what the questions cost: the most expensive ones, and how many others there are, some not priced yet."""
    policy = DisplayPolicy.current()
    from ..errors import format_bytes, printable
    from .show_run import fitted, show

    alike = Counter((row.model, row.query, price) for row, price in prices)
    shown = sorted(alike.items(), key=lambda item: (item[0][2].kind != "wrong", -item[0][2].seconds * item[1]))
    rows = []
    for (model, query, price), count in shown[: policy.price_lines]:
        how = {"wrong": price.message, "alone": "between bounds", "large": "all workers", "small": "packed"}
        seconds = "open" if price.seconds == float("inf") else f"{price.seconds * count:.3g} s"
        figures = [format_bytes(price.peak_bytes), format_bytes(price.disk_bytes) if price.disk_bytes else "", seconds]
        rows.append([printable(model.rpartition("/")[2], 30), query, how[price.kind], f"{count:,}", *figures])
    title = _title(prices, len(alike), waiting)
    show(fitted(title, _COLUMNS, rows, spare=("disk", "memory", "query"), figures=_COLUMNS[3:]))


def _title(prices: list[tuple[Row, Price]], lines: int, waiting: int) -> str:
    policy = DisplayPolicy.current()
    kinds = Counter(price.kind for _, price in prices)
    refused = sum(price.status == "refused" for _, price in prices)
    whole = sum(price.seconds for _, price in prices if price.seconds < float("inf"))
    told = [f"{len(prices):,} to ask", f"{whole:.3g} s predicted on one core", f"{kinds['small']:,} packed"]
    told += [f"{kinds['alone']:,} between bounds"] if kinds["alone"] else []
    told += [f"{refused:,} refused"] if refused else []
    told += [f"{kinds['wrong'] - refused:,} wrong"] if kinds["wrong"] > refused else []
    told += [f"{waiting:,} to be priced later"] if waiting else []
    more = f"; the {policy.price_lines} largest" if lines > policy.price_lines else ""
    return ", ".join(told) + more


# ``bucketflow report``: one page about a run, a job, a batch or an answer.


@click.command("report")
@click.argument("source", metavar="DIR|RESULT.json", shell_complete=complete_path)
@click.option("-o", "--out", required=True, metavar="FILE.html", help="The page; it needs no network.")
@guarded
def report(source: str, out: str) -> None:
    """Write a page about a run directory, a job, a batch, or what a command printed with --json."""
    from ..report.report import report as written

    written(source, out)
