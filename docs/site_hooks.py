"""What the site needs beside the pages: the files that they link to, its version, pictures in its colours,
tables that fit on phones, and how much each page counts in a search."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs.package_page import BRANCH, repository_in  # noqa: E402 (the path above comes first)
from lookup_hints import __version__  # noqa: E402

_PAGES = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
    *("benchmarks/README.md", "sql_examples/README.md"),
)
_FILES = ("sql_examples/*.sql", "sql_examples/*.py", "sql_examples/*.ipynb", "tests/queries/*/*.sql")
"""What pages may link to outside their folder."""

_LINK = re.compile(r"\]\((\.\./[^)#\s]+)")

_IN_DOCS = re.compile(r"(\]\((?:\.\./)?)docs/")
"""In the copies the pages are beside them, or a folder above."""

_WEIGHTS = (
    ("CHANGELOG.md", 0),
    ("decisions/", 0),
    ("benchmarks/", 0),
    ("CONTRIBUTING.md", 0.1),
    ("architecture.md", 0.1),
    ("sql-support/", 0.3),
    ("api/", 0.5),
    ("options/flink.md", 0.3),
)
"""How much a page counts in a search, by the beginning of its path, where that is not 1; 0 is left out."""

_GENERATED = ("options", "sql-support", "metrics.md", "performance.md")
"""How the paths of pages begin that a script makes: they are not edited by hand."""

_PICTURE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*([\w-]+\.svg)" />')
_OWN_COLOURS = "recording"
"""Pictures of a terminal keep their colours."""

_TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_TITLE = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_FEW_COLUMNS = 2
"""Tables with at most these fit on a phone."""


def on_config(config: Any) -> Any:
    """Show the version, and link to the repository if it is known."""
    config.extra["release"] = __version__
    config.copyright = f"lookup_hints {__version__}"
    if repository := repository_in((ROOT / "pyproject.toml").read_text(encoding="utf-8")):
        config.repo_url = repository
        config.edit_uri = f"edit/{BRANCH}/docs/"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add copies of the files outside the folder of the pages."""
    from mkdocs.structure.files import File

    for pattern in (*_PAGES, *_FILES):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of the folder of the pages lead to the copies; give the page its weight in a search."""
    path = page.file.src_uri
    weight = next((each for beginning, each in _WEIGHTS if path.startswith(beginning)), 1)
    page.meta["search"] = {"boost": weight} if weight else {"exclude": True}
    if path.startswith(_GENERATED):
        page.edit_url = None
    markdown = _LINK.sub(lambda link: f"]({inside(link[1], path.count('/'))}", markdown)
    return _IN_DOCS.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Draw pictures in the colours of the page; wide tables become cards on phones, by ``site.css``."""
    html = _PICTURE.sub(lambda image: drawn(image[1], image[2]) or image[0], html)
    return _TABLE.sub(lambda table: as_cards(table[0]), html)


def drawn(said: str, name: str) -> str:
    """The picture as a part of the page, which follows its colours; empty if it keeps its own."""
    if name.startswith(_OWN_COLOURS):
        return ""
    svg = (ROOT / "docs" / name).read_text(encoding="utf-8").strip()
    labelled = re.sub(r' aria-label="[^"]*"', "", svg, count=1).replace(
        "<svg", f'<svg aria-label="{said}"', 1
    )
    return f'<span class="picture">{labelled}</span>'


def as_cards(table: str) -> str:
    """A table with the title of its column in each cell, where it has more than two columns.

    >>> as_cards("<table><th>a</th><th>b</th><th>c</th><th>d</th><tr><td>1</td><td>2</td></tr></table>")[-67:]
    '<tr><td data-title="a">1</td><td data-title="b">2</td></tr></table>'
    """
    titles = [escape(unescape(_TAG.sub("", title))) for title in _TITLE.findall(table)]
    if len(titles) <= _FEW_COLUMNS:
        return table
    row = _ROW.sub(lambda row: _titled(row[0], titles), table)
    return row.replace("<table", "<table data-cards", 1)


def _titled(row: str, titles: Sequence[str]) -> str:
    left = iter(titles)
    return re.sub("<td", lambda _: f'<td data-title="{next(left, "")}"', row)


def inside(target: str, depth: int) -> str:
    """The link to the copy, where ``target`` leads out of the pages from a page so many folders deep.

    >>> inside("../sql_examples/http.sql", 0), inside("../performance.md", 1)
    ('sql_examples/http.sql', '../performance.md')
    """
    ups = target.count("../")
    return target.replace("../", "", 1) if ups > depth else target
