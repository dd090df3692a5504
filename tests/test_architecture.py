"""Who may import whom, so that the file tree stays the first page of the manual."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "lookup_hints"
CONNECTORS = ROOT / "connectors" / "lookup_connectors"

LEAVES = (
    *("errors", "flink", "sqltext", "retry", "restart", "options", "policy", "secrets"),
    *("pairs", "types", "model", "rowdoor", "spi", "spec", "registry"),
)
"""Each imports only what is named before it."""

ROOMS: dict[str, set[str]] = {
    "hints": {*LEAVES},
    "ddl": {*LEAVES},
    "script": {*LEAVES},
    "userfunction": {*LEAVES},
    "frames": {*LEAVES},
    "dataframe": {*LEAVES, "frames", "hints"},
    "commands": {*LEAVES},
    "statement": {*LEAVES, "commands", "ddl", "streaming"},
    "catalog": {*LEAVES, "ddl"},
    "supervision": {*LEAVES},
    "streaming": {*LEAVES, "supervision"},
    "plan": {*LEAVES, "hints"},
    "runtime": {*LEAVES},
    "fake": {*LEAVES, "runtime"},
    "contract": {*LEAVES, "runtime", "fake"},
    "testing": {*LEAVES, "runtime", "fake", "contract"},
    "shipping": {"errors"},
    "functions": {*LEAVES, "plan", "runtime", "shipping"},
    "counts": {*LEAVES, "plan", "runtime"},
    "progress": {"functions"},
    "brief": {*LEAVES, "supervision"},
    "archive": {*LEAVES},
    "remote": {*LEAVES},
    "picture": {*LEAVES, "plan", "progress"},
}
"""What each room imports beside itself. The surfaces below import what they like."""

SURFACES = {"session", "waiting", "check", "cli", "magics", "job", "submit", "scripts"}

FOR_CONNECTORS = {"spi", "model", "errors", "options", "secrets", "types", "sqltext"}

OWNERS = {
    "sqlglot": {"hints", "plan"},
    "pyspark": {
        "session",
        "functions",
        "shipping",
        "cli",
        "magics",
        "submit",
        "brief",
        "streaming",
        "remote",
    },
    "pandas": {"runtime.pandas_worker"},
    "IPython": {"magics"},
}
"""The only modules of the library that import these packages."""


def modules(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*.py") if path != LIBRARY / "__init__.py")


def name_of(path: Path, package: Path) -> str:
    """The module's name inside its package: ``plan.planner``, ``ddl``."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[str]:
    """The modules that ``path`` imports, inside functions too, but not for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if is_module(node.module, alias.name)
            )


def is_module(package: str, name: str) -> bool:
    folder = ROOT.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()


def rooms_imported(path: Path) -> set[str]:
    """The rooms of the library that ``path`` imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("lookup_hints.")}


@pytest.mark.parametrize("path", modules(LIBRARY), ids=lambda path: name_of(path, LIBRARY))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = name_of(path, LIBRARY).split(".")[0]
    if room in SURFACES:
        return
    assert room in LEAVES or room in ROOMS, f"{room} is new: say above what it may import"
    allowed = ROOMS[room] | {room} if room in ROOMS else {*LEAVES[: LEAVES.index(room)]}
    assert rooms_imported(path) <= allowed


@pytest.mark.parametrize("path", modules(CONNECTORS), ids=lambda path: name_of(path, CONNECTORS))
def test_a_connector_sees_only_the_door_that_is_made_for_it(path: Path) -> None:
    assert rooms_imported(path) <= FOR_CONNECTORS
    assert not [name for name in imports(path) if name.split(".")[0] in ("pyspark", "sqlglot")]


@pytest.mark.parametrize("path", modules(LIBRARY), ids=lambda path: name_of(path, LIBRARY))
def test_packages_are_imported_by_their_owners_alone(path: Path) -> None:
    name = name_of(path, LIBRARY)
    packages = {imported.split(".")[0] for imported in imports(path)}
    assert "lookup_connectors" not in packages, "the registry knows connectors by name"
    for package in packages & OWNERS.keys():
        assert {name, name.split(".")[0]} & OWNERS[package], f"{name} imports {package}"


@pytest.mark.parametrize(
    "path", [*modules(LIBRARY), *modules(CONNECTORS)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_nothing_reaches_into_the_jvm(path: Path) -> None:
    assert not re.search(r"\b_j(vm|df|sc|spark\w*)\b", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("lookup_hints", {"pyarrow", "sqlglot", "pyspark", "pandas"}),
        ("lookup_hints.spi", {"sqlglot", "pyspark", "pandas"}),
        ("lookup_hints.runtime.worker", {"sqlglot", "pyspark", "pandas"}),
    ],
)
def test_importing_one_module_does_not_bring_what_a_worker_may_lack(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert absent.isdisjoint(run.stdout.split())
