"""Write what the benchmarks measured into ``benchmarks/README.md``, and draw the crossover.

``python -m benchmarks.page``, after the benchmarks; ``make bench`` does both. The text of the README is kept;
what stands between its two marks is made anew, and ``docs/performance.md`` from its tables.
"""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS, ROOT, Figure
from benchmarks.plot import plot
from docs import generate_performance

PLOT = ROOT / "docs" / "crossover.svg"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ORDER = (
    *("postgres", "mysql", "http", "http_httpx", "wide", "late_rows", "runners", "scale", "cache"),
    *("read", "crossover", "asof", "ranges", "nearest", "latency", "overhead", "planning"),
    *("citizen_refusing", "citizen_rate", "citizen_dead", "citizen_killed"),
)
VERSIONS = ("pyspark", "pyarrow", "asyncpg", "asyncmy", "httptools", "httpx", "aiohttp")


def main() -> None:
    """Write both pages and the plot."""
    themes = [json.loads(path.read_text(encoding="utf-8")) for path in map(_result, ORDER) if path.exists()]
    page = generate_performance.TABLES
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    measured, _, after = rest.partition(END)
    tables = _tables(measured) | {theme["name"]: _table(theme) for theme in themes}
    made = "\n\n".join([_machine(), *(tables[name] for name in ORDER if name in tables)])
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", encoding="utf-8")
    generate_performance.TARGET.write_text(generate_performance.page(), encoding="utf-8")
    for one in themes:
        if one["name"] == "crossover":
            _draw(one["series"])


def _tables(measured: str) -> dict[str, str]:
    """The table of each theme on the page: one that was not measured this time stays."""
    found = [part.partition(" -->") for part in measured.split("<!-- table: ")[1:]]
    return {name: f"{_mark(name)}{text.rstrip()}" for name, _, text in found}


def _mark(name: str) -> str:
    return f"<!-- table: {name} -->"


def _result(name: str) -> Path:
    return RESULTS / f"{name}.json"


def _machine() -> str:
    kernel = f"{platform.system()} on {platform.machine()}, {_cores()}"
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    return f"{kernel}; Python {platform.python_version()}, {versions}, {_java()}."


def _cores() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} cores ({models[0]})" if models else platform.processor()


def _java() -> str:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return told.splitlines()[0].replace('"', "") if told else "Java"


def _table(theme: dict[str, Any]) -> str:
    rows = [_mark(theme["name"]), f"### {theme['title']}", ""]
    rows += [f"{theme['day']}, medians of {theme['runs']}, load of the machine {theme['load']}.", ""]
    rows += ["| what | measured | limit | |", "|---|---:|---:|---|"]
    rows += [_row(Figure(**figure)) for figure in theme["figures"]]
    return "\n".join(rows)


def _row(figure: Figure) -> str:
    verdict = {True: "met", False: "missed", None: ""}[figure.is_met]
    note = f" ({figure.note})" if figure.note else ""
    return f"| {figure.what}{note} | {figure.shown} | {figure.limit} | {verdict} |"


def _draw(series: dict[str, dict[str, float]]) -> None:
    title = "Seconds by the number of orders, for each way"
    PLOT.write_text(plot(series, title, "orders; 1 M customers", "seconds"), encoding="utf-8")


if __name__ == "__main__":
    main()
