"""Dead letters as files: each task writes its own, and those of a task that is repeated take their place.

A file is written under a name that no reader takes, and gets its own when the task is about to end. So a task
that Spark takes for done has its letters in the folder, and one that failed has none. A task removes no
letters of a copy that may be running still, as Spark may take the rows of that one. (docs/decisions/0308)
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from hashlib import blake2b
from socket import gethostname
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import types

from lookup_hints.engine.outcomes import FailedKeys
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import DeadLetters, LookupSpec
from lookup_hints.metrics.lookup_metrics import TaskRun
from lookup_hints.process.running_task import job_property, running_statement, task_run
from lookup_hints.spi.secrets import known_secrets, masker

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PART = 10_000
"""This many letters are held in memory before they are written as a part of the task's letters."""

LONGEST_ERROR = 2_000
"""This many characters of an error are kept: what a server answers may be a page."""

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("alias", pa.string()),
        ("line", pa.int32()),
        ("connector", pa.string()),
        ("key", pa.string()),
        ("error_class", pa.string()),
        ("error", pa.string()),
        ("attempts", pa.int32()),
        ("failed_at", pa.timestamp("us", tz="UTC")),
        ("query_id", pa.string()),
        ("batch_id", pa.int64()),
    ]
)
"""The columns of dead letters."""

_NAME = re.compile(r"(?P<task>.+-s\d+-p\d+-(?P<run>[0-9a-f]{8}))(?:-t\d+)?-\d{5}\.(?:parquet|json)")


# Written by the task itself: an accumulator would hold millions of letters in the driver, and arrives after a
# stream may have committed the batch. (docs/decisions/0138)
class DeadLetterWriter:
    """The dead letters of one task; a context that leaves nothing behind unless ``finish`` was reached.

    ``keep`` may be called on another thread than the rest, which waits for the file system.

    Args:
        spec: the lookup; without ``dead_letters`` nothing is kept.
        secrets: what is masked beside what the connector knows, as it is when letters are written.
    """

    def __init__(self, spec: LookupSpec, secrets: Set[str]) -> None:
        self._spec, self._secrets = spec, secrets
        self._pending: deque[tuple[FailedKeys, datetime]] = deque()
        self._kept = self._taken = 0
        self._files: _TaskFiles | None = None

    def __enter__(self) -> DeadLetterWriter:
        where = self._spec.settings.dead_letters
        if where is not None:
            self._spec.table.check_folder(where.folder, option="dead-letter.path")
            with self._naming_folder():
                self._files = _TaskFiles(where, self._spec.name.function or "lookup")
        return self

    def __exit__(self, *_: object) -> None:
        if self._files is not None:
            self._files.discard()

    def keep(self, failed: FailedKeys) -> None:
        self._pending.append((failed, datetime.now(timezone.utc)))
        self._kept += failed.keys.num_rows

    def write_full_parts(self) -> None:
        while self._kept - self._taken >= PART:
            self._write_part()

    # Files get their names just before the task ends: Spark takes rows of a task that ended, and no others.
    # (docs/decisions/0138)
    def finish(self) -> None:
        """Write the rest, and give all parts their names; those of an earlier run of the task are removed."""
        if self._files is None:
            return
        while self._pending:
            self._write_part()
        with self._naming_folder():
            self._files.publish()

    def _write_part(self) -> None:
        letters = list(self._some_letters())
        assert self._files is not None
        with self._naming_folder():
            self._files.write(letters)

    def _some_letters(self) -> Iterator[dict[str, Any]]:
        name, connector, run = self._spec.name, self._spec.connector, task_run()
        query, batch = (None if run is None else run.batch) or (None, None)
        common = {
            "table": name.table or self._spec.table.name,
            "alias": name.alias,
            "line": name.line,
            "connector": name.connector
            or self._spec.table.options.get("connector", type(connector).__name__),
            "query_id": query,
            "batch_id": batch,
        }
        mask = masker({*self._secrets, *known_secrets(connector)})
        taken = 0
        while self._pending and taken < PART:
            failed, at = self._pending.popleft()
            taken += failed.keys.num_rows
            error = {
                "error_class": failed.error_class,
                "error": mask(failed.error)[:LONGEST_ERROR],
                "attempts": failed.attempts,
                "failed_at": at,
            }
            yield from ({**common, **error, "key": text} for text in key_texts(failed.keys))
        self._taken += taken

    @contextmanager
    def _naming_folder(self) -> Iterator[None]:
        """A block whose errors name the table, the folder and the machine."""
        where = self._spec.settings.dead_letters
        try:
            yield
        except Exception as error:
            raise ConnectorError(
                f"The dead letters of table {self._spec.table.name} cannot be written to"
                f" {where and where.folder} on {gethostname()}: {_error_text(error)} Every worker must see"
                " the folder and be allowed to write there."
            ) from error


