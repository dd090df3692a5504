"""The connector `adbc` keeps the contract of every connector, over each driver and each way to bind keys."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from lookup_connectors.adbc import AdbcConnector

from lookup_hints.spi.secrets import known_secrets
from lookup_hints.testing import ContractSource
from tests.servers.connectors.adbc_tables import DuckDbSource, PostgresAdbcSource, SqliteFileSource
from tests.servers.connectors.test_contract import Both
from tests.servers.postgres import PASSWORD, PostgresServer


class TestDuckDb(Both):
    connector_type = AdbcConnector

    @pytest.fixture(params=["", "trino"], ids=["lists", "parameters"])
    def source(self, tmp_path: Path, request: pytest.FixtureRequest) -> ContractSource:
        options = {"dialect": request.param} if request.param else {}
        return DuckDbSource(tmp_path / "contract.duckdb", **options)


class TestSqlite(Both):
    connector_type = AdbcConnector

    @pytest.fixture
    def source(self, tmp_path: Path) -> ContractSource:
        return SqliteFileSource(tmp_path / "contract #1?.db")


class TestPostgres(Both):
    connector_type = AdbcConnector
    secrets = (PASSWORD, quote(PASSWORD, safe=""))

    @pytest.fixture(params=["", "redshift"], ids=["arrays", "parameters"])
    def source(self, postgres_server: PostgresServer, request: pytest.FixtureRequest) -> ContractSource:
        options = {"dialect": request.param} if request.param else {}
        return PostgresAdbcSource(postgres_server, **options)

    def test_it_knows_its_secrets(self, source: ContractSource) -> None:
        connector = self.connector(source.missing())
        assert any(quote(PASSWORD, safe="") in secret for secret in known_secrets(connector))
