"""Many questions: ``bucketflow batch``, from a list, for timers and schedulers; ``bucketflow serve``, from programs.

The server also runs commands for clients. It sends their output and their exit code.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import FileIO, TextIOBase
from typing import TYPE_CHECKING, Any, Final

import click

from ...cluster.logs import log_settings
from . import options as shared
from .ending import driver_metrics, guarded, say

if TYPE_CHECKING:
    from ..batches.manifest import Row
    from ..batches.pricing import Price
    from ..server.service_queue import ServedRequest

# Lines of the table of prices, one for all rows that are alike.
_PRICE_LINES: Final = 20

_EVENTS = logging.getLogger("bucketflow.batch")
_COLUMNS = ("model", "query", "how", "rows", "memory", "disk", "predicted")
# Events that are drawn on a terminal; otherwise they are not printed.
_DRAWN = ("pricing", "asking")


@click.command("batch", cls=shared.Grouped)
@click.argument("manifest", shell_complete=shared.complete_path)
@shared.text_option("--out", "DIR", "Folder for the results. Rows that it already answers are skipped.", required=True)
@click.option("--query", default="optimum", show_default=True, help="Query of rows without one.")
@shared.option("memory", "Memory budget of rows without one.")
@shared.options_of("workers", "scheduler", "gpus")
@shared.number_option("--max-time", "S", "Stop after S seconds.")
@shared.text_option("--stop-at", "HH:MM", "Stop at this time of day.")
@shared.no_check_option
@shared.json_option
@guarded
@shared.on_cluster
def batch(manifest: str, out: str, as_json: bool, no_check: bool, **options: Any) -> None:
    """Answer each question of a list once.

    MANIFEST is a .csv, .jsonl or .yaml file with a column `model`, or a folder of models.

    Exit codes: 0 all answered, 3 some refused because of a budget, 5 some failed, 4 stopped: run it again.
    """
    from ..api.progress import rows_bar
    from ..batches.batch import batch as answered

    notes: dict[str, None] = {}
    log = (settings := log_settings()) is not None and settings.format == "json"

    with rows_bar(hidden=as_json or log) as draw:

        def tell(event: str, **facts: Any) -> None:
            if event == "row":
                driver_metrics.count_row(facts["status"], facts.get("wall_seconds", 0.0))
            if log_settings() is not None:
                _log(event, facts)
            if event == "row" and not log:
                notes.update(dict.fromkeys(f"{facts['model']}: {note}" for note in facts.get("notes", ())))
            elif event == "note" and not log:
                shared.print_notes([facts["note"]])
            draw(event, facts)
            if event == "prices" and not as_json:
                _print_prices(facts["prices"], facts["waiting"])

        summary = answered(manifest, out, tell=tell, check=not no_check, **options)
    shared.print_notes(notes)
    for line in () if log else summary.unanswered:
        say(line)
    click.echo(json.dumps(summary.to_dict()) if as_json else str(summary))
    sys.exit(summary.exit_code)


def _log(event: str, facts: dict[str, Any]) -> None:
    """Log an event of a batch with its facts."""
    if event in _DRAWN:
        return
    if event == "prices":
        prices = [price for _, price in facts["prices"]]
        finite = [price.seconds for price in prices if price.seconds < float("inf")]
        kinds = Counter(price.kind for price in prices)
        facts = {"kinds": kinds, "predicted_seconds": round(sum(finite), 3), "waiting": facts["waiting"]}
    level = logging.WARNING if facts.get("status") == "failed" else logging.INFO
    _EVENTS.log(level, event, extra={"facts": {"event": event, **facts}})


def _print_prices(prices: list[tuple[Row, Price]], waiting: int) -> None:
    """Print what the questions cost: the most expensive ones, and how many others there are, some not priced yet."""
    from ..errors import format_bytes, printable
    from .show_run import fitted, show

    alike = Counter((row.model, row.query, price) for row, price in prices)
    shown = sorted(alike.items(), key=lambda item: (item[0][2].kind != "wrong", -item[0][2].seconds * item[1]))
    rows = []
    for (model, query, price), count in shown[:_PRICE_LINES]:
        how = {"wrong": price.message, "alone": "between bounds", "large": "all workers"}.get(price.kind, "packed")
        seconds = "open" if price.seconds == float("inf") else f"{price.seconds * count:.3g} s"
        figures = [format_bytes(price.peak_bytes), format_bytes(price.disk_bytes) if price.disk_bytes else "", seconds]
        rows.append([printable(model.rpartition("/")[2], 30), query, how, f"{count:,}", *figures])
    title = _title(prices, len(alike), waiting)
    show(fitted(title, _COLUMNS, rows, spare=("disk", "memory", "query"), figures=_COLUMNS[3:]))


def _title(prices: list[tuple[Row, Price]], lines: int, waiting: int) -> str:
    kinds = Counter(price.kind for _, price in prices)
    refused = sum(price.status == "refused" for _, price in prices)
    whole = sum(price.seconds for _, price in prices if price.seconds < float("inf"))
    packed = sum(price.is_packed for _, price in prices)
    told = [f"{len(prices):,} to ask", f"{whole:.3g} s predicted on one core", f"{packed:,} packed"]
    told += [f"{kinds['alone']:,} between bounds"] if kinds["alone"] else []
    told += [f"{refused:,} refused"] if refused else []
    told += [f"{kinds['wrong'] - refused:,} wrong"] if kinds["wrong"] > refused else []
    told += [f"{waiting:,} whose time is not predicted yet"] if waiting else []
    more = f"; the {_PRICE_LINES} largest" if lines > _PRICE_LINES else ""
    return ", ".join(told) + more


# ``bucketflow serve``: questions from programs, as the rows of a list.


@click.command("serve")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at. Other machines reach the server only with --token-file, --tls-cert and --tls-key.",
)
@click.option("--port", default=0, metavar="N", help="Port.  [default: a free one]")
@click.option("--query", default="optimum", show_default=True, help="Query of rows without one.")
@shared.option("memory", "Memory budget of the server; cached models take at most half of it.")
@shared.number_option("--time", "S", "After S seconds, return an optimum with bounds, and stop any other question.")
@shared.number_option("--idle", "MINUTES", "Stop after this many minutes without a question.")
@shared.text_option("--token-file", "FILE", "File with the token of requests.  [default: a random token]")
@shared.text_option("--tls-cert", "FILE", "Certificate in PEM, for HTTPS.")
@shared.text_option("--tls-key", "FILE", "Key of the certificate in PEM.  [default: in the file --tls-cert]")
@click.option("--stop", is_flag=True, help="Stop all running servers, including those of --keep-warm.")
@click.option("--warm-lock", type=int, hidden=True, help="The open lock of a folder for --keep-warm.")
@shared.json_option
@guarded
def serve(stop: bool, warm_lock: int | None, as_json: bool, **options: Any) -> None:
    """Answer questions of programs over HTTP.

    A question is a JSON line with the columns of a batch's list.

    The URL and the token are in files of the folder `server` in the cache folder. Only you can read them.
    """
    if stop:
        _stop_servers(as_json)
        return
    from ..batches.models import kept_model
    from ..server.server import QuestionServer, ServerSettings
    from ..server.server_folder import default_folder
    from ..server.warm_client import folder_here

    folder = default_folder() if warm_lock is None else folder_here()
    server = QuestionServer(ServerSettings(**options), folder, run_described)

    def ready(url: str) -> None:
        facts = {"url": url, "token_file": str(folder.token_file), "pid": os.getpid()}
        click.echo(json.dumps(facts) if as_json else f"serving at {url}, with the token in {folder.token_file}")

    with server.stopped_by_signals(), shared.reading_by(kept_model):
        server.run(None if warm_lock is None else FileIO(warm_lock, "r+b"), ready)


def _warm_command(name: str) -> Callable[..., object] | None:
    """Return the function of a command that a server may run, or None."""
    from .main import main

    command = main.get_command(click.Context(main, **main.context_settings), name)
    if command is None or command.callback is None or all(param.name != "keep_warm" for param in command.params):
        return None
    return partial(command.callback, keep_warm=False)


def _stop_servers(as_json: bool) -> None:
    from ..server.server_folder import all_folders
    from ..server.warm_client import stop_server

    stopped = [str(folder.path) for folder in all_folders() if stop_server(folder)]
    what = f"{len(stopped)} servers" if len(stopped) > 1 else "1 server"
    click.echo(json.dumps({"stopped": stopped}) if as_json else f"stopped {what}" if stopped else "no server runs")


# ``bucketflow report``: one page about a run, a job, a batch or an answer.


@click.command("report")
@click.argument("source", metavar="DIR|RESULT.json", shell_complete=shared.complete_path)
@click.option("-o", "--out", required=True, metavar="FILE.html", help="Page to write; it needs no network.")
@guarded
def report(source: str, out: str) -> None:
    """Write a page about a run, a job, a batch or an answer.

    An answer is a file that a command printed with --json.
    """
    from ..report.report import report as written

    written(source, out)
    shared.print_written(out)


class SentText(TextIOBase):
    """A stream that sends every text under a name as soon as it is written."""

    def __init__(self, name: str, request: ServedRequest):
        self._name, self._request = name, request

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of JSON; the client replaces characters that its terminal cannot show."""
        return "utf-8"

    def writable(self) -> bool:
        """Say that it takes text."""
        return True

    def write(self, text: str) -> int:
        """Send a text, unless it is about an interruption."""
        if not isinstance(text, str):
            raise TypeError("a text is expected")
        if text and not self._request.interrupted:
            send_event(self._request, **{self._name: text})
        return len(text)


