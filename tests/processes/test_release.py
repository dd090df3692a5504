"""What is published: two builds are equal byte for byte, the metadata is complete, and the README can be shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from docs.package_page import links_of, repository_in
from tests.conftest import ROOT

LEFT_OUT = {
    *(".git", ".venv", ".matrix", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    ".hypothesis",
    "build",
    "dist",
}


def copy_tree(to: Path, *, mode: int, time: int) -> Path:
    """A copy of the tree whose files have other times and permissions, with a file that is nobody's business."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = {*folders} - LEFT_OUT - {"__pycache__"}
        here = to / Path(folder).relative_to(ROOT)
        here.mkdir()
        for name in files:
            copied = Path(shutil.copyfile(Path(folder) / name, here / name))
            copied.chmod(mode)
            os.utime(copied, (time, time))
    (to / "password.txt").write_text("hunter2")
    return to


def build(tree: Path, target: str, **environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", tree.with_name(f"{tree.name}-dist")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tree,
    )
    assert done.returncode == 0, done.stderr
    (built,) = tree.with_name(f"{tree.name}-dist").glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = copy_tree(tmp_path_factory.mktemp("release") / "one", mode=0o644, time=1_700_000_000)
    return build(tree, "sdist", TZ="UTC", PYTHONHASHSEED="1")


@pytest.fixture(scope="module")
def wheel(archive: Path) -> Path:
    """The wheel that is built from the source archive, as ``make release`` does."""
    with tarfile.open(archive) as packed:
        packed.extractall(archive.parent)
    (tree,) = (path for path in archive.parent.iterdir() if path.is_dir())
    return build(tree, "wheel", TZ="UTC", PYTHONHASHSEED="1")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(packed.read(name).decode("utf-8"))


def test_two_builds_are_equal_byte_for_byte(archive: Path, wheel: Path, tmp_path: Path) -> None:
    other = copy_tree(tmp_path / "two", mode=0o600, time=1_000_000_000)
    elsewhere = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2"}
    with tarfile.open(archive) as packed:
        assert [name for name in packed.getnames() if name.endswith("password.txt")] == []
    assert build(other, "sdist", **elsewhere).read_bytes() == archive.read_bytes()
    assert build(other, "wheel", **elsewhere).read_bytes() == wheel.read_bytes()


def test_the_wheel_has_each_module_and_nothing_of_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    ours = {ROOT / "lookup_hints": ROOT, ROOT / "connectors" / "lookup_connectors": ROOT / "connectors"}
    modules = {
        path.relative_to(above).as_posix()
        for package, above in ours.items()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    top = "dbt_lookup_hints.py"
    assert names == modules - {f"lookup_hints/runs/{top}"} | {top}


def test_the_metadata_is_complete(metadata: Message) -> None:
    for name in ("Summary", "Author", "Requires-Python", "Keywords"):
        assert metadata[name]
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    chosen = {each.partition(" :: ")[0] for each in metadata.get_all("Classifier", [])}
    assert chosen >= {"Development Status", "Intended Audience", "Operating System", "Programming Language"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    links = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    assert links == links_of(repository_in(project))


def test_the_readme_can_be_shown_by_a_package_index(metadata: Message) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown")
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = markdown.render(metadata.get_payload())
    assert shown is not None
    assert shown.startswith("<h1")
    assert '<pre lang="sql">' in shown, "the first example is no code"
    assert 'href="docs/' not in shown
