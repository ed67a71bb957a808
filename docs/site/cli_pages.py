"""Pages about the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterable

from bucketflow.pipeline.cli.ending import EXIT_STATUS
from bucketflow.pipeline.cli.manual import CommandText


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines)


def code(text: str) -> str:
    """Return a text as code that may stand in a table."""
    return f"`{text}`"


def plain(text: str) -> str:
    """Return a text in which nothing is taken for Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|~" else letter for letter in text)


def command_list(texts: Iterable[CommandText]) -> str:
    """Return the page of all commands."""
    rows = [(f"[`{text.name}`]({text.name}.md)", plain(text.summary)) for text in texts]
    return f"# Command line\n\n{table(('command', 'what it does'), rows)}\n"


def command_page(text: CommandText) -> str:
    """Return the page of one command."""
    blocks = [f"# bucketflow {text.name}", *map(plain, text.paragraphs), f"```text\n{text.usage}\n```"]
    for title, rows in text.sections.items():
        shown = [(code(names), plain(meaning)) for names, meaning in rows]
        blocks += [f"## {title}", table(("option", "meaning"), shown)]
    return "\n\n".join(blocks)


def exit_codes() -> str:
    """Return the page of exit codes."""
    rows = [(str(status), plain(meaning)) for status, meaning in EXIT_STATUS.items()]
    return f"# Exit codes\n\n{table(('code', 'meaning'), rows)}\n"
