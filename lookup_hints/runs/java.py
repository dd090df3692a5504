"""Why no JVM of Spark's starts, in one line with the cure."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lookup_hints.errors import LookupHintsError

_INSTALL = "apt install openjdk-17-jre-headless (Debian, Ubuntu) or brew install openjdk@17 (macOS)"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_NO_MEMORY = re.compile(r"(?i)reserve enough space|maximum heap size|insufficient memory|cannot allocate")
_PROBE_SECONDS = 20.0


class NoJava(LookupHintsError):
    """Spark needs a JVM, and none starts."""


def check_java(environment: Mapping[str, str], oldest: int) -> str:
    """The Java that Spark will run, as its own script chooses it.

    Raises:
        NoJava: there is none.
    """
    home = environment.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java", path=environment.get("PATH"))
    if java is not None:
        return java
    if home:
        raise NoJava(
            f"JAVA_HOME is {home}, where there is no bin/java. Set it to the folder of Java {oldest} or"
            f" newer, or try: {_INSTALL}"
        )
    raise NoJava(f"Spark needs Java {oldest} or newer, and there is none. Try: {_INSTALL}")


def failed_jvm(java: str, oldest: int, memory: str, said: str) -> NoJava | None:
    """Why a JVM did not start, found by running ``java -version``; None for other reasons.

    Args:
        java: the program.
        oldest: the oldest version that Spark supports.
        memory: the requested memory, as in ``spark.driver.memory``.
        said: its output before it ended.
    """
    try:
        probe = subprocess.run(  # noqa: S603 (what Spark has run)
            [java, f"-Xmx{memory}", "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
        said, answer = f"{said}\n{probe.stderr}\n{probe.stdout}", probe.stderr
    except (OSError, subprocess.SubprocessError) as error:
        return NoJava(f"{java} does not run: {error}. Try: {_INSTALL}")
    version = _VERSION.search(answer)
    if version is not None and int(version[1]) < oldest:
        return NoJava(
            f"Spark needs Java {oldest} or newer, and {java} is Java {version[1]}. Try: {_INSTALL};"
            " then set JAVA_HOME to its folder."
        )
    if _NO_MEMORY.search(said):
        return NoJava(
            f"There is no memory for the JVM of Spark, which asks for {memory}. Free some, or ask for less:"
            " --conf spark.driver.memory=512m"
        )
    return None
