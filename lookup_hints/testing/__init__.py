"""For those who write connectors: the contract that every connector keeps, as pytest classes, and a fake.

``ConnectorContract`` tests any connector, by a table and a few keys that are there and are not.
``SourceContract`` tests one whose source the tests can fill: with rows of its own it asks harder questions.
``FakeConnector`` is a source whose misses, errors and delays are scripted; ``looked_up`` asks any connector
as the engine would, with retries and timeouts, without Spark and without waiting.

Examples:
    A module of your tests; pytest runs every test of the contract against your source:

        class TestGeoIp(SourceContract):
            connector_type = GeoIp

            @pytest.fixture()
            def source(self, tmp_path):
                return GeoIpSource(tmp_path)   # has `filled` and `missing`, see `ContractSource`
"""

from lookup_hints.testing.contract import ConnectorContract
from lookup_hints.testing.fake import Call, FakeClock, FakeConnector, LookedUp, looked_up
from lookup_hints.testing.source_contract import CONTRACT_SCHEMA, ContractSource, SourceContract

__all__ = [
    "CONTRACT_SCHEMA",
    "Call",
    "ConnectorContract",
    "ContractSource",
    "FakeClock",
    "FakeConnector",
    "LookedUp",
    "SourceContract",
    "looked_up",
]
