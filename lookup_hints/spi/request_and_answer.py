"""What a connector is made of and asked with: tables, requests, answers. All are frozen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa

from lookup_hints.errors import InternalError, OptionError, Problem
from lookup_hints.spi.called_functions import called_function, is_function_name
from lookup_hints.spi.option_values import FILE, Option, Place, hidden_keys, read_options
from lookup_hints.spi.secrets import HiddenValues, Secret, calls, has_reference, references, resolve
from lookup_hints.spi.security_policy import Policy, policy_of_environment


@dataclass(frozen=True)
class LookupTable:
    """A table created ``WITH ('connector' = ...)``: what it is called, holds, and is asked by.

    Args:
        name: its name in SQL.
        schema: its columns as Arrow fields; TIMESTAMP is ``timestamp[us, UTC]``, TIMESTAMP_NTZ has no zone.
        primary_key: columns that together are unique, none when not known.
        options: the ``WITH`` clause as written; references to secrets are not resolved. As some values are
            secrets themselves, ``repr`` of the mapping shows its names alone.
        conf: values of the ``${conf:key}`` references, taken from Spark on the driver.
        policy: what SQL may use; None for a table that Python code makes, which is trusted.
    """

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    conf: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    policy: Policy | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        missing = [name for name in self.primary_key if name not in self.schema.names]
        if missing:
            raise ValueError(f"primary key column {missing[0]!r} is not a column of {self.name}")
        object.__setattr__(self, "options", HiddenValues(self.options))

    @property
    def connector(self) -> str:
        """The value of the option ``connector``."""
        return self.options["connector"]

    def read(self, options: tuple[Option, ...], *, calling: bool = True) -> tuple[dict[str, Any], set[str]]:
        """Typed values of ``options`` with references resolved here, and the secrets read on the way.

        Called on the side that connects: a worker, or the driver when it asks for a schema. Functions of
        ``${call:}`` are called, which blocks, unless the value that they gave before is still good. Without
        ``calling`` a ``${call:}`` stays as it is written.

        Raises:
            OptionError: a reference names nothing, a required option is missing, or a value is bad.
            ConnectorError: a function raised.
            NotAllowed: a reference or a file is not allowed on this machine.
        """
        secrets: set[str] = set()
        resolved = {
            key: self.resolve(text, option=key, known=secrets, calling=calling)
            for key, text in self.options.items()
        }
        secrets |= {resolved[key] for key in hidden_keys(resolved, options)}
        for key in _file_options(options) & resolved.keys():
            self.check_file(resolved[key], option=key)
        return read_options(resolved, options, owner=f"table {self.name}"), secrets

    def resolve(self, text: str, *, option: str, known: set[str], calling: bool = False) -> str:
        """``text`` with its references replaced; each value read is added to ``known``, for masking.

        Called on the side that connects. A ``${call:}`` stays as it is written, unless ``calling``.

        Raises:
            OptionError: a reference names nothing; the message names the option and the reference.
            NotAllowed: a reference is not allowed on this machine.
        """
        if not has_reference(text):
            return text
        policy = self._policy_here
        for kind, name in references(text):
            policy.check_reference(self.name, option, kind, name)
        return resolve(
            text,
            self.conf,
            option=option,
            table=self.name,
            known=known,
            place_of=lambda path: policy.checked_file(self.name, option, path),
            calling=calling,
        )

    @property
    def called(self) -> tuple[str, ...]:
        """The functions that options refer to with ``${call:}``."""
        return tuple(dict.fromkeys(name for text in self.options.values() for name in calls(text)))

    def keeps_called(self) -> bool:
        """Whether ``read`` would call no function now: each has given a value that is still good."""
        return all(called_function(name).is_kept() for name in self.called)

    def forget_called(self, refused: Set[str]) -> bool:
        """A login with the secrets ``refused`` failed: let the next ``read`` call for others.

        May block, while another thread calls. False where no function is called: trying again is of no use.
        """
        for name in self.called:
            called_function(name).forget(refused)
        return bool(self.called)

    def secrets(self, options: tuple[Option, ...]) -> set[str]:
        """Texts to mask: what references stand for and secret options hold, as far as it is known here.

        Calls no function: of those, it is the values that they have given lately.
        """
        known = {value.reveal() for value in self.conf.values()}
        hidden = hidden_keys(self.options, options)
        for key, text in self.options.items():
            with suppress(OptionError, ValueError):  # ValueError: a file that is not text
                resolved = self.resolve(text, option=key, known=known)
                known |= {text, resolved} if key in hidden else set()
        return known.union(*(called_function(name).given for name in self.called))

    def files_now(self, options: tuple[Option, ...]) -> Hashable:
        """A value that changes with the files that references and ``options`` name.

        Called on the side that connects. A file that another one has replaced counts as changed; one that
        cannot be read is told apart from one that can. What files hold cannot be seen from the value.
        """
        return tuple(
            (key, self._file_now(key, key in _file_options(options))) for key in sorted(self.options)
        )

    def _file_now(self, key: str, names_file: bool) -> Hashable:
        text = self.options[key]
        if not names_file and "${file:" not in text:
            return None
        try:
            resolved = self.resolve(text, option=key, known=set())
            return identity_of_file(resolved) if names_file else sha256(resolved.encode()).digest()
        except (OptionError, ValueError) as error:  # ValueError: a file that is not text
            return type(error).__name__

    def check_allowed(self) -> None:
        """Refuse a connector and references that are not allowed, on the driver and on workers.

        Raises:
            NotAllowed: the connector or a reference is not allowed on this machine.
        """
        if self.policy is None:
            return
        policy = self._policy_here
        policy.check_connector(self.name, self.connector)
        for option, text in self.options.items():
            for kind, name in references(text):
                policy.check_reference(self.name, option, kind, name)

    def check_host(self, host: str, port: int | None, *, option: str) -> None:
        """Refuse a host that is not allowed. Connectors call it before they connect, and on the driver
        from ``check`` where the options say the host without a reference.

        Raises:
            NotAllowed: the host is not allowed on this machine.
        """
        self._policy_here.check_host(self.name, option, host, port)

    def check_file(self, path: str, *, option: str) -> None:
        """Refuse a file that is not allowed. Called on the side that reads it; options of the type ``FILE``
        are checked by ``read``.

        Raises:
            NotAllowed: the file, or where it links to, is not allowed on this machine.
        """
        self._policy_here.checked_file(self.name, option, path)

    def check_code(self, name: str, *, option: str) -> None:
        """Refuse code that is not allowed: a module or a library that an option names.

        Called on the driver and on the side that loads it, before it is loaded.

        Args:
            name: as the list of connectors spells it: ``adbc:adbc_driver_sqlite``.
            option: what names it.

        Raises:
            NotAllowed: it is not allowed on this machine.
        """
        self._policy_here.check_code(self.name, option, name)

    def check_folder(self, address: str, *, option: str) -> None:
        """Refuse a folder that may not be written to: one of this machine as a file, another by its host.

        Called on the driver and on the side that writes.

        Raises:
            NotAllowed: files below it, or its host, are not allowed on this machine.
        """
        if address.startswith("/"):
            self._policy_here.checked_file(self.name, option, f"{address}/run")
        else:
            place = urlsplit(address)
            self._policy_here.check_host(self.name, option, place.hostname or "", place.port)

    @property
    def is_restricted(self) -> bool:
        """Whether anything that a table may name is not allowed on this machine."""
        return self._policy_here.restricts

    @property
    def restricts_hosts(self) -> bool:
        """Whether some hosts are not allowed on this machine."""
        return bool(self._policy_here.hosts)

    @property
    def restricts_files(self) -> bool:
        """Whether some files are not allowed on this machine."""
        return self._policy_here.restricts_files

    @property
    def _policy_here(self) -> Policy:
        return Policy() if self.policy is None else self.policy & policy_of_environment()

    def check(self, options: tuple[Option, ...]) -> None:
        """Raise what ``read`` would, as far as it can be known without resolving references.

        Raises:
            OptionError: a required option is missing, or a value without references is bad.
            NotAllowed: a file is not allowed on this machine.
        """
        later = {key for key, text in self.options.items() if has_reference(text)}
        known_now = tuple(option for option in options if option.key_in(Place.TABLE) not in later)
        read_options(self.options, known_now, owner=f"table {self.name}")
        self._check_calls(options)
        for key in _file_options(known_now) & self.options.keys():
            self._policy_here.check_path(self.name, key, self.options[key])

    def _check_calls(self, options: tuple[Option, ...]) -> None:
        takers = [option for option in options if option.may_call]
        for key, text in self.options.items():
            wrong = next((name for name in calls(text) if not is_function_name(name)), None)
            if wrong is not None:
                what = f"'${{call:{wrong}}}' names no function"
                tip = "Write ${call:package.module:function}."
            elif calls(text) and not any(option.is_named(key) for option in takers):
                shown = ", ".join(repr(option.shown_key) for option in takers)
                what = "${call:} may not stand here"
                tip = f"It may in {shown}." if shown else "No option of this connector takes it."
            else:
                continue
            raise OptionError(Problem(f"table {self.name}: option {key!r}: {what}.", tip=tip))


def identity_of_file(path: str) -> Hashable:
    """A value that changes with the file under ``path``, when it is replaced or written to; None for none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # ValueError: no path at all
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _file_options(options: tuple[Option, ...]) -> set[str]:
    return {option.key_in(Place.TABLE) for option in options if option.type == FILE}


