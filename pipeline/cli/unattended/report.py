"""``bucketflow report``: one page about a run, a job, a batch or an answer."""

from __future__ import annotations

import click

from ..ending import guarded


@click.command("report")
@click.argument("source", metavar="DIR|RESULT.json")
@click.option("-o", "--out", required=True, metavar="FILE.html", help="The page; it needs no network.")
@guarded
def report(source: str, out: str) -> None:
    """Write a page about a run directory, a job, a batch, or an answer that --json printed."""
    from ...report.report import report as written

    written(source, out)
