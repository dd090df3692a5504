"""The archive for ``--py-files``: this library and the user's modules, for workers that lack them.

Spark puts a ``.zip`` on the path of every worker (a ``.whl`` works only on the driver). It holds only pure
Python; compiled packages such as asyncpg and pyarrow must be installed on the workers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from lookup_hints.errors import Problem, QueryError, naming_file
from lookup_hints.version import __version__

# sqlglot plans, on the driver: which may be a Python that has none of it, too.
_PACKAGES = ("lookup_hints", "lookup_connectors", "sqlglot")
_METADATA = ("METADATA", "entry_points.txt")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    def files(self) -> Iterator[tuple[str, Path]]:
        if self.path.is_file():
            yield f"{self.name}.py", self.path
            return
        for file in sorted(self.path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{self.name}/{file.relative_to(self.path).as_posix()}", file


def find_module(given: str, *, to_ship: bool = True) -> Module:
    """The module that ``given`` means: a file ``geo.py``, a folder with a package, or an importable name.

    Raises:
        QueryError: there is none, or it is to be shipped and compiled.
    """
    path = Path(given)
    if path.is_dir():
        found = Module(path.resolve().name, path)
    elif path.suffix == ".py" and path.is_file():
        found = Module(path.stem, path)
    else:
        found = _find_importable(given)
    if not found.name.isidentifier():
        raise QueryError(Problem(f"{given!r} cannot be imported: {found.name!r} is not a name of a module."))
    compiled = [file for _, file in found.files() if file.suffix in (".so", ".pyd", ".dll")]
    if compiled and to_ship:
        message = f"{given!r} holds compiled code ({compiled[0].name}), which no archive brings to workers."
        tip = "Install it there."
        raise QueryError(Problem(message, tip=tip))
    return found


def build_archive(target: Path, modules: Sequence[Module] = ()) -> Path:
    """Write the archive to ``target``, and return that; the same content gives the same bytes."""
    metadata = [(name, text.encode()) for name, text in _installed_metadata()]
    return _write_archive(
        target, [*_files_of_modules((*map(_find_importable, _PACKAGES), *modules)), *metadata]
    )


def build_modules(target: Path, modules: Sequence[Module]) -> Path:
    """Write an archive of ``modules`` alone to ``target``, and return that; workers must have the library."""
    return _write_archive(target, _files_of_modules(modules))


def _files_of_modules(modules: Iterable[Module]) -> Iterator[tuple[str, bytes]]:
    for module in modules:
        for name, file in module.files():
            with naming_file(file):
                yield name, file.read_bytes()


def _write_archive(target: Path, contents: Iterable[tuple[str, bytes]]) -> Path:
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with naming_file(unfinished), ZipFile(unfinished, "w", ZIP_DEFLATED) as archive:
            for name, content in contents:
                info = ZipInfo(name, _LONG_AGO)
                info.compress_type = ZIP_DEFLATED
                archive.writestr(info, content)
        return unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _find_importable(name: str) -> Module:
    top = name.partition(".")[0]
    spec = find_spec(top) if top.isidentifier() else None
    if spec is not None and spec.submodule_search_locations:
        return Module(top, Path(next(iter(spec.submodule_search_locations))))
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        return Module(top, Path(spec.origin))
    message = f"There is no module {name!r} to ship."
    tip = f"Give a .py file, the folder of a package, or a name that {sys.executable} can import."
    raise QueryError(Problem(message, tip=tip))


def _installed_metadata() -> Iterator[tuple[str, str]]:
    """The metadata that registers the connectors' names; empty without an installation."""
    try:
        installed = distribution("lookup-hints")
    except PackageNotFoundError:
        return
    for name in _METADATA:
        with naming_file(name):
            text = installed.read_text(name)
        if text is not None:
            yield f"lookup_hints-{__version__}.dist-info/{name}", text
