"""The servers that tests of connectors use, alone and through Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.certificates import Certificates
from tests.servers.http_server import Api, running_api
from tests.servers.mariadb import _mariadb_server, mariadb_server, mariadb_with_tls
from tests.servers.postgres import _postgres_server, postgres_server
from tests.servers.redis import _redis_server, redis_server

__all__ = [
    "_mariadb_server",
    "_postgres_server",
    "_redis_server",
    "api",
    "certificates",
    "mariadb_server",
    "mariadb_with_tls",
    "postgres_server",
    "redis_server",
]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for a server and a client, and the authority that signed them."""
    return Certificates(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture(scope="session")
def _running_api(certificates: Certificates) -> Iterator[Api]:
    with running_api(certificates) as api:
        yield api


@pytest.fixture
def api(_running_api: Api) -> Api:
    """The HTTP API, with nothing asked so far."""
    _running_api.reset()
    return _running_api
