"""Who may import whom, so that the file tree stays the first page of the manual."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from inspect import ismodule
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "lookup_hints"
CONNECTORS = ROOT / "connectors" / "lookup_connectors"

BASE = {"version", "pyspark_internals", "errors", "retry", "nearest", "lookup_spec", "sql", "spi"}

MAY_IMPORT: dict[str, set[str]] = {
    "version": set(),
    "pyspark_internals": set(),
    "errors": set(),
    "retry": {"errors"},
    "sql": {"errors"},
    "spi": {"errors", "sql"},
    "nearest": {"errors", "spi"},
    "lookup_spec": {"errors", "retry", "spi"},
    "hints": BASE,
    "tables": {*BASE, "hints"},
    "plan": {*BASE, "hints"},
    "plan.parse": {*BASE, "plan.parse"},
    "plan.write": {*BASE, "plan"},
    "plan.forms": {*BASE, "plan"},
    "limits": BASE,
    "metrics": BASE,
    "engine": {*BASE, "limits", "metrics"},
    "testing": {*BASE, "engine", "limits", "metrics"},
    "process": {*BASE, "engine", "metrics"},
    "cache": {*BASE, "engine", "metrics", "process"},
    "cache.store": set(),
    "worker": {*BASE, "cache", "engine", "limits", "metrics", "process"},
    "estimate": {*BASE, "engine", "metrics"},
    "streaming": {*BASE, "metrics"},
    "statements": {*BASE, "tables", "streaming"},
    "dataframe": {*BASE, "hints"},
    "driver": {
        *(*BASE, "tables", "hints", "plan", "worker", "process", "metrics", "streaming", "statements"),
        *("dataframe", "estimate"),
    },
    "session": {*BASE, "tables", "metrics", "streaming", "statements", "dataframe", "estimate", "driver"},
    "async_function": {*BASE, "tables", "dataframe", "session"},
    "runs": {*BASE, "plan", "metrics", "statements", "streaming", "driver", "session"},
    "cli": {
        *(*BASE, "tables", "hints", "plan", "metrics", "streaming", "statements", "driver"),
        *("session", "runs"),
    },
    "notebook": {*BASE, "plan", "metrics", "statements", "driver", "session", "runs"},
}
"""What each room imports beside itself, from the ground up: a room names only those above it here."""

INSIDE_PLAN = {
    "plan": set[str](),
    "plan.parse": set[str](),
    "plan.write": {"plan.write"},
    "plan.forms": {"plan.write", "plan.forms"},
    "plan.planner": {"plan.write", "plan.forms"},
}
"""Which of its folders the parts of ``plan`` import, beside ``plan.parse`` and the values of ``plan`` itself.

What is decided of every join knows no form of join, nor do the means of writing. A form has both.
"""

FOR_CONNECTORS = {"spi", "errors", "sql"}

PUBLIC = {
    "lookup_hints": {"LookupSession", "enable", "disable", "register_connector", "async_wait", "FixedDelay"},
    "lookup_hints.errors": {"LookupHintsError", "ConnectorError", "OptionError", "QueryError"},
    "lookup_hints.spi": {"Connector", "SyncLookup", "AsyncLookup", "AsyncRowLookup", "LookupTable", "Option"},
    "lookup_hints.testing": {"ConnectorContract", "SourceContract", "FakeConnector", "looked_up"},
    "lookup_connectors.memory": {"MemoryConnector"},
    "lookup_connectors.sqlite": {"SqliteConnector"},
    "lookup_connectors.http": {"HttpConnector"},
    "lookup_connectors.postgres": {"PostgresConnector"},
    "lookup_connectors.mysql": {"MysqlConnector"},
    "lookup_connectors.redis": {"RedisConnector"},
    "lookup_connectors.adbc": {"AdbcConnector"},
}
"""The import paths that users rely on, and some of what they find there."""

WRITES_DIALECTS = {"adbc.lookup_sql"}
"""Modules of connectors that write SQL of many databases, and so may import sqlglot."""

OWNERS = {
    "sqlglot": {"hints", "plan"},
    "pyspark": {"pyspark_internals", "driver", "process", "worker", "streaming", "runs", "cli", "notebook"},
    "pandas": {"worker.pandas_worker"},
    "IPython": {"notebook.magics"},
    "prompt_toolkit": {"cli.shell_prompt"},
    "pygments": {"cli.shell_prompt"},
    "prometheus_client": {"metrics"},
    "opentelemetry": {"metrics"},
    "openlineage": {"driver.lineage"},
    "dbt": {"runs.dbt_lookup_hints"},
    "dbt_common": {"runs.dbt_lookup_hints"},
}
"""The only rooms or modules of the library that import these packages."""

TAKE_TYPES = {"pyspark": {"async_function", "dataframe", "session"}}
"""Those that import their types, too, and nothing at run time."""

PRIVATE = {
    "cli.commands": {"_actions"},
    "adbc.drivers": {"_driver_path"},
    "mysql.connections": {"_stream_broken"},
}
"""What modules beside ``pyspark_internals`` touch of others that is private, for want of another way."""


def modules(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*.py") if path != LIBRARY / "__init__.py")


def name_of(path: Path, package: Path) -> str:
    """The module's name inside its package: ``plan.planner``, ``ddl``."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


