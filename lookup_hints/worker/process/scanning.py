"""How a worker reads a table, or a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lookup_hints.engine.arrow import conform
from lookup_hints.engine.masking import known_secrets, without_secrets
from lookup_hints.errors import InternalError
from lookup_hints.spi import Connector, Filter, FilteredScan, Scan
from lookup_hints.worker.process.open_connectors import needing_its_driver


def scanned(
    connector: Connector, schema: pa.Schema, partition: str = "", filters: Sequence[Filter] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of the table of ``connector``, with the columns of ``schema``.

    Rows that ``filters`` leave out may be missing.

    Raises:
        ConnectorError: the scan failed; secrets are masked.
    """
    batches = _scanned(connector, schema, partition, filters)
    return without_secrets(batches, connector, known_secrets(connector), kind=Exception)


def _scanned(
    connector: Connector, schema: pa.Schema, partition: str, filters: Sequence[Filter]
) -> Iterator[pa.RecordBatch]:
    if not isinstance(connector, Scan):
        raise InternalError(f"{type(connector).__name__} was planned to be scanned, which it cannot")
    connector.table.check_allowed()
    who = f"connector {type(connector).__name__} of table {connector.table.name}"
    with needing_its_driver(connector):
        for batch in _read(connector, schema, partition, filters):
            yield from conform(pa.Table.from_batches([batch]), schema, who).to_batches()


def _read(
    connector: Scan, schema: pa.Schema, partition: str, filters: Sequence[Filter]
) -> Iterator[pa.RecordBatch]:
    if filters and isinstance(connector, FilteredScan):
        return connector.scan_filtered(schema, partition, filters)
    return connector.scan_partition(schema, partition) if partition else connector.scan(schema)
