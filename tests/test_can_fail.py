"""Each test can fail: no assertion of the tests is one that holds whatever the product does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

FOUND = {"collect", "glob", "iterdir", "rglob"}
"""What these give may be nothing: then a loop over it asserts nothing."""

NO_ASSERTIONS = {"any_call", "called_once", "called_once_with", "called_with", "has_calls", "not_called"}
"""Names of a mock that look as if they asserted something, and are true."""

ALWAYS_TRUE = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Lambda, ast.GeneratorExp, ast.JoinedStr)


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_literal(node: ast.expr) -> bool:
    return isinstance(node, ALWAYS_TRUE) or (isinstance(node, ast.Constant) and bool(node.value))


def has(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    return any(isinstance(each, kinds) for each in ast.walk(node))


def called(node: ast.expr) -> str:
    return name_of(node.func) if isinstance(node, ast.Call) else ""


def contexts(node: ast.With | ast.AsyncWith) -> list[str]:
    return [called(item.context_expr) for item in node.items]


def in_assertion(test: ast.expr) -> Iterator[str]:
    """What is wrong with an assertion of ``test``."""
    if isinstance(test, ast.IfExp):
        yield "`assert a == b if c else d` asserts `d` alone where `c` is false: put `b if c else d` in parentheses"
    if is_literal(test):
        yield "what is asserted is a literal"
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and any(map(is_literal, test.values)):
        yield "one side of `or` is a literal"
    if isinstance(test, ast.Call) and called(test) == "all" and test.args:
        loops = [each for each in ast.walk(test.args[0]) if isinstance(each, ast.comprehension)]
        yield from (why for loop in loops for why in in_loop(loop.iter))
    for each in ast.walk(test):
        if isinstance(each, ast.Compare):
            yield from in_comparison(each)
        if isinstance(each, ast.Attribute) and each.attr in NO_ASSERTIONS:
            yield f"`{each.attr}` of a mock asserts nothing: `assert_{each.attr}` does"


def in_comparison(compared: ast.Compare) -> Iterator[str]:
    sides = [compared.left, *compared.comparators]
    if any(
        isinstance(each, ast.Name) and ast.dump(each) == ast.dump(other) for each, other in pairwise(sides)
    ):
        yield "something is compared with itself"
    membership = [isinstance(each, ast.In | ast.NotIn | ast.Is | ast.IsNot) for each in compared.ops]
    if len(compared.ops) > 1 and any(membership):
        yield "`a in b == c` means `a in b and b == c`: put parentheses"


def in_loop(over: ast.expr) -> Iterator[str]:
    if called(over) in FOUND:
        yield f"a loop over `{called(over)}()` asserts nothing where nothing is found: assert what is there first"


def in_statement(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assert):
        yield from in_assertion(node.test)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp):
        yield "a comparison whose result nobody sees: `assert` is missing"
    elif isinstance(node, ast.With | ast.AsyncWith):
        yield from in_block(node)
    elif isinstance(node, ast.Try) and any(has(each, ast.Assert) for each in node.body):
        if any(swallows(handler) for handler in node.handlers):
            yield "an `except` swallows what is asserted"
    elif isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
        yield "nobody awaits an async test"


def in_block(block: ast.With | ast.AsyncWith) -> Iterator[str]:
    asserts = any(has(each, ast.Assert) for each in block.body)
    if asserts and {"raises", "warns"} & set(contexts(block)):
        yield "what is asserted inside `raises` may never be reached: assert behind it"
    suppressed = [each.context_expr for each in block.items if called(each.context_expr) == "suppress"]
    if asserts and any(catches_assertions(each) for call in suppressed for each in ast.walk(call)):
        yield "`suppress` swallows what is asserted"


def swallows(handler: ast.ExceptHandler) -> bool:
    caught = handler.type is None or any(map(catches_assertions, ast.walk(handler.type)))
    return caught and not any(has(each, ast.Raise, ast.Assert) for each in handler.body)


def catches_assertions(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("AssertionError", "BaseException", "Exception")


def is_test(node: ast.AST) -> bool:
    """Whether it is a test that runs."""
    if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
        return False
    return not any(called(each) == "skip" for each in node.decorator_list)


def asserting(trees: Sequence[ast.Module]) -> set[str]:
    """The names of functions, of all tests together, that assert or raise something, or call one that does."""
    functions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    names = {"raises", "warns", "fail"}
    names |= {each.name for each in functions if has(each, ast.Assert, ast.Raise)}
    used = {
        each: {name_of(node) for node in ast.walk(each) if isinstance(node, ast.expr)} for each in functions
    }
    while more := {each.name for each in functions if used[each] & names} - names:
        names |= more
    return names


def in_test(test: ast.FunctionDef, names: set[str]) -> Iterator[str]:
    if asserts_nothing(test, names):
        yield "it asserts nothing"
    for each in ast.walk(test):
        if isinstance(each, ast.For) and has(each, ast.Assert):
            yield from in_loop(each.iter)


def asserts_nothing(test: ast.FunctionDef, names: set[str]) -> bool:
    """Whether a test neither asserts anything itself nor uses one of the functions ``names``, which do."""
    used = {name_of(node) for each in test.body for node in ast.walk(each) if isinstance(node, ast.expr)}
    return not used & names and not any(has(each, ast.Assert, ast.Raise) for each in test.body)


def mistakes(trees: Mapping[str, ast.Module]) -> list[str]:
    """Where and why tests of these modules cannot fail."""
    names = asserting(list(trees.values()))
    found = []
    for place, tree in trees.items():
        for node in ast.walk(tree):
            whys = list(in_statement(node))
            if isinstance(node, ast.FunctionDef) and is_test(node):
                whys += in_test(node, names)
            found += [f"{place}:{getattr(node, 'lineno', 0)}: {why}" for why in whys]
    return found


CANNOT_FAIL = {
    "assert run() == [] if skip else [None]": "asserts `d` alone",
    "assert (run() == 1, 'one')": "is a literal",
    "assert 'text'": "is a literal",
    "assert lambda: run() == 1": "is a literal",
    "assert (each for each in run())": "is a literal",
    "assert run() == 1 or 'one'": "one side of `or`",
    "assert run.called_with(1)": "`called_with` of a mock",
    "assert one == one": "compared with itself",
    "assert 'a' in run() == True": "means `a in b and b == c`",
    "run() == 1": "`assert` is missing",
    "for each in folder.rglob('*'):\n        assert each": "a loop over `rglob()`",
    "assert all(each.x for each in frame.collect())": "a loop over `collect()`",
    "with raises(ValueError):\n        run()\n        assert run() == 1": "may never be reached",
    "with suppress(Exception):\n        assert run() == 1": "`suppress` swallows",
    "try:\n        assert run() == 1\n    except Exception:\n        pass": "an `except` swallows",
    "run()": "it asserts nothing",
}


@pytest.mark.parametrize("body", CANNOT_FAIL)
def test_what_cannot_fail_is_found(body: str) -> None:
    found = mistakes({"x": ast.parse(f"def test_x():\n    {body}\n")})
    assert any(CANNOT_FAIL[body] in why for why in found), found


@pytest.mark.parametrize(
    "body",
    [
        "assert run() == ([] if skip else [None])",
        "assert run(), 'one'",
        "assert 0 <= run() < 2",
        "assert run() == run() == 1",
        "found = list(folder.rglob('*'))\n    assert found\n    for each in found:\n        assert each",
        "with raises(ValueError):\n        run()",
        "checked(run())",
    ],
)
def test_what_can_fail_is_left_alone(body: str) -> None:
    text = f"def test_x():\n    {body}\ndef checked(found):\n    assert found"
    assert mistakes({"x": ast.parse(text)}) == []


@pytest.mark.work(12)  # it reads all tests
def test_every_test_of_the_suite_can_fail() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    assert len(paths) > 100
    trees = {str(path.relative_to(TESTS)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    assert mistakes(trees) == []