def send_event(request: ServedRequest, **event: Any) -> None:
    """Send what happened as a JSON object."""
    request.send(json.dumps(event).encode() + b"\n")


def run_described(told: Mapping[str, Any], request: ServedRequest) -> None:
    """Run a command in the working directory of its client; send what it prints, and how it ends.

    Events are ``stdout`` and ``stderr`` with a text. The last event is ``exit`` with a code, ``usage`` or ``os_error``
    with an error for the client to raise, or ``stopped``, after which the client may run the command itself.
    """
    name, options, folder = (told.get(key) for key in ("command", "options", "folder"))
    function = _warm_command(name) if isinstance(name, str) else None
    if function is None or not isinstance(options, dict) or not isinstance(folder, str):
        send_event(request, stderr="bucketflow: a server cannot run this command\n")
        send_event(request, exit=2)
        return
    with suppress(KeyboardInterrupt), request.running(None):
        try:
            with (
                _in_place(folder, told.get("columns")),
                redirect_stdout(SentText("stdout", request)),
                redirect_stderr(SentText("stderr", request)),
            ):
                end = _ended(function, options)
        except OSError as error:
            end = {"os_error": [error.errno, error.strerror, error.filename]}
        if not request.interrupted:
            send_event(request, **end)
            return
    send_event(request, stopped=True)


def _ended(function: Callable[..., object], options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a command, and say how it ends."""
    from click import UsageError

    try:
        function(**options)
    except SystemExit as end:
        return {"exit": end.code if isinstance(end.code, int) else int(end.code is not None)}
    except UsageError as error:
        return {"usage": error.message}
    except (OSError, KeyboardInterrupt):
        raise
    except BaseException:
        return {"stderr": traceback.format_exc(), "exit": 1}
    return {"exit": 0}


@contextmanager
def _in_place(folder: str, columns: object) -> Iterator[None]:
    """Work in the folder, and for the terminal, of a client."""
    here, before = os.getcwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    try:
        os.environ["COLUMNS"] = str(columns) if isinstance(columns, int) else ""
        yield
    finally:
        os.chdir(here)
        os.environ["COLUMNS"] = before or ""
        if before is None:
            del os.environ["COLUMNS"]
