"""What changes beneath a connector that a worker keeps open: files, passwords, tokens, and time."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.process.open_connectors import OPEN_SECONDS, Process
from lookup_hints.spi import AsyncLookup, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.servers.http_server import Api
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.unit.connectors.test_sqlite import run
from tests.unit.engine.support import Clock, plain

pytestmark = pytest.mark.usefixtures("worker")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def table_of(**options: str) -> LookupTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return LookupTable("people", SCHEMA, options={"connector": "test"} | given)


def begun(connector: SyncLookup | AsyncLookup, ids: Iterator[int]) -> Iterator[Any]:
    """A task that looks up ``ids``, one after the other, with a copy of ``connector`` as Spark makes it."""
    copy = pickle.loads(pickle.dumps(connector))
    settings = LookupSettings(isinstance(connector, AsyncLookup), batch_size=1)
    batches = ((pa.array([each], pa.int64()),) for each in ids)
    return look_up(LookupSpec(copy, ("id",), ("id", "name"), settings), "the connector", batches, None)


def name_of(connector: SyncLookup | AsyncLookup, key: int = 1) -> str:
    """The name that a task finds for ``key``."""
    [name] = names_in(begun(connector, iter([key])))
    return name


def names_in(lists: Iterable[Any]) -> list[str]:
    """The name in each list of rows, which has one."""
    return [name for rows in plain(lists) for _, name in rows or ()]


# --- a file of SQLite -----------------------------------------------------------------------------


def database(path: Path, name: str) -> Path:
    run(path, "CREATE TABLE people (id INT, name TEXT)", f"INSERT INTO people VALUES (1, '{name}')")
    os.utime(path, (1, 1))
    return path


def test_a_file_that_another_one_replaces_is_read_from_the_next_task_on(tmp_path: Path) -> None:
    connector = SqliteConnector(table_of(path=str(database(tmp_path / "live", "old"))))
    assert name_of(connector) == "old"
    for name in ("new", "gnu"):
        database(tmp_path / "next", name).replace(tmp_path / "live")
        assert name_of(connector) == name


def test_a_file_that_a_link_leads_to_is_told_apart(tmp_path: Path) -> None:
    link = tmp_path / "live"
    link.symlink_to(database(tmp_path / "a", "old"))
    connector = SqliteConnector(table_of(path=str(link)))
    assert name_of(connector) == "old"
    link.unlink()
    link.symlink_to(database(tmp_path / "b", "new"))
    assert name_of(connector) == "new"


def test_a_task_that_runs_goes_on_with_its_file_and_closes_it_at_its_end(
    tmp_path: Path, worker: Process
) -> None:
    connector = SqliteConnector(table_of(path=str(database(tmp_path / "live", "old"))))
    task = begun(connector, iter([1] * 40_000))
    first = next(task)
    database(tmp_path / "next", "new").replace(tmp_path / "live")
    assert name_of(connector) == "new"
    assert set(names_in([first, *task])) == {"old"}
    assert worker._outdated == []
    assert name_of(connector) == "new"


def test_a_file_that_is_gone_is_an_error_and_one_that_comes_back_is_read(tmp_path: Path) -> None:
    connector = SqliteConnector(table_of(path=str(database(tmp_path / "live", "old"))))
    assert name_of(connector) == "old"
    (tmp_path / "live").rename(tmp_path / "away")
    with pytest.raises(ConnectorError, match="there is no file"):
        name_of(connector)
    (tmp_path / "away").rename(tmp_path / "live")
    assert name_of(connector) == "old"


def test_a_column_that_gets_another_type_is_checked_again(tmp_path: Path) -> None:
    path = database(tmp_path / "live", "old")
    task = begun(SqliteConnector(table_of(path=str(path))), _then([1] * 20_000, path, [7]))
    with pytest.raises(ConnectorError, match=r"keeps numbers of a TEXT column as text\. Declare it STRING"):
        list(task)


def _then(first: list[int], path: Path, others: list[int]) -> Iterator[int]:
    yield from first
    # '007' is not a number to a TEXT column: 7 would be a miss.
    run(path, "DROP TABLE people", "CREATE TABLE people (id TEXT, name TEXT)")
    run(path, "INSERT INTO people VALUES ('007', 'James')")
    yield from others


# --- passwords and tokens in files ----------------------------------------------------------------


def test_a_password_that_was_changed_is_read_anew(postgres_server: PostgresServer, tmp_path: Path) -> None:
    postgres_server.execute("""
        CREATE TABLE people (id int, name text); INSERT INTO people VALUES (1, 'Ada');
        CREATE ROLE rotated LOGIN PASSWORD 'f1rst'; GRANT SELECT ON people TO rotated
    """)
    password = tmp_path / "password"
    password.write_text("f1rst")
    place = {"host": "127.0.0.1", "port": str(postgres_server.port), "database": "postgres"}
    connector = PostgresConnector(table_of(user="rotated", password=f"${{file:{password}}}", **place))
    assert name_of(connector) == "Ada"
    password.write_text("sec0nd")
    postgres_server.execute("""
        ALTER ROLE rotated PASSWORD 'sec0nd';
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'
    """)
    assert name_of(connector) == "Ada"


def test_a_password_of_redis_that_was_changed_is_read_anew(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.run("HSET", "person:1", "name", "Ada")
    password = tmp_path / "password"
    connector = RedisConnector(
        table_of(
            host="127.0.0.1",
            port=str(redis_server.port),
            username="rotated",
            password=f"${{file:{password}}}",
            key="person:{id}",
        )
    )
    for current in ("f1rst", "sec0nd"):
        password.write_text(current)
        redis_server.run("ACL", "SETUSER", "rotated", "on", "resetpass", f">{current}", "~*", "+@all")
        redis_server.run("CLIENT", "KILL", "USER", "rotated")
        assert name_of(connector) == "Ada"


def test_a_token_that_was_changed_is_sent_from_the_next_task_on(api: Api, tmp_path: Path) -> None:
    api.fill("people", [{"id": 1, "name": "Ada"}])
    token = tmp_path / "token"
    connector = HttpConnector(table_of(url=f"{api.url}/tables/people/{{id}}", token=f"${{file:{token}}}"))
    for current in ("f1rst", "sec0nd"):
        token.write_text(current + "\n")
        assert name_of(connector) == "Ada"
    assert [each["headers"]["authorization"] for each in api.asked()] == ["Bearer f1rst", "Bearer sec0nd"]


def test_a_netrc_file_that_was_changed_is_read_anew(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.fill("people", [{"id": 1, "name": "Ada"}])
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    connector = HttpConnector(table_of(url=f"{api.url}/tables/people/{{id}}", use_environment="true"))
    for current in ("one", "other"):
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {current}")
        (tmp_path / "netrc").chmod(0o600)
        assert name_of(connector) == "Ada"
    assert len({each["headers"]["authorization"] for each in api.asked()}) == 2


class Talkative(SyncLookup):
    """Fails with the token that it was opened with, after the file got another one."""

    def open(self) -> None:
        self.text = self.table.resolve(self.table.options["token"], option="token", known=set())

    def lookup(self, request: LookupRequest) -> pa.Table:
        Path(self.table.options["token"][len("${file:") : -1]).write_text("sec0nd")
        raise ConnectorError(f"the server says: no {self.text}", permanent=True)


def test_the_secret_that_it_was_opened_with_is_masked_though_the_file_has_another(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f1rst")
    with pytest.raises(ConnectorError, match=r"the server says: no \*\*\*"):
        name_of(Talkative(table_of(token=f"${{file:{tmp_path / 'token'}}}")))


# --- what cannot be seen --------------------------------------------------------------------------


def test_a_connector_is_opened_anew_after_some_time(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    openings: list[float] = []
    monkeypatch.setattr(SqliteConnector, "_check_columns", lambda *_: openings.append(clock()))
    connector = SqliteConnector(table_of(path=str(database(tmp_path / "live", "old"))))
    for _ in range(5):
        name_of(connector)
        clock.sleep(OPEN_SECONDS / 2)
    assert openings == [0.0, OPEN_SECONDS, 2 * OPEN_SECONDS]


def test_a_certificate_that_was_written_anew_counts_as_changed(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    connector = RedisConnector(table_of(host="h", key="{id}", tls="true", tls_ca=str(authority)))
    seen = {connector.opened_with()}
    authority.write_text("one")
    seen.add(connector.opened_with())
    authority.write_text("other")
    seen.add(connector.opened_with())
    assert len(seen) == 3
    assert connector.opened_with() in seen
