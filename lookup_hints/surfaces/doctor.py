"""``lookup-hints doctor``: whether the lookup tables of a file can be asked, before a query runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lookup_hints.errors import LookupHintsError
from lookup_hints.execution.doctor import DRIVER, DoctorFinding, DoctorReport, ExaminedTable
from lookup_hints.execution.state import state_of
from lookup_hints.runtime.spec import LookupSpec
from lookup_hints.spi import HealthCheck
from lookup_hints.spi.model import LookupTable
from lookup_hints.statements.statement import Setting, SparkStatement, read_statement
from lookup_hints.surfaces.check import CheckOptions, lookups_of
from lookup_hints.surfaces.job import Script
from lookup_hints.surfaces.statement_run import failure
from lookup_hints.tables.ddl import CreateLookupTable

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession

_CURE = "Correct the statement: lookup-hints check shows the place."


@dataclass
class _TablesOfFile:
    """The lookup tables that a file declares, and statements of it that failed."""

    tables: dict[str, LookupTable] = field(default_factory=dict)
    broken: list[DoctorFinding] = field(default_factory=list)


def examine_file(
    session: LookupSession, script: Script, given: CheckOptions, key: dict[str, str], timeout: float
) -> DoctorReport:
    """Look at the lookup tables that ``script`` declares; of its statements, only these and SET are run.

    Args:
        session: where they are declared.
        script: the file.
        given: what it is read with, to find by what its queries ask.
        key: values of keys that exist, by column.
        timeout: seconds for one step.
    """
    found = _declared(session, script)
    lookups = list(lookups_of(script.statements, given))
    tables = [
        _examined(table, [spec for each in lookups for spec in each]) for table in found.tables.values()
    ]
    joins = max([1, *map(len, lookups)])
    report = session.examine(tables, key=key, timeout=timeout, joins=joins)
    return DoctorReport((*found.broken, *report.findings), report.titles)


def _declared(session: LookupSession, script: Script) -> _TablesOfFile:
    found = _TablesOfFile()
    for statement in script.statements:
        name = f"line {statement.line}"
        try:
            read = read_statement(statement.text)
            if isinstance(read, CreateLookupTable):
                name = read.name
                found.tables[name.lower()] = _created(session, script, statement.text, read)
            elif isinstance(read, Setting) or (
                isinstance(read, SparkStatement) and read.words[:1] == ("SET",)
            ):
                session.sql(statement.text, script.params)
        except Exception as error:
            check = HealthCheck("statement", "fail", " ".join(failure(statement, error).split()), _CURE)
            found.broken.append(DoctorFinding(name, DRIVER, check))
    return found


def _created(session: LookupSession, script: Script, text: str, ddl: CreateLookupTable) -> LookupTable:
    try:
        session.sql(text, script.params)
    except LookupHintsError:
        if ddl.columns is not None:
            raise
        # Its source was asked for the columns: what is wrong there, the doctor says.
        return state_of(session.spark).catalog.declared(ddl, lambda key: session.spark.conf.get(key, None))
    return next(table for table in session.tables() if table.name.lower() == ddl.name.lower())


def _examined(table: LookupTable, lookups: Sequence[LookupSpec]) -> ExaminedTable:
    own = [spec for spec in lookups if spec.table.name.lower() == table.name.lower()]
    keys = tuple(dict.fromkeys(spec.key_columns for spec in own)) if table.schema.names else ()
    return ExaminedTable(table, keys, max((spec.settings.capacity for spec in own), default=100))
