"""Check that a worker has the packages of a function, with a clear error if one is missing.

A worker without this package cannot even unpickle a function that refers to it. So Spark ships a small
function that is pickled by value and refers to nothing of ours. It checks the worker, and then unpickles
the real function, which it carries as bytes.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_type_hints

import pyarrow as pa

from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.pyspark_internals import cloudpickled
from lookup_hints.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Callable[[Iterator[Any]], Iterator[Any]]
"""A function over the batches of one task."""

_ANOTHER_PYTHON = (
    "name one that has it in PYSPARK_PYTHON before Spark starts (on Spark Connect, before the server starts);"
    " the driver's is {driver}."
)
_HOW = (
    " Install it for that Python on every worker, or ship it: --py-files with spark-submit,"
    " spark.sparkContext.addPyFile(...), on Spark Connect spark.addArtifacts(..., pyfile=True). Or"
    f" {_ANOTHER_PYTHON}"
)
# Compiled packages cannot be shipped this way.
_HOW_COMPILED = f" Install it for that Python on every worker, or {_ANOTHER_PYTHON}"


class _Carried:
    """Bytes that are unpickled by a call of ``opened``: it runs before Spark imports what it needs itself."""

    def __init__(self, opened: Callable[[bytes], bytes], carried: bytes) -> None:
        self._opened, self._carried = opened, carried

    def __reduce__(self) -> tuple[Any, ...]:
        return self._opened, (self._carried,)


# By value, as a function that names our module cannot even be unpickled on a worker without it; this one
# checks first and says so. (docs/decisions/0042)
def shipped(function: Batches, packages: tuple[str, ...] = ("pyarrow",), install_tip: str = "") -> Batches:
    """``function`` in a form that every worker can unpickle, and that reports missing packages.

    Called on the driver. It keeps the annotations of ``function``: call ``strip_annotations`` before Spark
    pickles it, as they refer to modules.
    """
    ours, driver = __version__, sys.executable
    how, how_compiled = _HOW.format(driver=driver), _HOW_COMPILED.format(driver=driver)
    made_with = f"lookup_hints {ours}, Python {platform.python_version()}, pyarrow {pa.__version__}"

    # The functions below are pickled by value: they import inside, or carry, everything they use.

    def here() -> str:
        import socket
        import sys

        version = ".".join(map(str, sys.version_info[:3]))
        return f"The Spark worker on {socket.gethostname()} (Python {version}, {sys.executable})"

    def hide_traceback() -> None:
        """Let Spark report the next failure without its stack trace, which is in the worker's log.

        A worker ends with its failure, so this setting affects nothing else.
        """
        import sys

        sys.tracebacklimit = 0

    def opened(carried: bytes) -> bytes:
        from importlib.util import find_spec

        for name in packages:
            if find_spec(name) is None:
                hide_traceback()
                raise RuntimeError(
                    f"{here()} does not have {name}, which Spark needs for lookups.{how_compiled}"
                )
        return carried

    carried: Any = _Carried(opened, cloudpickled(function))

    def function_here() -> Batches:
        import pickle

        try:
            import lookup_hints as there
        except ModuleNotFoundError:
            raise RuntimeError(
                f"{here()} does not have lookup_hints {ours}, which runs lookups there.{how} A wheel must be"
                " renamed to .zip for that."
            ) from None
        if there.__version__ != ours:
            raise RuntimeError(
                f"{here()} has lookup_hints {there.__version__} ({there.__file__}), and the driver has"
                f" {ours}: they must be the same."
            )
        try:
            return pickle.loads(carried)  # type: ignore[no-any-return]  # noqa: S301 (made by the driver)
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"{here()} does not have the module {error.name!r}, which the lookup needs: a"
                f" driver{install_tip} or the place where a connector, a function or a predicate is"
                f" defined.{how}"
            ) from error
        except Exception as error:
            import pyarrow

            raise RuntimeError(
                f"{here()} cannot read the lookup, which was made with {made_with} by the driver; here is"
                f" pyarrow {pyarrow.__version__}. {type(error).__name__}: {error}"
            ) from error

    def lookup(batches: Iterator[Any]) -> Iterator[Any]:
        import traceback

        try:
            function = function_here()
        except RuntimeError as error:
            traceback.print_exception(error)
            hide_traceback()
            raise error from None
        from lookup_hints.errors import LookupHintsError

        try:
            yield from function(batches)
        except LookupHintsError as error:
            hide_traceback()
            raise error from None

    hints = list(get_type_hints(function).values())
    if hints:
        lookup.__annotations__ = {"batches": hints[0], "return": hints[-1]}
    return lookup


def strip_annotations(function: Batches) -> None:
    """Take the annotations off, once Spark has read them."""
    function.__annotations__ = {}


def run_the_drivers_python(spark: SparkSession) -> None:
    """Let the workers of a local Spark run the driver's Python, if PYSPARK_PYTHON names none.

    PySpark takes ``python3`` from the path: another one, where the driver's environment is not activated.
    It reads the name from the context for each function that it makes, so this works at any time.
    """
    if is_connect(spark) or os.environ.get("PYSPARK_PYTHON"):
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local") and sys.executable:
        context.pythonExec = sys.executable
