"""What the site needs beside the pages: the files that they link to, and tables that fit on phones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "sql_examples/README.md")
_FILES = ("sql_examples/*.sql", "sql_examples/*.py", "sql_examples/*.ipynb", "tests/queries/*/*.sql")
"""What pages may link to outside their folder."""

_LINK = re.compile(r"\]\((\.\./[^)#\s]+)")

_IN_DOCS = re.compile(r"(\]\((?:\.\./)?)docs/")
"""In the copies the pages are beside them, or a folder above."""

_TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_TITLE = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_FEW_COLUMNS = 2
"""Tables with at most these fit on a phone."""


def on_files(files: Any, config: Any) -> Any:
    """Add copies of the files outside the folder of the pages."""
    from mkdocs.structure.files import File

    for pattern in (*_PAGES, *_FILES):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of the folder of the pages lead to the copies; the changelog is not searched."""
    if page.file.src_uri == "CHANGELOG.md":
        page.meta["search"] = {"exclude": True}
    depth = page.file.src_uri.count("/")
    markdown = _LINK.sub(lambda link: f"]({inside(link[1], depth)}", markdown)
    return _IN_DOCS.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let wide tables become cards where the screen is narrow; ``site.css`` draws them."""
    return _TABLE.sub(lambda table: as_cards(table[0]), html)


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
