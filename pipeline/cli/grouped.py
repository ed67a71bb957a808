"""Help whose options stand under what they are about."""

from __future__ import annotations

import click

_GROUPS = {
    "Question": ("query", "evidence", "query_vars", "joint", "maximum", "cases"),
    "Optima that are not quick, and bounds": ("method", "upper_bound", "time", "gap", "no_prune", "z"),
    "Plan": ("order", "order_time", "tree", "seed", "fit", "representation"),
    "Budgets": ("memory", "disk", "gpu_memory"),
    "Where it runs": ("workers", "scheduler", "cluster", "gpus", "most_workers", "priority", "workdir"),
}


class Grouped(click.Command):
    """A command of many options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group that has options; the last one has those of none."""
        records = {param.name or "": param.get_help_record(ctx) for param in self.get_params(ctx)}
        grouped = {name for names in _GROUPS.values() for name in names}
        sections = {**_GROUPS, "Options": tuple(name for name in records if name not in grouped)}
        for title, names in sections.items():
            rows = [record for name in names if (record := records.get(name)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