@dataclass(frozen=True)
class TableSize:
    """About how large a table is, as its source knows without reading it.

    Args:
        rows: how many rows; None where the source does not know.
        bytes: how much room they take at the source, indexes left out; None where it does not know.
        source: where the numbers are from (``pg_class``), or why there are none; EXPLAIN shows it.
        exact: whether rows were counted, so that the number is right at this moment.
        distinct: how many different values columns have, as far as the source knows.
    """

    rows: int | None
    bytes: int | None = None
    source: str = ""
    exact: bool = False
    distinct: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if min(self.rows or 0, self.bytes or 0) < 0:
            raise ValueError(f"a table cannot have {self.rows} rows or {self.bytes} bytes")


@dataclass(frozen=True)
class OrderCondition:
    """Which rows of a key answer a value: the nearest on one side, or all whose range holds it.

    Args:
        column: the column with which the value is compared.
        operator: how: ``>=``, ``>``, ``<=`` or ``<``, with the value on the left. The nearest row answers.
        until: the column with the other end of a row's range. All rows whose range holds the value answer;
            ``operator`` is ``>=`` or ``>``.
        until_operator: how the value is compared with that: ``<`` or ``<=``.
        is_open: whether a row with NULL there has not ended; else it answers nothing.
        known_from: a column of the same type. Only rows where it is at or before the value take part, and of
            equally near ones that with the greatest answers; ``operator`` is ``>=``. With ``until``, the row
            that is nearest answers, unless it has ended.
        known_apart: whether ``known_from`` is compared with a second value, which comes behind the first.
    """

    column: str
    operator: str = ">="
    until: str | None = None
    until_operator: str = "<"
    is_open: bool = True
    known_from: str | None = None
    known_apart: bool = False

    def __post_init__(self) -> None:
        operators = {">=", ">", "<=", "<"} if self.until is None else {">=", ">"}
        if self.known_from is not None:
            operators = {">="}
        if self.operator not in operators or self.until_operator not in ("<", "<="):
            raise ValueError(f"rows cannot be found by {self.operator!r} {self.until or ''}".rstrip())

    @property
    def values(self) -> int:
        """How many values a row is compared with."""
        return 2 if self.known_apart else 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that a row must bring."""
        return tuple(each for each in (self.column, self.until, self.known_from) if each is not None)


METRICS = {
    "l2": 1,
    "cosine": 1,
    "inner-product": 1,
    "difference": 1,
    "levenshtein": 1,
    "trigram": 1,
    "euclidean": None,
    "great-circle": 2,
}
"""How many columns each metric of a ``NearestCondition`` compares; None for any number."""


@dataclass(frozen=True)
class NearestCondition:
    """Which rows of a key answer a value: those nearest to it, by ``metric``.

    A row at no distance (NULL) answers nothing, and nothing answers a NULL. NaN is the largest distance, and
    the greatest similarity. ``l2``, ``cosine`` and ``inner-product`` compare ARRAY<FLOAT> as Spark's
    ``vector_l2_distance``, ``vector_cosine_similarity`` and ``vector_inner_product`` do, the latter two by
    the greatest similarity: a NULL element, and for ``cosine`` a vector of zeros, is at no distance. Vectors
    of different lengths are an error. ``difference`` is the absolute one of two numbers, dates or timestamps,
    ``levenshtein`` the number of changed characters, ``trigram`` the similarity of texts as ``pg_trgm`` has
    it, ``euclidean`` the distance of points with these coordinates, and ``great-circle`` that of a latitude
    and a longitude in degrees.

    Args:
        columns: the columns that are compared.
        metric: the distance; a key of ``METRICS``.
        most: so many rows answer a value, fewer where there are fewer.
        exact: whether these must be the nearest rows. Spark ranks the rows of an answer again, so an answer
            may have more than ``most``: those that rounding could put among the nearest belong to it.
        ties: the columns by which equally near rows are ordered, ascending: the primary key.

    Raises:
        ValueError: there is no such metric, or it compares another number of columns.
    """

    columns: tuple[str, ...]
    metric: str
    most: int = 1
    exact: bool = True
    ties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wanted = METRICS.get(self.metric, 0)
        if not self.columns or self.most < 1 or wanted not in (None, len(self.columns)):
            columns = ", ".join(self.columns)
            raise ValueError(
                f"the {self.most} nearest rows cannot be found by {self.metric!r} of ({columns})"
            )

    def value_field(self, schema: pa.Schema) -> pa.Field:
        """The field of the values that columns of ``schema`` are compared with.

        Several columns are compared with a struct that has their names.
        """
        fields = [schema.field(name) for name in self.columns]
        kind = fields[0].type if METRICS[self.metric] == 1 else pa.struct(fields)
        return pa.field(f"nearest to {', '.join(self.columns)}", kind)


@dataclass(frozen=True)
class LookupRequest:
    """One request to a connector: distinct, non-null keys, and the columns to return.

    Args:
        keys: one row per key; its columns are the dimension columns asked by, typed as in the table's
            schema, in the order of the join's equalities. No NULL, no duplicate, at least one row.
        schema: what the answer must hold: the key columns and the wanted ones, in the table's order.
        timeout: seconds left for this request, or None.
        attempt: the number of the attempt, from 1; the highest if keys of several attempts go together.
        order: which rows of a key to return; the last column of ``keys`` then has the values to compare its
            column with, and where it is ``known_apart``, the last two. Only an ``OrderedLookup`` gets such
            requests.
        nulls: columns that must be NULL in the rows returned, beside the keys, which may then have no column.
            Only a ``NullSafeLookup`` gets such requests.
        nearest: as ``order``, the rows nearest to a value; only a ``NearestLookup`` gets such requests.
    """

    keys: pa.Table
    schema: pa.Schema
    timeout: float | None = None
    attempt: int = 1
    order: OrderCondition | None = None
    nulls: tuple[str, ...] = ()
    nearest: NearestCondition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the answer must hold."""
        return tuple(self.schema.names)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the columns asked by; those of the values of ``order`` or ``nearest`` are none of them."""
        names = tuple(self.keys.column_names)
        values = self.order.values if self.order is not None else int(self.nearest is not None)
        return names[: len(names) - values]


@dataclass(frozen=True)
class PlacedRows:
    """An answer that states for each row which key it belongs to.

    For sources whose own equality differs from SQL's (case-insensitive, prefix, nearest): row ``i`` of
    ``rows`` belongs to row ``positions[i]`` of the request's keys, and its key columns are not compared.
    Where positions are None, they are compared, as those of a plain table.
    """

    rows: pa.Table
    positions: pa.Array | None = None


@dataclass(frozen=True)
class Outcomes(PlacedRows):
    """The answer of a request in which some keys failed.

    Args:
        failures: the errors of failed keys, by the position of the key; each counts as if its key had been
            requested alone.
        notes: details on keys without rows for ``ReportsOutcomes``, by the position of the key.
    """

    failures: Mapping[int, Exception] = field(default_factory=dict)
    notes: Mapping[int, Any] = field(default_factory=dict)


Answer: TypeAlias = "pa.Table | PlacedRows"
"""Rows that contain their key columns (any number per key, none for a miss), or placed rows."""


class RowRequest(NamedTuple):
    """One key, for connectors that are asked one at a time.

    A named tuple, as one is made for every key: a frozen dataclass takes four times as long.

    Attributes:
        key: the value of each column asked by; None only for a ``NullSafeLookup``: rows where it is NULL.
        schema: the columns that a row should have, as in ``LookupRequest``.
        timeout: seconds left for this key, or None.
        attempt: which try this is, from 1.
    """

    key: Mapping[str, Any]
    schema: pa.Schema
    timeout: float | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Miss:
    """No rows, with details for ``ReportsOutcomes``."""

    note: Any = None


Rows: TypeAlias = "Sequence[Any] | Miss"
"""What is found for one key: dictionaries by column (key columns may be left out), none for a miss."""


@dataclass(frozen=True)
class Outcome:
    """How a lookup without rows ended, for connectors that return a row for it.

    Args:
        error: why it failed, or None for a miss.
        attempts: how often the keys were asked.
        notes: the details that the answer gave for each key, in the order of the keys.
    """

    error: Exception | None
    attempts: int
    notes: Sequence[Any]


FilterValue = bool | int | str | date | Decimal

# How many values each operator has; None for any number but none.
_VALUES = {"=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "IN": None, "IS NULL": 0, "IS NOT NULL": 0}


@dataclass(frozen=True)
class Filter:
    """A condition on one column: ``=``, ``<``, ``<=``, ``>``, ``>=``, ``IN``, ``IS NULL`` or ``IS NOT NULL``.

    Args:
        column: a column of the table that is BOOLEAN, a whole number, DECIMAL, DATE or STRING.
        op: the operator.
        values: what the column is compared with, as Python's own values of the column's type.

    Raises:
        InternalError: there is no such operator, or it has another number of values.
    """

    column: str
    op: str
    values: tuple[FilterValue, ...] = ()

    def __post_init__(self) -> None:
        wanted = _VALUES.get(self.op, -1)
        if len(self.values) != wanted and not (wanted is None and self.values):
            raise InternalError(f"a filter cannot be {self.op!r} with {len(self.values)} values")

    def __str__(self) -> str:
        """As SQL writes it.

        >>> str(Filter("country", "IN", ("DE", "FR"))), str(Filter("id", "IS NULL"))
        ("country IN ('DE', 'FR')", 'id IS NULL')
        """
        values = ", ".join(map(_sql_value, self.values))
        return " ".join(filter(None, [self.column, self.op, f"({values})" if self.op == "IN" else values]))


def _sql_value(value: FilterValue) -> str:
    if isinstance(value, bool | int | Decimal):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else f"DATE '{value}'"
