"""Gives the package its README and links: see ``docs/package_page.py``."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        page = runpy.run_path(str(root / "docs" / "package_page.py"))
        repository = page["repository_in"]((root / "pyproject.toml").read_text(encoding="utf-8"))
        readme = page["readme_for_an_index"]((root / "README.md").read_text(encoding="utf-8"), repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = page["links_of"](repository)
