"""What connectors are made of: the classes and values that those who write connectors use.

Nothing here depends on SQL, plans or Spark. A connector imports all that it needs from here.
"""

import warnings
from typing import Any

from lookup_hints.errors import AnswerTooLarge, ConnectorError, LookupTimeout, OptionError
from lookup_hints.spi.changed_column_and_versions import Changes, ChangesRequest, ReportsChanges
from lookup_hints.spi.connector import (
    AcquiresPermits,
    AsyncLookup,
    AsyncRowLookup,
    Connector,
    FilteredScan,
    NearestLookup,
    NullSafeLookup,
    OrderedLookup,
    ReportsOutcomes,
    ReportsSchema,
    RowStarter,
    Scan,
    ShowsAnswers,
    StartedRow,
    StartedRows,
    Statistics,
    SupportsBackpressure,
    SyncLookup,
    SyncRowLookup,
    TakeRows,
)
from lookup_hints.spi.health import Endpoint, HealthCheck, HealthRequest, ReportsHealth, connections_check
from lookup_hints.spi.option_values import (
    BOOLEAN,
    DURATION,
    FILE,
    SIZE,
    TEXT,
    Option,
    OptionType,
    choice,
    integer,
    number,
)
from lookup_hints.spi.request_and_answer import (
    Answer,
    Filter,
    FilterValue,
    LookupRequest,
    LookupTable,
    Miss,
    NearestCondition,
    OrderCondition,
    Outcome,
    Outcomes,
    PlacedRows,
    RowRequest,
    Rows,
    TableSize,
)
from lookup_hints.spi.request_context import (
    Ending,
    HttpExchange,
    Permits,
    Reporting,
    Wait,
    permits,
    reporting,
)

__all__ = [
    "BOOLEAN",
    "DURATION",
    "FILE",
    "SIZE",
    "TEXT",
    "AcquiresPermits",
    "Answer",
    "AnswerTooLarge",
    "AsyncLookup",
    "AsyncRowLookup",
    "Changes",
    "ChangesRequest",
    "Connector",
    "ConnectorError",
    "Ending",
    "Endpoint",
    "Filter",
    "FilterValue",
    "FilteredScan",
    "HealthCheck",
    "HealthRequest",
    "HttpExchange",
    "LookupRequest",
    "LookupTable",
    "LookupTimeout",
    "Miss",
    "NearestCondition",
    "NearestLookup",
    "NullSafeLookup",
    "Option",
    "OptionError",
    "OptionType",
    "OrderCondition",
    "OrderedLookup",
    "Outcome",
    "Outcomes",
    "Permits",
    "PlacedRows",
    "Reporting",
    "ReportsChanges",
    "ReportsHealth",
    "ReportsOutcomes",
    "ReportsSchema",
    "RowRequest",
    "RowStarter",
    "Rows",
    "Scan",
    "ShowsAnswers",
    "StartedRow",
    "StartedRows",
    "Statistics",
    "SupportsBackpressure",
    "SyncLookup",
    "SyncRowLookup",
    "TableSize",
    "TakeRows",
    "Wait",
    "choice",
    "connections_check",
    "integer",
    "number",
    "permits",
    "reporting",
]


def __getattr__(name: str) -> Any:
    """The ability under its former name, for one release."""
    if name == "HoldsBack":
        warnings.warn("HoldsBack is called SupportsBackpressure now.", DeprecationWarning, stacklevel=2)
        return SupportsBackpressure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
