"""The project's list of rules: a test cites each, and the list equals that of the shared document if it is available."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.rest_v3.support.interface_rules import INTERFACE_STATEMENTS, RULES, cites

TESTS = Path(__file__).parents[2]
SHARED = Path(__file__).parents[4] / "shared" / "spec"
MARK = re.compile(r"^(?:- |\d+\. |\| )")
"""What the document sets before an entry of a list or a row of a table."""


@cache
def citations() -> dict[str, frozenset[str]]:
    """The rule → the tests that cite it, read from the text of the suite, so that it does not matter which tests run."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "@cites(" not in text:
            continue
        for test, rule in _cited(ast.parse(text)):
            found.setdefault(rule, set()).add(f"{path.relative_to(TESTS)}::{test}")
    return {rule: frozenset(tests) for rule, tests in found.items()}


def _cited(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each test or class of tests with each rule that a decorator of it names."""
    for child in ast.walk(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not child.name.startswith(("test", "Test")):
            continue
        for mark in child.decorator_list:
            if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "cites":
                yield from ((child.name, ast.literal_eval(rule)) for rule in mark.args)


def test_rules_are_unique() -> None:
    rules = [rule for statement in INTERFACE_STATEMENTS for rule in statement.rules]
    assert len(rules) == len(set(rules))
    assert all(statement.rules for statement in INTERFACE_STATEMENTS)


def test_every_rule_has_a_test() -> None:
    assert RULES - citations().keys() == set(), "write a test that proves it, or cite the rule where one does"


def test_tests_cite_known_rules_only() -> None:
    assert citations().keys() - RULES == set(), "no such rule in tests/rest_v3/support/interface_rules.py"


@pytest.mark.parametrize("rules", [(), ("Errors: 418 for a teapot",)])
def test_an_unknown_rule_cannot_be_cited(rules: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no rule"):
        cites(*rules)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared document is not beside this checkout")
def test_agrees_with_the_shared_document() -> None:
    """Every row and entry of the sections is a statement here, in the same order and words."""
    text = (SHARED / "api-v3.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)}
    for title in dict.fromkeys(statement.section for statement in INTERFACE_STATEMENTS):
        ours = [statement.text for statement in INTERFACE_STATEMENTS if statement.section == title]
        theirs = list(_statements(sections[title]))
        assert len(ours) == len(theirs), title
        for words, line in zip(ours, theirs, strict=True):
            assert re.fullmatch(".+".join(map(re.escape, words.split("…"))), line), f"{title}: {line}"


def _statements(section: str) -> Iterator[str]:
    """The entries of lists and the rows of tables, without headings of tables."""
    lines = section.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        mark = MARK.match(line)
        if mark and not following.startswith("|---"):
            yield line[mark.end() :].removesuffix(" |")
