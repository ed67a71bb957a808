"""Pages of the site that are not in `docs`: the top-level texts, and the reference generated from the code."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from cli_pages import code, command_list, command_page, exit_codes, plain, table  # noqa: E402
from json_pages import json_page  # noqa: E402
from notebook_pages import notebook_page  # noqa: E402
from python_pages import names_by_page, python_page, title_of  # noqa: E402

import bucketflow  # noqa: E402
from bucketflow.cluster.version import REPOSITORY  # noqa: E402
from bucketflow.pipeline.cli.manual import command_texts  # noqa: E402
from bucketflow.pipeline.formats.registry import markdown_table, unread_formats  # noqa: E402

# BUCKETFLOW_RUN_NOTEBOOKS=0 leaves out the results of notebooks, which take some seconds.
_RUN = os.environ.get("BUCKETFLOW_RUN_NOTEBOOKS") != "0"
_TOP = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def generated_pages(run: bool = _RUN) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page that is no file in `docs`; if ``run``, notebooks with their results."""
    for page, file in _TOP.items():
        yield page, top_page(file)
    for page, names in names_by_page().items():
        yield f"reference/python/{page}.md", python_page(page, names)
    texts = command_texts()
    yield "reference/cli/index.md", command_list(texts)
    for text in texts:
        yield f"reference/cli/{text.name}.md", command_page(text)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        yield f"notebooks/{path.stem}.md", notebook_page(path, run)
    yield "reference/exit-codes.md", exit_codes()
    yield "reference/json.md", json_page()
    yield "reference/formats.md", formats_page()


def top_page(file: str) -> str:
    """Return a text of the top level, with its links as they are inside `docs`."""
    text = re.sub(r"\]\(docs/", "](", (ROOT / file).read_text())
    for page, other in _TOP.items():
        text = text.replace(f"]({other})", f"]({page})")
    return text


def formats_page() -> str:
    """Return the page of formats: supported formats, and known formats that are not read."""
    known = markdown_table().replace("](docs/", "](../")
    rows = [
        (" ".join(map(code, row["suffixes"])), plain(row["what"]), plain(row["instead"])) for row in unread_formats()
    ]
    unread = table(("suffixes", "what it is", "instead"), rows)
    return f"# Formats\n\n{known}\n\n## Known formats that are not read\n\n{unread}\n"


def on_config(config: Any) -> Any:
    """Put the generated pages into the navigation, and the address of the repository into the head of each page."""
    config.repo_url = REPOSITORY or None
    for section in config.nav:
        if "Reference" in section:
            section["Reference"] = [
                {"Python": [{title_of(page): f"reference/python/{page}.md"} for page in names_by_page()]},
                {
                    "Command line": [
                        "reference/cli/index.md",
                        *({text.name: f"reference/cli/{text.name}.md"} for text in command_texts()),
                    ]
                },
                *section["Reference"],
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in generated_pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to notebooks lead to their pages."""
    return re.sub(r"(\]\((?:\.\./)?notebooks/[\w-]+)\.ipynb\)", r"\1.md)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Break code in a text only between its words, drop dashes before empty descriptions, let pictures open large."""
    html = re.sub(r"(?<!</span>)<code>[^<]+</code>", lambda match: breakable(match[0]), html)
    html = re.sub(r"\s–\s*(<div class=\"doc-md-description\">\s*</div>)", r"\1", html)
    return re.sub(r"<p>(<img [^>]*src=\"([^\"]+\.svg)\"[^>]*>)</p>", r'<p><a href="\2">\1</a></p>', html)


def breakable(text: str) -> str:
    """Return code whose options stay whole, and whose alternatives may each begin a line."""
    return re.sub(r"--[\w-]+", r'<span class="option">\g<0></span>', text).replace("|", "|<wbr>")


def public_names() -> Iterator[str]:
    """Yield the public names, and the methods of public classes, inherited ones too."""
    for name in bucketflow.__all__:
        yield name
        value = getattr(bucketflow, name)
        for method, function in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else ():
            if not method.startswith("_") and function.__module__.startswith("bucketflow"):
                yield f"{name}.{method}"


def on_post_build(config: Any) -> None:
    """Raise an error if a public name, or a method of a public class, is missing from the site."""
    pages = "".join(path.read_text() for path in Path(config.site_dir, "reference", "python").glob("*.html"))
    if missing := [name for name in public_names() if f'id="bucketflow.{name}"' not in pages]:
        raise PluginError(f"the reference has no text about {', '.join(missing)}")
