"""The reference says what the code says, and pages can be read in a hurry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lookup_hints
import lookup_hints.spi
import lookup_hints.testing
from docs import (
    generate_dashboard,
    generate_metrics,
    generate_options,
    generate_performance,
    generate_plan_picture,
    generate_sql_support,
)
from docs.package_page import links_of, readme_for_an_index, repository_in
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Place
from lookup_hints.spi.security_policy import SWITCHES, variable_of
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.tables.registry import connector_class


def test_the_option_reference_is_made_from_the_option_tables() -> None:
    for path, made in generate_options.pages().items():
        assert path.read_text(encoding="utf-8") == made, "run: python docs/generate_options.py"


def test_each_option_has_a_title_on_one_page_of_the_reference() -> None:
    pages = generate_options.pages()
    titles = [each for text in pages.values() for each in re.findall(r"^### `(.*)`$", text, re.MULTILINE)]
    assert [each.key for each in LOOKUP_OPTIONS if titles.count(each.key) == 0] == []
    index = pages[ROOT / "docs" / "options.md"]
    for name, place in generate_options.CONNECTORS.items():
        for option in connector_class(place).OPTIONS:
            assert f"[`{option.shown_key}`](connectors/{name}.md#" in index


def test_the_page_on_metrics_is_made_from_the_counts() -> None:
    text = generate_metrics.TARGET.read_text(encoding="utf-8")
    assert text == generate_metrics.page(), "run: python docs/generate_metrics.py"


def test_the_page_on_performance_is_made_from_the_tables_of_the_benchmarks() -> None:
    text = generate_performance.TARGET.read_text(encoding="utf-8")
    assert text == generate_performance.page(), "run: python docs/generate_performance.py"


def test_the_dashboard_is_made_from_its_panels() -> None:
    text = generate_dashboard.TARGET.read_text(encoding="utf-8")
    assert text == generate_dashboard.dashboard(), "run: python docs/generate_dashboard.py"


def test_the_picture_of_a_notebooks_plan_is_what_a_notebook_shows() -> None:
    svg = generate_plan_picture.TARGET.read_text(encoding="utf-8")
    assert svg == generate_plan_picture.picture(), "run: python docs/generate_plan_picture.py"


def test_the_page_on_sql_is_made_from_the_cases() -> None:
    for path, made in generate_sql_support.pages().items():
        assert path.read_text(encoding="utf-8") == made, "run: python docs/generate_sql_support.py"


ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NO_PROSE = re.compile(r"```.*?```|^[ \t]*\|[^\n]*|^#[^\n]*", re.DOTALL | re.MULTILINE)


def test_no_sentence_has_more_than_thirty_words() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {each}"
        for page in PAGES
        for each in sentences(page)
        if len(each.split()) > 30
    ]
    assert long == []


def sentences(page: Path) -> list[str]:
    text = NO_PROSE.sub("\n\n", page.read_text(encoding="utf-8"))
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text)
    ends = r"(?:(?<=[.!?:;])|(?<=[.!?:;]\*\*))\s+"
    return [each for part in parts for each in re.split(ends, " ".join(part.split()))]


def test_sources_fit_the_width_of_a_page() -> None:
    # The page on the command line shows the error of a long line.
    pages = [page for page in PAGES if page.name != "command-line.md" and not page.name[:4].isdigit()]
    blocks = [
        (page.name, block)
        for page in pages
        for block in re.findall(
            r"^```(?:sql|python)\n(.*?)^```$",
            page.read_text(encoding="utf-8"),
            re.DOTALL | re.MULTILINE,
        )
    ]
    assert len(blocks) > 100
    assert [(page, line) for page, block in blocks for line in block.splitlines() if len(line) > 80] == []


def test_the_figure_of_the_front_page_is_the_measured_one() -> None:
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (figure,) = re.findall(r"\*\*[\d.]+ times\*\*", front)
    assert figure in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("repository", ["", "https://git.example.com/lookups"])
def test_the_readme_of_a_package_index_has_no_link_that_only_works_in_the_repository(repository: str) -> None:
    shown = readme_for_an_index((ROOT / "README.md").read_text(encoding="utf-8"), repository)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert [link for link in links if not link.startswith("https://")] == []
    assert (len(links) > 30) == bool(repository)


def test_one_setting_gives_the_links_of_package_and_site() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert links_of(repository_in(project)) == {} or repository_in(project).startswith("https://")
    filled = re.sub(r'^repository = ".*"$', 'repository = "https://git.example.com/a/"', project, flags=re.M)
    assert links_of(repository_in(filled))["Issues"] == "https://git.example.com/a/issues"


def test_diagrams_take_the_colours_of_the_page() -> None:
    for name in ("key-travels", "late-row", "ordered", "crossover"):
        svg = (ROOT / "docs" / f"{name}.svg").read_text(encoding="utf-8")
        outside = re.sub("<style>.*</style>", "", svg, flags=re.DOTALL)
        assert "--md-typeset-color" in svg
        assert "prefers-color-scheme: dark" in svg
        assert not re.search('fill[:=] ?"?(white|#fff|black|#000)', outside)


def test_one_page_names_all_variables_settings_and_loggers() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    named = {name for cell in re.findall(r"`([^`]+)`", page) for name in cell.split()}
    modules = [*(ROOT / "lookup_hints").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]
    code = "\n".join(each.read_text(encoding="utf-8") for each in modules)
    variables = set(re.findall(r'environ(?:ment)?(?:\.\w+\(|\[)\s*"([A-Za-z_]+)"', code))
    assert {"PGHOST", "SPARK_HOME", "NETRC", "OTEL_SDK_DISABLED", "PYSPARK_PYTHON"} <= variables
    assert variables - named == set()
    assert {*map(variable_of, SWITCHES)} <= named
    loggers = set(re.findall(r'logging\.getLogger\("([\w.]+)"\)', code))
    assert loggers == {each for each in named if re.fullmatch(r"lookup_hints(\.\w+)?", each)}
    of_spark = set(re.findall(r'"(spark\.(?!lookup)[\w.]+\w)"', code))
    assert len(of_spark) > 20
    assert of_spark - named == set()
    options = (*LOOKUP_OPTIONS, *SESSION_OPTIONS, *STREAM_OPTIONS, *RESTART_OPTIONS)
    settings = {each.key_in(Place.SESSION) for each in options if Place.SESSION in each.places}
    assert {each for each in settings if not each.startswith("restart-strategy.")} - named == set()


def test_the_forms_for_issues_can_be_read() -> None:
    yaml = pytest.importorskip("yaml")
    forms = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")]
    for form in (yaml.safe_load(each.read_text(encoding="utf-8")) for each in forms):
        assert {"name", "description", "body"} <= form.keys()
        asked = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(asked) == len(set(asked)) > 1


def test_the_workflow_of_a_release_is_pinned_and_has_no_password() -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert "secrets." not in text
    assert workflow["permissions"] == {}, "a job gets what it names"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert [
        step["uses"] for step in steps if not re.search(r"@v\d+\.\d+\.\d+$", step.get("uses", "@v0.0.0"))
    ] == []
    rights = {name: {*job["permissions"]} for name, job in workflow["jobs"].items()}
    assert rights == {"build": {"contents"}, "attest": {"attestations", "id-token"}, "publish": {"id-token"}}
    built = re.findall(r"^release:.*?\n\n", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M | re.S)[0]
    assert set(re.findall(r"dist/(lookup-hints[\w.-]+)", text)) == set(
        re.findall(r"dist/(lookup-hints[\w.-]+)", built)
    )


IDIOMS = r"\bfor good\b|\bof yours\b|\bas it comes\b|\bit is so\b|\bstands? on\b|(?<=[.:!?])\s+What (?!is |are |to )"
NOT_READ_BY_USERS = (
    "docs/decisions",
    "docs/architecture.md",
    "benchmarks",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)


def test_pages_for_users_are_written_in_plain_words() -> None:
    pages = [page for page in PAGES if not str(page.relative_to(ROOT)).startswith(NOT_READ_BY_USERS)]
    found = [
        f"{page.relative_to(ROOT)}: {match[0]}"
        for page in pages
        for match in re.finditer(IDIOMS, NO_PROSE.sub(" ", page.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_copied_commands_have_no_prompt() -> None:
    assert [page.name for page in PAGES if re.search(r"^ *\$ ", page.read_text(encoding="utf-8"), re.M)] == []


def test_the_pages_on_the_api_list_what_can_be_imported() -> None:
    listed: dict[str, list[str]] = {}
    for page in (ROOT / "docs" / "api.md", *(ROOT / "docs" / "api").glob("*.md")):
        module, _, names = page.read_text(encoding="utf-8").partition("\n::: ")[2].partition("\n")
        listed.setdefault(module, []).extend(re.findall(r"^ +- (\w+)", names, re.MULTILINE))
    assert "`AsyncLookup` and `SyncLookup` come from" in (ROOT / "docs" / "api.md").read_text(
        encoding="utf-8"
    )
    listed["lookup_hints"] += ["AsyncLookup", "SyncLookup"]
    for package in (lookup_hints, lookup_hints.spi, lookup_hints.testing):
        assert sorted(listed.pop(package.__name__)) == sorted(package.__all__)
    assert listed == {}
    # Griffe shows examples as code under this title alone.
    modules = [*(ROOT / "lookup_hints").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]
    assert [
        each for each in modules if re.search(r"^ *Example:$", each.read_text(encoding="utf-8"), re.M)
    ] == []


def test_the_supported_versions_are_those_of_the_matrix() -> None:
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (4\.\d|3\.5) \| (3\.[\d., ]+) \|", page, re.MULTILINE)
    listed = (ROOT / ".ci" / "cells").read_text(encoding="utf-8")
    cells = re.findall(r"(3\.\d+)-(\d\.\d)", re.findall(r"^CELLS=\((.*)\)", listed, re.MULTILINE)[0])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"Python :: (3\.\d+)", project)) == {python for python, _ in cells}
    assert {(python, spark) for spark, pythons in rows for python in pythons.split(", ")} == set(cells)


def test_the_oldest_sqlglot_is_tested_with_the_oldest_spark_and_the_newest_with_the_others() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ((oldest, above),) = re.findall(r'"sqlglot>=(\d+\.\d+),<(\d+)"', project)
    matrix = (ROOT / ".ci" / "matrix").read_text(encoding="utf-8")
    (cells,) = re.findall(
        r"^CELLS=\((.*)\)", (ROOT / ".ci" / "cells").read_text(encoding="utf-8"), re.MULTILINE
    )
    spark = re.findall(r"-(\d\.\d)", cells)[-1]
    # What no cell names is the newest that pyproject.toml allows.
    assert re.findall(r"^ *(\S+)\) .*sqlglot(\S+)", matrix, re.MULTILINE) == [(spark, f'=={oldest}.*"')]
    assert {"tests/unit/hints", "tests/unit/plan"} <= set(matrix.split())
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert f"sqlglot may be {oldest} or newer, below {above}." in page
    assert f"with PySpark {spark}, the newest" in page


def test_the_extra_http_brings_the_client_that_keeps_connections() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = dict(re.findall(r"^(http|http-fast) = (\[.*\])", project, re.MULTILINE))
    assert '"httptools' in extras["http"]
    assert extras["http-fast"] == '["lookup-hints[http]"]', "whoever asks for it gets the same"


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*)\]", project, re.MULTILINE)
    asked = re.findall(r"- (\w.*)", recipe.partition("  run:\n")[2].partition("\n\n")[0])
    python = re.findall(r'^requires-python = "(.*)"', project, re.MULTILINE)
    assert [each.replace(" ", "") for each in asked] == [
        "python" + python[0],
        *re.findall(r'"(.*?)"', listed),
    ]
    assert f'version: "{lookup_hints.__version__}"' in recipe


def test_every_decision_is_in_the_index_with_its_title_and_status() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = {}
    for page in folder.glob("0*.md"):
        title, _, status, *_ = page.read_text(encoding="utf-8").splitlines()
        plain = re.sub(r"\[(\d+)\]\([^)]*\)", r"\1", status)
        pages[page.name] = f"{title[2:].rstrip('.')}. {plain}"
    assert dict(re.findall(r"^- \[\d+\]\((0[^)]*)\): (.+)", index, re.MULTILINE)) == pages
    known = re.compile(r".*\. Status: (in force|superseded( in part)? by \d{4})\.")
    assert [page for page, said in pages.items() if not known.fullmatch(said)] == []


def test_the_glossary_is_short() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| (?!word|-)([^|]+) \|", page, re.MULTILINE)
    assert 0 < len(words) <= 40
    assert words == sorted(set(words))


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []
