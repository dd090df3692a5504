"""Settings of Spark that decide what SQL says: how it is parsed, which types there are, what is equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ON = (
    *("ansi.doubleQuotedIdentifiers", "ansi.enforceReservedKeywords", "ansi.relationPrecedence"),
    *("caseSensitive", "charAsVarchar", "datetime.java8API.enabled", "function.concatBinaryAsString"),
    *("legacy.bangEqualsNot", "legacy.castComplexTypesToString.enabled", "legacy.charVarcharAsString"),
    *("legacy.consecutiveStringLiterals.enabled", "legacy.createEmptyCollectionUsingStringType"),
    *("legacy.duplicateBetweenInput", "legacy.execution.pythonUDF.pandas.conversion.enabled"),
    *("legacy.exponentLiteralAsDecimal.enabled", "legacy.identifierClause", "legacy.inlineCTEInCommands"),
    *("legacy.inSubqueryNullability", "legacy.negativeIndexInArrayInsert", "legacy.noCharPaddingInPredicate"),
    *("legacy.parameterSubstitution.constantsOnly", "legacy.parser.havingWithoutGroupByAsWhere"),
    *("legacy.scalarSubqueryCountBugBehavior", "legacy.setopsPrecedence.enabled"),
    *("legacy.storeAnalyzedPlanForView", "legacy.typeCoercion.datetimeToString.enabled"),
    *("legacy.useCurrentConfigsForView", "optimizer.collapseProjectAlwaysInline"),
    *("parser.escapedStringLiterals", "parser.quotedRegexColumnNames", "preserveCharVarcharTypeInfo"),
    *("python.filterPushdown.enabled", "stableDerivedColumnAlias.enabled", "timeType.enabled"),
)
_OFF = (
    *("ansi.enabled", "constraintPropagation.enabled", "crossJoin.enabled"),
    *("decimalOperations.allowPrecisionLoss", "groupByAliases", "groupByOrdinal", "icu.caseMappings.enabled"),
    *("lateralColumnAlias.enableImplicitResolution", "legacy.literal.pickMinimumPrecision"),
    *("legacy.sizeOfNull", "operatorPipeSyntaxEnabled", "optimizer.avoidCollapseUDFWithExpensiveExpr"),
    *(
        "optimizer.decorrelateInnerQuery.enabled",
        "orderByOrdinal",
        "parser.singleCharacterPipeOperator.enabled",
    ),
    *("readSideCharPadding", "retainGroupColumns", "subexpressionElimination.enabled", "variable.substitute"),
)
SETTINGS: tuple[tuple[str, str], ...] = (
    *((f"spark.sql.{key}", "true") for key in _ON),
    *((f"spark.sql.{key}", "false") for key in _OFF),
    ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ("spark.sql.session.timeZone", "Asia/Kathmandu"),
    ("spark.sql.legacy.ctePrecedencePolicy", "LEGACY"),
    ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
    ("spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
    ("spark.sql.storeAssignmentPolicy", "LEGACY"),
    ("spark.sql.execution.arrow.maxRecordsPerBatch", "1"),
    ("spark.sql.autoBroadcastJoinThreshold", "10MB"),
    ("spark.sql.codegen.factoryMode", "CODEGEN_ONLY"),
    ("spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates"),
)


@contextmanager
def configured(sessions: Sequence[SparkSession], settings: Mapping[str, str]) -> Iterator[None]:
    """Sessions with ``settings``, for as long as it lasts."""
    before = [{key: spark.conf.get(key, None) for key in settings} for spark in sessions]
    try:
        for spark in sessions:
            for key, value in settings.items():
                spark.conf.set(key, value)
        yield
    finally:
        for spark, old in zip(sessions, before, strict=True):
            for key, earlier in old.items():
                if earlier is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, earlier)