# Trees are not kept: the collector would look at them in all tests that come.
def tree_of(path: Path) -> ast.Module:
    gc.disable()  # it would look at all nodes of all modules again and again
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


@cache
def imports(path: Path, for_types: bool = True) -> frozenset[str]:
    """The modules that ``path`` imports, inside functions and by import_module too."""
    return frozenset(_imports(path, for_types))


def _imports(path: Path, for_types: bool) -> Iterator[str]:
    nodes = [*nodes_of(tree_of(path), for_types)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    loggers = {arg for call in calls if called_name(call).endswith("getLogger") for arg in call.args}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if is_module(node.module, alias.name)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in loggers:
            # An argument of import_module, or of a table whose entries are imported late.
            package, _, name = node.value.partition(":")[0].rpartition(".")
            if package and (re.fullmatch(r"lookup_hints(\.\w+)*", package) and is_module(package, name)):
                yield f"{package}.{name}"
        elif isinstance(node, ast.Call) and called_name(node).endswith("import_module"):
            # What a variable names is a module of the user's, or one of a table in that file.
            yield from (str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant))


def nodes_of(tree: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    """``tree`` and all that is in it, with or without what is for type checking only."""
    left = [tree]
    while left:
        node = left.pop()
        if for_types or not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            left += ast.iter_child_nodes(node)


# Not by ast.unparse, which takes longer than all the rest of these tests.
def called_name(call: ast.Call) -> str:
    """The last name of what is called: ``getLogger`` of ``logging.getLogger``."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def is_module(package: str, name: str) -> bool:
    folder = ROOT.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()


def library_imports(path: Path) -> set[str]:
    """The modules of the library that ``path`` imports, named below ``lookup_hints``."""
    return {name.removeprefix("lookup_hints.") for name in imports(path) if name.startswith("lookup_hints.")}


def is_within(module: str, room: str) -> bool:
    """Whether ``module`` is ``room``, or lies in it."""
    return f"{module}.".startswith(f"{room}.")


def room_of(module: str) -> str:
    """The smallest room that ``module`` lies in."""
    return max((room for room in MAY_IMPORT if is_within(module, room)), key=len, default="")


@pytest.mark.work(4)  # it reads all modules for the others, too
def test_a_module_imports_only_what_its_room_may() -> None:
    wrong = []
    for path in modules(LIBRARY):
        room = room_of(name_of(path, LIBRARY))
        assert room, f"{path.name} is in no room: say above what it may import"
        allowed = MAY_IMPORT[room] | {room}
        above = {each for each in library_imports(path) if not any(is_within(each, one) for one in allowed)}
        wrong += [f"{name_of(path, LIBRARY)} imports {each}" for each in sorted(above)]
    assert wrong == []


def test_deciding_and_writing_meet_in_the_forms_of_join_and_the_planner() -> None:
    wrong = []
    for path in modules(LIBRARY / "plan"):
        name = name_of(path, LIBRARY)
        part = max((part for part in INSIDE_PLAN if is_within(name, part)), key=len)
        # Nobody may import the planner, which calls all others.
        closed = {"plan.write", "plan.forms", "plan.planner"} - INSIDE_PLAN[part]
        imported = {each for each in library_imports(path) if each not in ("plan.write", "plan.forms")}
        wrong += [
            f"{name} imports {each}"
            for each in sorted(imported)
            if any(is_within(each, folder) for folder in closed)
        ]
    assert wrong == []


FACTS = (
    *("facts_of_lookup_tables", "table_use", "scopes", "keys_in_where", "key_conditions", "key_casts"),
    *("session_interface", "spark_analysis", "system_time", "views_and_derived_tables"),
    *("column_pruning", "cost"),
)


@pytest.mark.parametrize("module", FACTS)
def test_what_is_known_depends_on_nothing_that_is_decided(module: str) -> None:
    reached, waiting = set[str](), [f"plan.{module}"]
    while waiting:
        path = LIBRARY / f"{waiting.pop().replace('.', '/')}.py"
        found = (
            {name for name in library_imports(path) if is_within(name, "plan")} if path.exists() else set()
        )
        waiting += found - reached
        reached |= found
    assert [name for name in sorted(reached) if is_within(name, "plan.decide")] == []


def test_rooms_are_named_from_the_ground_up() -> None:
    names = list(MAY_IMPORT)
    for number, room in enumerate(names):
        assert {room_of(one) for one in MAY_IMPORT[room]} <= {*names[: number + 1]}, room


def test_the_page_on_architecture_has_each_room_with_what_it_imports() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:driver|worker|both|tests) \|.*\|(.*)\|$", page, re.MULTILINE)
    shown = {room: set(re.findall(r"`([\w.]+)`", cell)) for room, cell in rows}
    above = [room for room in MAY_IMPORT if "." not in room and room not in BASE]
    assert list(shown) == above[::-1]
    assert shown == {room: MAY_IMPORT[room] - BASE for room in above}


MADE = {"dist/", "site/"}
"""Folders that ``make`` makes."""


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_a_page_on_the_tree_names_files_and_classes_that_are_there(page: str) -> None:
    names = set(re.findall(r"`([^`\n]+)`", (ROOT / page).read_text(encoding="utf-8"))) - MADE
    files = {name for name in names if re.fullmatch(r"[\w/]+(/|\.py)", name)}
    classes = {name for name in names if re.fullmatch(r"([A-Z][a-z]+){2,}", name)}
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules(LIBRARY))
    gone = [name for name in files if not any((each / name).exists() for each in (ROOT, LIBRARY))]
    gone += [name for name in classes - {"SparkSession"} if f"class {name}" not in code]
    assert gone == []


def test_every_package_says_in_one_sentence_what_lives_there() -> None:
    for package in sorted(LIBRARY.rglob("__init__.py")):
        said = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8")))
        assert said, package
        assert said.split("\n\n")[0].rstrip().endswith("."), package


def test_the_top_level_holds_a_dozen_files_at_most() -> None:
    assert len(list(LIBRARY.glob("*.py"))) <= 12


@pytest.mark.parametrize(("module", "names"), PUBLIC.items(), ids=PUBLIC)
def test_public_names_stay_where_users_import_them(module: str, names: set[str]) -> None:
    found = importlib.import_module(module)
    assert names <= set(dir(found))
    assert all(getattr(found, name) is not None for name in names)
    # Importing a module of that name would put it in the place of what is meant.
    assert not any(ismodule(getattr(found, name)) for name in names)


def test_a_connector_sees_only_the_door_that_is_made_for_it() -> None:
    wrong = []
    for path in modules(CONNECTORS):
        name = name_of(path, CONNECTORS)
        rooms = {each.split(".")[0] for each in library_imports(path)}
        packages = {each.split(".")[0] for each in imports(path)}
        closed = {"pyspark"} if name in WRITES_DIALECTS else {"pyspark", "sqlglot"}
        wrong += [f"{name} imports {each}" for each in sorted((rooms - FOR_CONNECTORS) | (packages & closed))]
    assert wrong == []


def test_a_connector_imports_nothing_from_the_folder_of_another() -> None:
    """Whose driver may not be installed: ``adbc`` reads PostgreSQL without asyncpg."""
    folders = {path.parent.name for path in CONNECTORS.glob("*/__init__.py")}
    assert folders == {"adbc", "http", "mysql", "postgres", "redis", "shared", "sqlite"}
    wrong = [
        f"{name_of(path, CONNECTORS)} imports {each}"
        for path in modules(CONNECTORS)
        for each in sorted(imports(path))
        if each.startswith("lookup_connectors.")
        and each.split(".")[1] in folders - {"shared", name_of(path, CONNECTORS).split(".")[0]}
    ]
    assert wrong == []


@pytest.mark.work(3)  # it looks at each import of each module
def test_packages_are_imported_by_their_owners_alone() -> None:
    """The registry knows connectors by name: none is imported."""
    wrong = []
    for path in modules(LIBRARY):
        name = name_of(path, LIBRARY)
        packages = {imported.split(".")[0] for imported in imports(path)}
        used = {imported.split(".")[0] for imported in imports(path, for_types=False)}
        strange = {
            package
            for package in packages & OWNERS.keys()
            for owners in [OWNERS[package] | (set() if package in used else TAKE_TYPES.get(package, set()))]
            if not any(is_within(name, owner) for owner in owners)
        }
        wrong += [f"{name} imports {each}" for each in sorted(strange | (packages & {"lookup_connectors"}))]
    assert wrong == []


@pytest.mark.work(6)  # it parses each module, of connectors too
def test_what_is_private_elsewhere_is_touched_in_one_module_alone() -> None:
    ours = {"_replace", "_asdict", "_fields"}  # of named tuples, whose names are public
    touched_by = dict[str, set[str]]()
    for package in (LIBRARY, CONNECTORS):
        for path in modules(package):
            tree = tree_of(path)
            ours |= set(members(tree))
            touched_by[name_of(path, package)] = set(touches(tree))
    strange = {name: touched - ours for name, touched in touched_by.items()}
    assert strange.pop("pyspark_internals")
    assert {name: touched for name, touched in strange.items() if touched} == PRIVATE


def members(tree: ast.AST) -> Iterator[str]:
    """The names that classes in ``tree`` define, or set in themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_own(node.value):
            yield node.attr
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield each.name
            elif isinstance(each, ast.AnnAssign | ast.Assign):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                yield from map(ast.unparse, targets)


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


BY_TEXT = {"getattr", "hasattr", "setattr"}


def touches(tree: ast.AST) -> Iterator[str]:
    """The private attributes of others that ``tree`` reads or writes, by name or as text."""
    for node in ast.walk(tree):
        name: object = None
        if isinstance(node, ast.Attribute):
            is_super = isinstance(node.value, ast.Call) and called_name(node.value) == "super"
            name = None if is_super or is_own(node.value) else node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_TEXT:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if isinstance(name, str) and re.match(r"_[a-z]", name):
            yield name


def test_unit_tests_take_nothing_from_the_servers() -> None:
    taken = [path for path in (ROOT / "tests" / "unit").rglob("*.py") if "tests.servers" in path.read_text()]
    assert not taken, "they are of tests/servers"


def test_nothing_but_settings_and_interrupts_reaches_into_the_jvm() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in [*modules(LIBRARY), *modules(CONNECTORS)]
        for found in re.finditer(r"(?<!self)\._j[a-z]\w*", path.read_text(encoding="utf-8"))
    ]
    # Planning one lookup would wait longer for settings, key by key, than for Spark's analysis.
    assert wrong == [f"lookup_hints/pyspark_internals.py: {each}" for each in ("._jconf", "._jsc")]