class _TaskFiles:
    """The files of one task: ``<folder>/run=<run>/<function>-s<stage>-p<partition>-<run>-t<try>-<part>``."""

    def __init__(self, where: DeadLetters, function: str) -> None:
        self._system, root = _file_system(where.folder)
        run = task_run() or TaskRun(0, 0, 0, 0)
        # A statement's files are told apart by their stage. A micro-batch that is repeated after a restart
        # has stages of other numbers: its files take the place of all of the run before.
        self._repeats_batches = run.batch is not None
        self._folder = f"{root.rstrip('/')}/run={_run_name(where.application, run)}"
        # Named with the stage, too: a view that is read twice runs one function in two stages over different
        # rows. (docs/decisions/0138) Spark groups its jobs by the run of a streaming query.
        group = job_property("spark.jobGroup.id") or where.application
        query = blake2b(group.encode(), digest_size=4).hexdigest()
        self._task = f"{function}-s{run.stage}-p{run.partition}-{query}"
        self._number, self._format, self._has_copies = run.number, where.format, where.copies
        self._parts = 0
        self._published: list[str] = []
        # Those that are here now: what appears later is of a copy that runs beside this one.
        self._outdated = self._outdated_files()

    def write(self, letters: list[dict[str, Any]]) -> None:
        """Write a part of the letters, which no reader takes yet."""
        if not self._parts:
            self._system.create_dir(self._folder, recursive=True)
        self._parts += 1
        path = self._unfinished_path(self._parts)
        if self._format == "json":
            with self._system.open_output_stream(path) as file:
                file.write("".join(map(_json_line, letters)).encode())
            return
        from pyarrow.parquet import write_table

        write_table(pa.Table.from_pylist(letters, SCHEMA), path, filesystem=self._system)

    def publish(self) -> None:
        """Give the parts their names, and then remove what earlier runs of the task have left.

        Who is killed in between leaves a letter twice, and none too few.
        """
        for part in range(1, self._parts + 1):
            path = f"{self._folder}/{self._file_name(part)}"
            self._system.move(self._unfinished_path(part), path)
            self._published.append(path)
        for path in (each for each in self._outdated if each not in self._published):
            # All tasks of a repeated batch remove what its first run left.
            with suppress(FileNotFoundError):
                self._system.delete_file(path)
        self._parts, self._published = 0, []

    def discard(self) -> None:
        unfinished = [self._unfinished_path(part) for part in range(1, self._parts + 1)]
        for path in (*unfinished[len(self._published) :], *self._published):
            with suppress(Exception):
                self._system.delete_file(path)

    def _outdated_files(self) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._system.get_file_info(FileSelector(self._folder, allow_not_found=True))
        named = ((each.path, _NAME.fullmatch(each.base_name)) for each in found)
        return [path for path, name in named if name and self._is_outdated(name)]

    def _is_outdated(self, name: re.Match[str]) -> bool:
        is_of_another_run = name["run"] != self._task[-len(name["run"]) :]
        is_of_this_task = name["task"] == self._task and not self._has_copies
        return is_of_this_task or (self._repeats_batches and is_of_another_run)

    def _file_name(self, part: int) -> str:
        return f"{self._task}-t{self._number}-{part:05}.{self._format}"

    def _unfinished_path(self, part: int) -> str:
        return f"{self._folder}/_{self._file_name(part)}"


def probe(folder: str) -> str | None:
    """Why ``folder`` cannot be written to from here; None where it can."""
    try:
        system, root = _file_system(folder)
        path = f"{root.rstrip('/')}/_probe-{uuid4().hex}"
        system.create_dir(root, recursive=True)
        with system.open_output_stream(path) as file:
            file.write(b"x")
        system.delete_file(path)
    except Exception as error:
        return _error_text(error)
    return None


def _file_system(folder: str) -> tuple[FileSystem, str]:
    # Imported late: it takes its time, and most lookups keep no letters.
    from pyarrow import fs

    if folder.startswith("/"):
        return fs.LocalFileSystem(), folder
    system, path = fs.FileSystem.from_uri(folder)
    return system, path


# One folder for each run keeps the listing short, and is a partition column for Spark. (docs/decisions/0138)
def _run_name(application: str, run: TaskRun) -> str:
    """The name of the run of a statement, or of a micro-batch, which keeps it when it is repeated."""
    if run.batch is not None:
        return "{}-{}".format(*run.batch)
    return "-".join(filter(None, (application or "here", running_statement())))


def _json_line(letter: dict[str, Any]) -> str:
    return json.dumps({**letter, "failed_at": letter["failed_at"].isoformat()}, ensure_ascii=False) + "\n"


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(". ") + "."


def key_texts(keys: pa.Table) -> list[str]:
    """Each key as a JSON object that Spark's ``from_json`` reads back as it was.

    >>> key_texts(pa.table({"id": [7], "kind": ["a"]}))
    ['{"id": 7, "kind": "a"}']
    """
    # As text, as Python's own types cannot hold all times, such as those of the year 10,000.
    columns = [
        column.cast(pa.string()) if types.is_timestamp(column.type) or types.is_date(column.type) else column
        for column in keys.columns
    ]
    rows = pa.table(columns, names=keys.column_names).to_pylist()
    written = ({name: _value_as_json(value) for name, value in row.items()} for row in rows)
    return [json.dumps(row, ensure_ascii=False, default=str) for row in written]


# JSON has no bytes, and neither NaN nor infinities.
def _value_as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value
