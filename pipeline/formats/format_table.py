"""The table of formats: supported formats with their purpose, and known formats that are not supported."""

from __future__ import annotations

import re
from typing import Any

from ..public_names import public
from .registry import FORMATS, Format
from .text.unread import unread_kinds

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@public
def formats() -> list[dict[str, Any]]:
    """Return one row for each model format, in the order of recognition.

    Returns
    -------
    list of dict
        ``suffixes`` of its files, whether the format is ``read`` and ``written``, and ``about``: its purpose.

    Examples
    --------
    >>> import bucketflow
    >>> [row["suffixes"][0] for row in bucketflow.formats()][:3]
    ['.cfn', '.uai', '.LG']
    """
    return [
        {
            "suffixes": list(_suffixes(form)),
            "read": True,
            "written": bool(form.writer),
            "about": _LINK.sub(r"\1", form.about).replace("`", ""),
        }
        for form in FORMATS
    ]


def unread_formats() -> list[dict[str, Any]]:
    """Return one row for each known but unsupported kind of file: suffixes, description, alternative."""
    return [
        {"suffixes": list(suffixes), "what": kind.what, "instead": kind.instead}
        for kind, suffixes in unread_kinds().items()
    ]


def markdown_table() -> str:
    """Return the table of formats as Markdown, for the site."""
    rows = ["| format | read | written | what for |", "|---|---|---|---|"]
    for form in FORMATS:
        named = ", ".join(f"`{suffix}`" for suffix in _suffixes(form))
        rows.append(f"| {named} | yes | {'yes' if form.writer else 'no'} | {form.about} |")
    return "\n".join(rows)


def _suffixes(form: Format) -> tuple[str, ...]:
    return form.suffixes or form.shared