def test_a_name_that_the_oldest_sqlglot_lacks_stands_in_types_alone() -> None:
    """Types are not read when a program runs; ``exp.Expr`` would fail there."""
    for module in modules(LIBRARY):
        text = module.read_text(encoding="utf-8")
        tree = ast.parse(text if "exp.Expr" in text else "")
        types = [getattr(node, part, None) for node in ast.walk(tree) for part in ("annotation", "returns")]
        unread = {node for each in types if each for node in ast.walk(each)}
        read = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "Expr")
        lines = [node.lineno for node in read if node not in unread]
        assert not lines, f"{module.relative_to(ROOT)} uses exp.Expr in lines {lines}"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("lookup_hints", {"pyarrow", "sqlglot", "pyspark", "pandas"}),
        ("lookup_hints.spi", {"sqlglot", "pyspark", "pandas"}),
        ("lookup_hints.worker.arrow_worker", {"sqlglot", "pyspark", "pandas"}),
    ],
)
def test_importing_one_module_does_not_bring_what_a_worker_may_lack(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert absent.isdisjoint(run.stdout.split())


def test_each_name_of_a_class_means_one_thing() -> None:
    defined: dict[str, list[str]] = {}
    for package in (LIBRARY, CONNECTORS):
        for path in modules(package):
            for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                defined.setdefault(name, []).append(name_of(path, package))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def statements_in(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements in ``tree``, without their expressions: most nodes are those, and they define no names."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(tree, part, ()):
            yield each
            yield from statements_in(each)


def names_of_types(tree: ast.Module) -> Iterator[str]:
    """The classes in ``tree``, and the aliases of its types, without the underscore of private ones."""
    for node in statements_in(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
    for node in tree.body:
        name = ""
        if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            name = ast.unparse(node.target)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            name = ast.unparse(node.targets[0])
        if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name):
            yield name.lstrip("_")


@pytest.mark.work(4)  # it reads all modules
def test_no_two_classes_or_aliases_have_one_name() -> None:
    """Nor do they differ in an underscore alone: a reader who looks for one finds the other."""
    paths = [*modules(LIBRARY), *modules(CONNECTORS)]
    found = Counter(name for path in paths for name in names_of_types(tree_of(path)))
    assert [name for name, times in found.items() if times > 1] == []


SLACK = 20
"""So many fewer may be found before the number in the file must be lowered."""


@pytest.mark.work(4)  # it reads all modules
def test_one_word_names_of_private_functions_become_no_more() -> None:
    """A private function says what it does to what: ``_split_conjuncts``, not ``_split``."""
    file = Path(__file__).parent / "one_word_names.txt"
    most = int(file.read_text(encoding="utf-8").split()[0])
    functions = [
        node.name
        for path in (*modules(LIBRARY), *modules(CONNECTORS))
        for node in statements_in(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = [name for name in functions if re.fullmatch(r"_[a-z0-9]+", name)]
    assert len(found) <= most, f"{len(found)} names of one word, {most} before: name what it does to what"
    assert len(found) >= most - SLACK, f"they have become fewer: write {len(found)} into {file.name}"
