"""``bucketflow reproduce``: the tables of a published paper, beside what this machine takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .ending import guarded, say
from .options import Grouped, choice_option, option, text_option, whole_option

if TYPE_CHECKING:
    from ..reproduce.comparison import Comparison


@click.command("reproduce", cls=Grouped)
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="List the papers and their tables.")
@text_option("--data", "DIR", "Folder of instances.  [default: $BUCKETFLOW_DATA]")
@text_option("--table", "TEXT", "Only the tables with TEXT in their titles, e.g. 'table 5'.")
@text_option("--only", "INSTANCE", "Only the rows of this instance; repeatable.", multiple=True)
@whole_option("--sample", "N", "At most N rows of each table.")
@click.option("--all", "every", is_flag=True, help="50 problems of each random point, and all instances by z.")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=4.0,
    show_default=True,
    metavar="S",
    help="Wall seconds for each problem.",
)
@option("gpus", "Also measure GPUs of this machine.")
@choice_option(
    "--columns",
    ["first", "all"],
    "Columns to print: those that fit 80 characters, or all. --out and --page always have all.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.json", help="Store all figures.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a page; also FILE.md.")
@guarded
def reproduce(
    name: str | None,
    listed: bool,
    data: str | None,
    table: str | None,
    only: tuple[str, ...],
    sample: int | None,
    every: bool,
    seconds: float,
    gpus: str | None,
    columns: str,
    out: Path | None,
    page: Path | None,
) -> None:
    """Repeat the experiments of a paper.

    The tables show the published figures beside ours. Every answer is checked. Output that is piped or redirected is
    Markdown.
    """
    from ..api.progress import status_line
    from ..errors import ModelError
    from ..local_paths import local_path
    from ..reproduce.comparison import compared, listing, write
    from ..reproduce.paper_tables import PAPERS, paper
    from ..reproduce.papers import Instances
    from .show_run import print_rows

    if listed or name is None:
        given: dict[str, object] = {"data": data, "table": table, "only": only, "sample": sample, "all": every}
        given |= {"gpus": gpus, "out": out, "page": page}
        if unused := [flag for flag, value in given.items() if value]:
            raise click.UsageError(f"--{unused[0]} applies to a single paper: give its NAME, and leave out --list")
        print_rows(listing([paper(each) for each in ([name] if name else PAPERS)]))
        return
    asked = paper(name).only(only, sample, table or "", every)
    if page is not None and page.suffix not in (".html", ".md"):
        raise ModelError(f"a page is written to a file .html or .md, not {str(page)!r}")
    for file in filter(None, (out, page)):
        local_path(file)
    folder = data or os.environ.get("BUCKETFLOW_DATA")
    instances = Instances(None if folder is None else local_path(folder))
    with status_line(False, "measuring") as status:
        found = compared(asked, instances, gpus, seconds, status.say, every=every)
    if sys.stdout.isatty():
        _print(found, every=columns == "all")
    else:
        click.echo(found.to_markdown(every=columns == "all"))
    write(found, out, page)
    if found.wrong:
        say(f"not the known answer: {', '.join(found.wrong)}")
        sys.exit(1)


def _print(found: Comparison, *, every: bool) -> None:
    from ..errors import counted
    from .show_run import fitted, print_rows, show

    print_rows(found.facts)
    for each in found.tables:
        headings = [*each.columns] if every else each.first_columns
        rows, spare = each.under(headings), [] if every else headings[1:-1]
        shown = fitted(each.table.title, headings, rows, spare)
        if not every and (more := len(each.columns) - len(headings)):
            shown.caption, shown.caption_justify = f"--columns all shows {counted(more, 'more column')}", "left"
        show(shown)
        for line in each.reasons:
            click.echo(line)
