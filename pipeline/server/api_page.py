"""The OpenAPI document of the server, and a page that shows it without a network."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from ...cluster.version import __version__
from ..batches.manifest import COLUMNS
from ..formats.registry import known_suffixes
from ..models.query import QUERIES

_REFUSED = {
    "400": "A line is not a question; `message` names the line and the reason.",
    "401": "The token is missing or wrong.",
    "403": "The header Host is wrong.",
    "408": "The head or the body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many questions wait; ask again after the seconds in Retry-After.",
    "503": "The server is stopping or full; ask again after the seconds in Retry-After.",
}
# Path, method, what it does, the media type of its answer, whether it needs the token.
_PATHS = (
    ("/questions", "post", "Answer questions. Each line is answered by one line.", "application/x-ndjson", True),
    ("/", "get", "Return the number of waiting questions.", "application/json", True),
    ("/stop", "post", "Stop the server.", "application/json", True),
    ("/metrics", "get", "Return metrics in the text format of Prometheus.", "text/plain", True),
    ("/healthz", "get", "Return 200, or 503 while the server is stopping.", "application/json", False),
    ("/openapi.json", "get", "Return this document.", "application/json", False),
    ("/docs", "get", "Show this document.", "text/html", False),
)


@cache
def api_document() -> dict[str, Any]:
    """Return the OpenAPI document (version 3.1)."""
    columns: dict[str, Any] = {column: {} for column in COLUMNS}
    columns |= {"model": {"type": "string"}, "query": {"enum": list(QUERIES)}}
    columns |= {"text": {"type": "string", "description": "A model itself, instead of `model`."}}
    columns |= {"format": {"enum": list(known_suffixes()), "description": "The suffix of `text`."}}
    statuses = ("answered", "bounded", "refused", "failed", "stopped")
    answer = {"row": {"type": "integer"}, "status": {"enum": statuses}, "answer": {"type": "object"}}
    schemas = {
        "Question": {"type": "object", "properties": columns},
        "Answer": {"type": "object", "properties": {**answer, "message": {"type": "string"}}},
    }
    paths: dict[str, dict[str, Any]] = {}
    for path, method, summary, media, secured in _PATHS:
        lines = {"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Answer"}}}
        responses = {"200": {"description": summary, "content": lines if path == "/questions" else {media: {}}}}
        refused = _REFUSED if path == "/questions" else {code: _REFUSED[code] for code in ("401", "403") if secured}
        responses |= {code: {"description": text} for code, text in refused.items()}
        operation: dict[str, Any] = {"summary": summary, "responses": responses}
        operation |= {"security": [{"token": []}]} if secured else {}
        if path == "/questions":
            question = {"schema": {"$ref": "#/components/schemas/Question"}}
            operation["requestBody"] = {"required": True, "content": {"application/x-ndjson": question}}
        paths[path] = {method: operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bucketflow", "version": __version__, "description": "Questions on graphical models."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def api_page() -> str:
    """Return the page: paths, statuses and the columns of a question."""
    document = api_document()
    parts = ["<h1>bucketflow</h1><p>The same as <a href='/openapi.json'>OpenAPI</a>.</p>"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            rows = operation["responses"].items()
            statuses = "".join(f"<tr><td>{code}<td>{escape(each['description'])}" for code, each in rows)
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><table>{statuses}</table>")
    for name, schema in document["components"]["schemas"].items():
        fields = ", ".join(f"<code>{escape(field)}</code>" for field in schema["properties"])
        parts.append(f"<h2>{name}</h2><p>{fields}</p>")
    style = "body{font-family:sans-serif;max-width:50em;margin:2em auto}td{padding:.2em 1em .2em 0}"
    return f"<!doctype html><meta charset='utf-8'><title>bucketflow</title><style>{style}</style>{''.join(parts)}"
