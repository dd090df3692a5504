"""How sharp the tests are: plant single small changes in the product, and count those that no test finds.

    python -m benchmarks.mutants choose --seed 33 --count 100 > mutants.json
    python -m benchmarks.mutants map --tree . > map.json
    python -m benchmarks.mutants run --tree . --mutants mutants.json --map map.json --results results.json

``map`` runs the tests once under coverage: ``run`` knows by it which files of tests reach a line, and how
long they take. A mutant is told by its file, the text of its line, and the change: the same can be planted
into the tree of another commit, with that commit's tests. ``run`` works in a copy of the tree, writes each
result at once, and goes on where it was stopped. With a larger ``--budget`` it tries again what has survived.

What runs in Spark's worker processes alone, coverage does not see: the tests of ``WORKERS`` are tried last.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PRODUCT = [
    *(f"lookup_hints/{name}" for name in ("plan", "engine", "cache", "limits", "spi")),
    "connectors/lookup_connectors",
]
WORKERS = ["tests/unit/worker", "tests/queries/test_transport.py", "tests/spark/test_outcomes.py"]
SLOW = ["tests/queries", "tests/processes"]

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


@dataclass(frozen=True)
class Mutant:
    """One change of one line: what stands from ``column`` on becomes ``new``."""

    file: str
    line: str
    nth: int
    """Which of the lines of the file that have this text, from 0."""
    column: int
    old: str
    new: str
    kind: str

    def number_of_line(self, lines: list[str]) -> int | None:
        """Where the line stands now, from 0."""
        found = [number for number, line in enumerate(lines) if line == self.line]
        return found[self.nth] if self.nth < len(found) else None

    def planted(self) -> str:
        end = self.column + len(self.old)
        return self.line[: self.column] + self.new + self.line[end:]

    def key(self) -> str:
        return "|".join([self.file, str(self.nth), self.line, str(self.column), self.new])


# --- which there are ----------------------------------------------------------------------------------


def choose(tree: Path, seed: int, count: int) -> list[Mutant]:
    """As many mutants, of all kinds in turn, so that no kind that is found easily hides the others."""
    files = sorted(path for folder in PRODUCT for path in (tree / folder).rglob("*.py"))
    of_kind: dict[str, list[Mutant]] = {}
    for path in files:
        for mutant in mutants_of(path.read_text(encoding="utf-8"), path.relative_to(tree).as_posix()):
            of_kind.setdefault(mutant.kind, []).append(mutant)
    chance = random.Random(seed)
    shuffled = [chance.sample(of_kind[kind], len(of_kind[kind])) for kind in sorted(of_kind)]
    in_turn = (each for turn in itertools.zip_longest(*shuffled) for each in turn if each is not None)
    return list(itertools.islice(in_turn, count))


def mutants_of(text: str, file: str) -> Iterator[Mutant]:
    """All mutants of a file whose change stands on one line."""
    lines = text.splitlines()
    tree = ast.parse(text)
    left_alone = set(map(id, what_says_nothing(tree)))
    for node in ast.walk(tree):
        if id(node) in left_alone:
            continue
        for at, old_end, new, kind in changes(node):
            row, column = at
            line = lines[row - 1]
            if old_end[0] != row or not line.isascii():
                continue
            old = line[column : old_end[1]]
            nth = lines[: row - 1].count(line)
            yield Mutant(file, line, nth, column, old, new, kind)


def what_says_nothing(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, imports for types, decorators, texts, and ``strict`` of ``zip``: no behaviour of note."""
    for node in ast.walk(tree):
        ignored: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            ignored = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ignored = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            ignored = [node.value]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            ignored = [node]
        elif isinstance(node, ast.JoinedStr | ast.ClassDef):
            ignored = [node] if isinstance(node, ast.JoinedStr) else [*node.decorator_list]
        for each in ignored:
            if each is not None:
                yield from ast.walk(each)


Change = tuple[tuple[int, int], tuple[int, int], str, str]


