"""What befalls a store: killed writers, several at once, full disks. Right rows or none, and no error later."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lookup_hints.cache.store import segment_files as segment
from tests.unit.cache.support import Clock, asked, learned, store

"""All steps of the first merge, and some before and after."""


def test_a_writer_that_lives_keeps_its_file(tmp_path: Path) -> None:
    one, other = (store(tmp_path, Clock()) for _ in range(2))
    one.learn([learned({1: ["a"]})])
    with one._folder._temporary_file(lambda _: None) as file:
        other.tidy()
        assert file.exists()
    assert not file.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_of_the_writer_alone(small_disk: Path) -> None:
    one = store(small_disk, Clock())

    def fill() -> None:
        for number in range(1000):
            one.learn([learned({number * 1000 + each: ["x" * 50] for each in range(1000)})])

    with pytest.raises(OSError, match="No space left"):
        fill()
    known = asked(one, list(range(5000)))
    assert known
    assert set(map(tuple, known.values())) == {("x" * 50,)}
    assert not list((small_disk / "lookup_hints" / "store").glob("*.tmp"))


def test_a_reader_whose_folder_is_removed_says_so(tmp_path: Path) -> None:
    one = store(tmp_path, Clock())
    one.learn([learned({1: ["a"]})])
    asked(one, [1])
    shutil.rmtree(tmp_path / "lookup_hints")
    with pytest.raises(FileNotFoundError):
        asked(one, [1])
    with pytest.raises(FileNotFoundError):
        one.learn([learned({2: ["b"]})])


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    one = store(tmp_path, Clock())
    other = tmp_path / "lookup_hints" / "store" / "what.is.this.segment"
    other.write_text("?")
    one.learn([learned({1: ["a"]})])
    assert asked(one, [1]) == {1: ["a"]}
    assert other.read_text() == "?"


def test_a_store_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, Clock())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="open to others"):
        store(tmp_path, Clock())


def test_nothing_is_mapped_where_addresses_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark bounds the addresses of its workers by spark.executor.pyspark.memory."""
    one = store(tmp_path, Clock())
    one.learn([learned({1: ["a"]})])
    taken = 1 << 40
    monkeypatch.setattr(resource, "getrlimit", lambda _: (taken, taken))
    assert segment.has_room_for(1 << 20)
    assert not segment.has_room_for(1 << 40)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert asked(store(tmp_path, Clock()), [1]) == {}
