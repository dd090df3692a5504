"""Interpreters for workers that lack something: environments that see only some installed packages."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = (ROOT / "lookup_hints", ROOT / "connectors" / "lookup_connectors")


def bare_python(folder: Path, *, without: Iterable[str] = (), beside: Iterable[Path] = ()) -> str:
    """An interpreter that has what this one has, but not this library.

    Args:
        folder: where the environment is made.
        without: packages that it must not have, either.
        beside: packages or modules that it has besides.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    (packages,) = folder.glob("lib/python3*/site-packages")
    hidden = ("lookup_", "_editable", "__pycache__", *without)
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if path.suffix != ".pth" and not path.name.lower().startswith(hidden):
            (packages / path.name).symlink_to(path)
    for path in beside:
        (packages / path.name).symlink_to(path)
    return str(folder / "bin" / "python")