def changes(node: ast.AST) -> Iterator[Change]:
    """From where, to where, to what, and of which kind."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARISONS:
            _, new = COMPARISONS[type(op)]
            yield change(node, f"{ast.unparse(left)} {new} {ast.unparse(right)}", "comparison")
        case ast.BoolOp(op=op, values=values):
            joined = " or " if isinstance(op, ast.And) else " and "
            yield change(node, "(" + joined.join(f"({ast.unparse(each)})" for each in values) + ")", "and/or")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield change(node, f"({ast.unparse(operand)})", "dropped not")
        case ast.Constant(value=bool(value)):
            yield change(node, str(not value), "boolean")
        case ast.Constant(value=int(value)):
            yield change(node, str(value + 1), "number")
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right):
            sign = "-" if isinstance(op, ast.Add) else "+"
            if not any(isinstance(each, ast.Constant | ast.JoinedStr | ast.List) for each in (left, right)):
                yield change(node, f"({ast.unparse(left)} {sign} ({ast.unparse(right)}))", "plus/minus")
        case ast.Return(value=ast.expr() as value) if not is_constant(value, None):
            yield change(value, "None", "returns None")
        case ast.If(test=test) if not isinstance(test, ast.UnaryOp | ast.Compare):
            yield change(test, f"not ({ast.unparse(test)})", "condition")
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield change(node, "pass", "dropped statement")
        case _:
            return


def change(node: ast.expr | ast.stmt, new: str, kind: str) -> Change:
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return (node.lineno, node.col_offset), end, new, kind


def is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


# --- which tests reach them ---------------------------------------------------------------------------


def map_of(tree: Path) -> dict[str, Any]:
    """``seconds`` of each file of tests, and ``reached``: for each file and line, those that run it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(tree, Path(folder))
        settings = copy / ".coveragerc"
        settings.write_text(
            "[run]\ndynamic_context = test_function\ndata_file = .lines\nrelative_files = True\n"
            "source =\n    lookup_hints\n    connectors/lookup_connectors\n"
        )
        ignored = [f"--ignore={each}" for each in SLOW]
        command = [
            "-m",
            "coverage",
            "run",
            f"--rcfile={settings}",
            "-m",
            "pytest",
            "-q",
            "--junitxml=times.xml",
        ]
        subprocess.run(
            [sys.executable, *command, *ignored], cwd=copy, env=environment(copy), stdout=sys.stderr
        )
        seconds: dict[str, float] = {}
        for case in ElementTree.parse(copy / "times.xml").iter("testcase"):
            file = file_of(copy, case.attrib["classname"])
            seconds[file] = seconds.get(file, 0.0) + float(case.attrib["time"])
        reached: dict[str, dict[str, list[str]]] = {}
        for path, context, bits in sqlite3.connect(copy / ".lines").execute(
            "SELECT path, context, numbits FROM line_bits"
            " JOIN file ON file.id = file_id JOIN context ON context.id = context_id WHERE context <> ''"
        ):
            test = file_of(copy, context)
            for line in (i * 8 + bit for i, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1):
                known = reached.setdefault(path, {}).setdefault(str(line), [])
                if test not in known:
                    known.append(test)
        return {"seconds": seconds, "reached": reached}


