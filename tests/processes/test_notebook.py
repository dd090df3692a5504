"""The example notebook in a real Jupyter kernel on real flights, and its pictures in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import nbformat
import pytest
from nbclient import NotebookClient

from sql_examples.prepare_data import main as prepare_data
from tests.spark.elsewhere import ROOT
from tests.spark.versions import SPARK

pytestmark = pytest.mark.timeout(500)
NOTEBOOK = ROOT / "sql_examples" / "notebook.ipynb"

Cell = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


class Watching(NotebookClient):
    """Keeps what is shown only for a while."""

    bars: ClassVar[list[tuple[int, str]]] = []

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Note the bars among all messages."""
        text = msg["content"].get("data", {}).get("text/plain", "")
        if re.fullmatch(r"(\d+/\d+ tasks(, \d+ running)?|planning), \d+ s", text):
            self.bars.append((cell_index, msg["msg_type"]))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def executed(folder: Path) -> Any:
    """The notebook with its outputs."""
    assert prepare_data(["--dir", str(folder / "data")]) == 0
    read: Any = nbformat.read  # it has no types, as HTMLExporter below
    notebook = read(NOTEBOOK, as_version=4)
    beside = folder / "sql_examples"
    beside.mkdir()
    client = Watching(notebook, timeout=240, startup_timeout=120, resources={"metadata": {"path": beside}})
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell",
    }
    client.execute(env=environment)
    return notebook


