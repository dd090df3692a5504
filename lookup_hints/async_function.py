"""``async_wait``: a function of the user's own for each row, many at once (Flink's FLIP-232)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lookup_hints.dataframe.frames_in_text import is_frame
from lookup_hints.dataframe.function_connector import FunctionConnector
from lookup_hints.dataframe.join import JoinRequest, checked_retry, kind_of, read_options
from lookup_hints.errors import Problem, QueryError
from lookup_hints.retry import RetryPolicy
from lookup_hints.session import LookupSession
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted
from lookup_hints.tables.ddl import columns_of
from lookup_hints.tables.ddl_columns import plain_timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

NAME = "async_wait"


def async_wait(
    df: DataFrame,
    func: Callable[..., Any],
    inputs: Sequence[str | Column],
    returns: str | StructType,
    *,
    how: str = "left",
    ordered: bool | None = None,
    capacity: int | None = None,
    timeout: float | str | None = None,
    retry: RetryPolicy | None = None,
    on_error: str | None = None,
    dead_letter_path: str | None = None,
    max_errors: int | None = None,
    max_error_ratio: float | None = None,
    max_requests: int | None = None,
    shuffle: bool | None = None,
) -> DataFrame:
    """``df`` with what ``func`` returns for each row, called for many rows at once; lazy.

    The runtime is that of lookup joins, with the same guarantees: equal inputs within a batch are asked
    once, a row with a NULL among its inputs is not asked, results keep the order of the rows, ``timeout``
    covers a row's calls and waits together, a row that waits for its retry holds no slot, and a call that
    fails fails the query unless ``retry`` or ``on_error`` says otherwise.

    Args:
        df: batch or streaming, classic or Connect.
        func: an ``async def``, which runs on the event loop of the worker, or a plain function, which runs
            on threads. It takes the inputs by position and returns one row as a tuple or dictionary of the
            columns of ``returns``, a list of such for any number of rows, or None for no row; where there is
            one column its bare value is enough. It is pickled; what it imports must be on the workers.
        inputs: columns, SQL expressions or Columns of ``df``, one for each argument.
        returns: names and types of the new columns: ``"name STRING, score DOUBLE"``, or a StructType.
        how: ``left`` keeps a row for which nothing is returned, with NULLs; ``inner`` drops it.
        ordered: whether a finished call keeps its slot until all earlier ones are delivered.
        capacity: calls at once per task.
        timeout: seconds for one row, retries and waits included; or as in a hint (``"3 min"``).
        retry: when to call again, such as ``FixedDelay(3, 1.0).if_exception(OSError)``; predicates of
            ``if_result`` see the rows as dictionaries.
        on_error: ``fail``, ``null``, ``skip`` or ``dead-letter``.
        dead_letter_path: the folder of keys that failed for good, where ``on_error`` is ``dead-letter``.
        max_errors: keys of one task that may fail for good.
        max_error_ratio: share of the keys of one task that may fail for good, from 0 to 1.
        max_requests: calls of one query; the first one above it fails the query.
        shuffle: whether the rows of ``df`` are partitioned by the inputs first.

    Raises:
        QueryError: a column, a type or an option is wrong; says what to write.

    Examples:
        >>> async def rate(currency, day):
        ...     async with httpx.AsyncClient() as client:
        ...         answer = await client.get(f"https://rates.example/{day}/{currency}")
        ...         return answer.raise_for_status().json()["rate"]
        >>> async_wait(orders, rate, inputs=["currency", "day"], returns="rate DOUBLE", capacity=50,
        ...            retry=ExponentialDelay(3, 0.5).if_exception(httpx.TransportError))
    """
    if not is_frame(df):
        raise QueryError(Problem(f"{NAME} takes a DataFrame, not {type(df).__name__}."))
    options = read_options(NAME, locals())  # by their names among the arguments
    name = _checked_function(func, inputs)
    outputs = _output_schema(returns, df)
    keys = _input_columns(df, inputs, outputs)
    connector = FunctionConnector(
        LookupTable(name, pa.schema([*keys, *outputs]), options={"connector": name}),
        func,
        keys.names,
        outputs.names,
    )
    request = JoinRequest(
        pairs=tuple(zip(inputs, keys.names, strict=True)),
        is_using=False,
        kind=_kind_of_join(how),
        condition=None,
        columns=tuple((column, column) for column in outputs.names),
        alias=name,
        options=options,
        retry=checked_retry(NAME, retry),
    )
    return LookupSession(df.sparkSession).join_frame(df, connector, request)


def _checked_function(func: Any, inputs: Sequence[Any]) -> str:
    name = getattr(func, "__name__", type(func).__name__).strip("<>")
    if not callable(func):
        raise QueryError(Problem(f"{NAME} takes a function, not {func!r:.100}."))
    if inspect.isasyncgenfunction(func) or inspect.isgeneratorfunction(func):
        raise QueryError(Problem(f"{name} yields its rows.", tip="Return them, as a list."))
    if isinstance(inputs, str) or not inputs:
        raise QueryError(Problem(f"inputs cannot be {inputs!r}.", tip="Write inputs=['column', ...]."))
    try:
        signature = inspect.signature(func)
    except ValueError:  # some built-in functions do not tell
        return name
    try:
        signature.bind(*inputs)
    except TypeError as error:
        raise QueryError(
            Problem(f"{name}{signature} cannot be called with {len(inputs)} inputs: {error}.")
        ) from None
    return name


def _output_schema(returns: str | StructType, df: DataFrame) -> pa.Schema:
    if isinstance(returns, str):
        schema = columns_of(returns, plain_timestamp(lambda key: df.sparkSession.conf.get(key, None)))
    else:
        schema = columns_of(
            ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in returns.fields)
        )
    taken = {name.lower() for name in df.columns}
    for name in schema.names:
        if name.lower() in taken:
            raise QueryError(
                Problem(f"The frame has a column {name!r} already.", tip="Give the result another name.")
            )
    return schema


def _input_columns(df: DataFrame, inputs: Sequence[str | Column], outputs: pa.Schema) -> pa.Schema:
    """The inputs as columns of a table: their names, made different, and types."""
    names = set(map(str.lower, outputs.names))
    fields: list[pa.Field] = []
    for each in inputs:
        (kind,) = _select_one(df, each).schema.fields
        name, number = kind.name, 1
        while name.lower() in names:
            number += 1
            name = f"{kind.name}_{number}"
        names.add(name.lower())
        column = columns_of(f"{quoted(name)} {kind.dataType.simpleString()}").field(0)
        if pa.types.is_nested(column.type):
            message = f"The input {each} cannot be asked by: it is {kind.dataType.simpleString().upper()}."
            tip = "Give its parts, or its text: to_json(...)."
            raise QueryError(Problem(message, tip=tip))
        fields.append(column)
    return pa.schema(fields)


def _select_one(df: DataFrame, value: str | Column) -> DataFrame:
    if not isinstance(value, str):
        return df.select(value)
    names = [name for name in df.columns if name.lower() == value.lower()]
    return df.select(quoted(names[0])) if len(names) == 1 else df.selectExpr(f"(\n{value}\n) AS input")


def _kind_of_join(how: str) -> str:
    kind = kind_of(how, NAME)
    if kind not in ("left", "inner"):
        raise QueryError(Problem(f"{NAME} cannot be {how!r}.", tip="Write how='left' or how='inner'."))
    return kind