def file_of(tree: Path, dotted: str) -> str:
    """The file of ``tests.unit.plan.test_golden.test_this``."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        path = "/".join(parts[:count]) + ".py"
        if (tree / path).exists():
            return path
    return dotted


# --- whether they are found ---------------------------------------------------------------------------


def run(tree: Path, mutants: list[Mutant], reached: dict[str, Any], results: Path, budget: float) -> None:
    """Plant each mutant, run the tests that reach it until one fails, and tell; quick files come first."""
    done = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(tree, Path(folder))
        for number, mutant in enumerate(mutants):
            before = done.get(mutant.key())
            if before and (before["outcome"] != "survived" or before["budget"] >= budget):
                continue
            done[mutant.key()] = told = outcome_of(copy, mutant, reached, budget, number)
            results.write_text(json.dumps(done, indent=1), encoding="utf-8")
            about = f"{number:4} {told['outcome']:9} {told['seconds']:6.1f} s"
            print(f"{about}  {mutant.file}: {mutant.planted().strip()}", flush=True)
    found = sum(each["outcome"] == "found" for each in done.values())
    gone = sum(each["outcome"] == "gone" for each in done.values())
    print(f"{found} found, {len(done) - found - gone} survived, {gone} no longer there")


def outcome_of(
    copy: Path, mutant: Mutant, reached: dict[str, Any], budget: float, number: int
) -> dict[str, Any]:
    path = copy / mutant.file
    whole = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = whole.splitlines()
    row = mutant.number_of_line(lines)
    told = {**asdict(mutant), "budget": budget, "seconds": 0.0}
    if row is None:
        return {**told, "outcome": "gone"}
    files = tests_for(copy, mutant, row + 1, reached, budget)
    lines[row] = mutant.planted()
    began = time.monotonic()
    try:
        write(path, "\n".join(lines) + "\n", number)
        failed = failing(copy, files, 3 * budget + 120)
    finally:
        write(path, whole, number)
    seconds = round(time.monotonic() - began, 1)
    outcome = "found" if failed else "survived"
    return {**told, "outcome": outcome, "by": failed, "files": len(files), "seconds": seconds}


def write(path: Path, text: str, number: int) -> None:
    """Python tells compiled files apart by size and second: no two versions share both."""
    path.write_text(text, encoding="utf-8")
    stamp = time.time() + 2 * number
    os.utime(path, (stamp, stamp))


def tests_for(copy: Path, mutant: Mutant, line: int, reached: dict[str, Any], budget: float) -> list[str]:
    """The files of tests that run the line, quickest first, as many as ``budget`` seconds hold."""
    seconds: dict[str, float] = reached["seconds"]
    lines: dict[str, list[str]] = reached["reached"].get(mutant.file, {})
    # What runs when a module is imported belongs to no test: all that run something of the file may find it.
    running = lines.get(str(line)) or sorted({one for each in lines.values() for one in each})
    folder = Path(mutant.file).parts[1] if mutant.file.startswith("lookup_hints") else "connectors"
    near = sorted(running, key=lambda one: (f"/{folder}/" not in one, seconds.get(one, 0.0)))
    workers = [one for one in sorted(seconds, key=lambda one: seconds[one]) if one.startswith(tuple(WORKERS))]
    files: list[str] = []
    for one in dict.fromkeys([*near, *workers]):
        budget -= seconds.get(one, 0.0)
        if budget < 0:
            break
        if (copy / one).exists():
            files.append(one)
    return files


def failing(copy: Path, files: list[str], limit: float) -> str:
    """The first test that fails, or what else says that something is wrong; nothing if all pass."""
    if not files:
        return ""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--timeout=120",
        "-p",
        "no:cacheprovider",
        "-rfE",
        *files,
    ]
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return "no end"
    if running.returncode in (0, 5):
        return ""
    named = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return named[0][:200] if named else f"pytest ended with {running.returncode}"


def copied(tree: Path, folder: Path) -> Path:
    hidden = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".hypothesis", ".*_cache", "data", "build", "site"
    )
    return Path(shutil.copytree(tree, folder / "tree", ignore=hidden, symlinks=True))


def environment(copy: Path) -> dict[str, str]:
    """That of the tests of ``copy``; CI's profile, so that a result tells of the mutant and not of luck."""
    paths = [str(copy), str(copy / "connectors"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "CI": "true",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONDONTWRITEBYTECODE": "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["choose", "map", "run"])
    parser.add_argument("--tree", type=Path, default=Path())
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--mutants", type=Path)
    parser.add_argument("--map", type=Path)
    parser.add_argument("--results", type=Path, default=Path("mutants-results.json"))
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of tests for each mutant")
    given = parser.parse_args()
    tree = given.tree.resolve()
    if given.command == "choose":
        print(json.dumps([asdict(each) for each in choose(tree, given.seed, given.count)], indent=1))
    elif given.command == "map":
        print(json.dumps(map_of(tree)))
    else:
        mutants = [Mutant(**each) for each in json.loads(given.mutants.read_text(encoding="utf-8"))]
        reached = json.loads(given.map.read_text(encoding="utf-8"))
        run(tree, mutants, reached, given.results, given.budget)


if __name__ == "__main__":
    main()
