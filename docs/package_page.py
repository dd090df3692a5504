"""What is published under the project's name: its links, and the README of a package index.

All of it comes from one setting, ``repository`` in ``pyproject.toml`` (docs/decisions/0232).
"""

from __future__ import annotations

import re

BRANCH = "main"
_SETTING = re.compile(r'^\[tool\.lookup-hints\]\n(?:#.*\n)*repository = "([^"]*)"$', re.MULTILINE)
_RELATIVE = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def repository_in(project: str) -> str:
    """The address of the repository in the text of ``pyproject.toml``, or an empty text."""
    (address,) = _SETTING.findall(project)
    return str(address).rstrip("/")


def links_of(repository: str) -> dict[str, str]:
    """The links that a package index shows beside the package."""
    if not repository:
        return {}
    blob = f"{repository}/blob/{BRANCH}"
    return {
        "Repository": repository,
        "Documentation": f"{blob}/docs/index.md",
        "Changelog": f"{blob}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def readme_for_an_index(readme: str, repository: str) -> str:
    """The README with links that work where its folder is not: into the repository, or none.

    >>> readme_for_an_index("See [start](docs/start.md).", "https://git.example/lookups")
    'See [start](https://git.example/lookups/blob/main/docs/start.md).'
    >>> readme_for_an_index("See [start](docs/start.md).", "")
    'See start.'
    """
    linked = rf"[\1]({repository}/blob/{BRANCH}/\2)" if repository else r"\1"
    return _RELATIVE.sub(linked, readme)
