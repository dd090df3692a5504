"""``lookup-hints doctor``: check the lookup tables of a file before a query runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from lookup_hints.cli.check import CheckOptions, lookups_of
from lookup_hints.cli.job import Script
from lookup_hints.driver.doctor import DRIVER, DoctorFinding, DoctorReport, ExaminedTable
from lookup_hints.driver.statement_scope import state_of
from lookup_hints.errors import LookupHintsError
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.runs.statement_run import failure
from lookup_hints.spi import HealthCheck
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.statements import Setting, SparkStatement, read_statement
from lookup_hints.tables.ddl import CreateLookupTable

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession

_CURE = "Correct the statement: lookup-hints check shows the place."


def examine_file(
    session: LookupSession, script: Script, modules: Sequence[str], key: Mapping[str, str], timeout: float
) -> DoctorReport:
    """Examine the lookup tables of ``script``; of its statements only those that create them and SET are run.

    Args:
        session: the session to declare them in.
        script: the file.
        modules: those of the user's own, which tables of it may name.
        key: values of keys that exist, by column.
        timeout: seconds for one step.
    """
    tables: dict[str, LookupTable] = {}
    broken = []
    for statement in script.statements:
        name = f"line {statement.line}"
        try:
            read = read_statement(statement.text)
            if isinstance(read, CreateLookupTable):
                name = read.name
                tables[name.lower()] = _create_table(session, script, statement.text, read)
            elif isinstance(read, Setting) or (isinstance(read, SparkStatement) and "SET" in read.words[:1]):
                session.sql(statement.text, script.params)
        except Exception as error:
            check = HealthCheck("statement", "fail", " ".join(failure(statement, error).split()), _CURE)
            broken.append(DoctorFinding(name, DRIVER, check))
    lookups = list(lookups_of(script.statements, CheckOptions(modules=modules, tables=tables)))
    examined = [_table_to_examine(table, list(chain.from_iterable(lookups))) for table in tables.values()]
    if not examined:
        return DoctorReport(tuple(broken), {})
    report = session.doctor(*examined, key=key, timeout=timeout, joins=max([1, *map(len, lookups)]))
    return DoctorReport((*broken, *report.findings), report.titles)


def _create_table(session: LookupSession, script: Script, text: str, ddl: CreateLookupTable) -> LookupTable:
    try:
        session.sql(text, script.params)
    except LookupHintsError:
        if ddl.columns is not None:
            raise
        # Discovering its columns failed; the doctor reports why.
        return state_of(session.spark).catalog.declared(ddl, lambda key: session.spark.conf.get(key, None))
    return next(table for table in session.tables() if table.name.lower() == ddl.name.lower())


def _table_to_examine(table: LookupTable, lookups: Sequence[LookupSpec]) -> ExaminedTable:
    own = [spec for spec in lookups if spec.table.name.lower() == table.name.lower()]
    keys = tuple(dict.fromkeys(spec.key_columns for spec in own)) if table.schema.names else ()
    return ExaminedTable(table, keys, max((spec.settings.capacity for spec in own), default=100))