def cell_with(notebook: Any, text: str) -> Cell:
    """The one cell whose source holds ``text``."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and text in cell.source]
    found: Cell = cell
    return found


def shown(cell: Cell, mime: str = "text/plain") -> str:
    """What the only output of a cell is."""
    (output,) = cell["outputs"]
    return str(output["data"][mime])


def test_the_notebook_holds_no_outputs() -> None:
    assert not [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell.get("outputs")]


def test_the_first_cell_starts_spark_and_says_so(executed: Any) -> None:
    started, done = cell_with(executed, "SET spark.sql.session.timeZone")["outputs"]
    assert re.fullmatch(
        r"Spark started in \d+\.\d s\. It logs to \S+-spark\.log", started["data"]["text/plain"]
    )
    assert done["data"]["text/plain"].startswith("done in ")


def test_rows_counts_and_the_plan_come_in_the_place_of_the_bar(executed: Any) -> None:
    cell = cell_with(executed, "--param seats=100")
    text = shown(cell)
    assert re.search(r"ExpressJet Airlines Inc\. +NULL +4171 +24\.2\n", text)
    assert re.search(r"United Air Lines Inc\. +BOEING +3142 +7\.7\n", text)
    assert "the first 10 rows, " in text
    assert re.search(r"^al: \d+ keys asked for, ", text, re.MULTILINE), text
    assert re.search(r"^p: [\d,]+ keys asked for, ", text, re.MULTILINE), text
    assert re.search(r"\d/\d+ tasks", text) is None, "the bar is gone"
    assert "<svg" in shown(cell, "text/html")


def test_a_bar_is_shown_while_a_query_runs(executed: Any) -> None:
    number = executed.cells.index(cell_with(executed, "--param seats=100"))
    kinds = [kind for index, kind in Watching.bars if index == number]
    assert kinds[0] == "display_data"
    assert set(kinds[1:]) <= {"update_display_data"}


def test_tables_are_listed(executed: Any) -> None:
    text = shown(cell_with(executed, "%lookup_tables"))
    assert "airlines  sqlite     carrier  carrier STRING, name STRING" in text


def test_a_connector_of_a_cell_works(executed: Any) -> None:
    assert shown(cell_with(executed, "hours (hour INT")).split()[:12] == [
        *("part", "flights", "arrives_late"),
        *("day", "254678", "7.9", "early", "50726", "-4.3", "late", "31372", "17.0"),
    ]


def test_a_frame_goes_on_in_python(executed: Any) -> None:
    assert "BOEING   6048" in shown(cell_with(executed, "enriched.filter"))


def test_plain_spark_sql_understands_lookups(executed: Any) -> None:
    assert shown(cell_with(executed, "enable(spark)")).split() == [
        "flights",
        "known",
        "0",
        "336776",
        "284170",
    ]


@pytest.mark.parametrize(
    ("source", "first", "place"),
    [
        (
            "capasity",
            r"line 1, column 34: No LOOKUP option is called 'capasity'\. Did you mean 'capacity'\?",
            f"{' ' * 33}{'^' * 10}",
        ),
        (
            "p.modell",
            r"\[UNRESOLVED_COLUMN.WITH_SUGGESTION\] A column,? .* with name `p`.`modell` cannot be resolved",
            f"{' ' * 17}{'^' * 8}",
        ),
    ],
)
def test_errors_are_short(executed: Any, source: str, first: str, place: str) -> None:
    *bars, output = cell_with(executed, source)["outputs"]
    assert output["output_type"] == "error"
    assert [bar["data"]["text/plain"] for bar in bars] in ([], [""]), "a bar, if it takes long, is taken away"
    lines = re.sub(r"\x1b\[\d+m", "", "\n".join(output["traceback"])).splitlines()
    assert re.match(first, lines[0]), lines[0]
    if SPARK >= (4, 0) or source == "capasity":  # older ones give no place of what they cannot resolve
        assert lines[-1] == place
    assert len(lines) <= 4


def test_no_output_holds_java(executed: Any) -> None:
    told = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert "\\tat org.apache" not in json.dumps(told)
    assert "[Stage" not in json.dumps(told)


# --- in a browser ----------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """
<script>
window.addEventListener("load", () => {
  const found = [...document.querySelectorAll("svg[role=img]")].map(svg => {
    for (let up = svg; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    const boxes = [...svg.querySelectorAll("rect")].map(box => box.getBBox());
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBBox()]);
    const outside = texts.filter(([_, at]) => boxes.some(box =>
      at.x >= box.x && at.x < box.x + box.width && at.y > box.y && at.y < box.y + box.height &&
      (at.x + at.width > box.x + box.width || at.y + at.height > box.y + box.height)));
    const over = texts.filter(([_, one], i) => texts.some(([_, other], j) => i < j &&
      one.x < other.x + other.width && other.x < one.x + one.width &&
      one.y + 2 < other.y + other.height - 2 && other.y + 2 < one.y + one.height - 2));
    const far = texts.filter(([_, at]) => at.x + at.width > svg.viewBox.baseVal.width);
    return {boxes: boxes.length, texts: texts.length, wide: svg.getBoundingClientRect().width,
            outside: outside.map(each => each[0]), over: over.map(each => each[0]), far: far.map(each => each[0])};
  });
  const told = document.createElement("pre");
  told.id = "measured";
  told.textContent = JSON.stringify(found);
  document.body.appendChild(told);
});
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
def test_pictures_have_their_texts_inside_their_boxes(executed: Any, folder: Path) -> None:
    from nbconvert import HTMLExporter

    exporter: Any = HTMLExporter
    html, _ = exporter().from_notebook_node(executed)
    # What the page of nbconvert itself loads (require.js, MathJax) is not a part of our outputs.
    html = re.sub(r'<script src="https?:[^>]*></script>', "", html)
    page = folder / "notebook.html"
    page.write_text(html.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    assert BROWSER is not None
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        "--window-size=1200,4200",
    ]
    done = subprocess.run(
        [BROWSER, *options, f"--user-data-dir={folder / 'browser'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    measured = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout)
    assert measured is not None, done.stderr[-2000:]
    pictures = json.loads(measured[1])
    assert [picture["boxes"] for picture in pictures] == [4, 2, 4, 2], "a badge and a box for each lookup"
    for picture in pictures:
        assert picture["wide"] > 600
        assert (picture["outside"], picture["over"], picture["far"]) == ([], [], [])
