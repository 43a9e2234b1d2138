"""The operations of the product are valid: `prepare` and `read_built_in` do not check it when the service starts."""

from pathlib import Path

import pytest
from graphql import DocumentNode, parse, validate

import ci_v1
import rest_v3
from forgefront import pages
from graph.documents import trusted_documents
from graph.schema import graphql_schema
from rest_v3 import profiles
from rest_v3.operations import BUILTIN_SOURCE

ROOT = Path(__file__).parents[2]
SHARED_FOLDERS = (rest_v3.OPERATIONS_FOLDER, ci_v1.OPERATIONS_FOLDER)
"""Folders whose files share fragments; other files stand alone."""
FILES = [path for package in ("storage", "graph", "rest_v3", "ci_v1", "forgefront") for path in sorted((ROOT / package).rglob("*.graphql"))]
DOCUMENTS = {
    **{folder.relative_to(ROOT): "\n".join(path.read_text() for path in FILES if path.parent == folder) for folder in SHARED_FOLDERS},
    **{path.relative_to(ROOT): path.read_text() for path in FILES if path.parent not in (*SHARED_FOLDERS, profiles.OPERATIONS_FOLDER)},
    "rest_v3/operations.py": BUILTIN_SOURCE,
}


@pytest.mark.parametrize("name", DOCUMENTS, ids=str)
def test_are_valid(name: Path | str) -> None:
    errors = validate(graphql_schema, parse(DOCUMENTS[name]))
    assert [f"{error.message} {error.locations}" for error in errors] == []


@pytest.mark.parametrize("folder", [trusted_documents.DASHBOARDS, pages.OPERATIONS_FOLDER], ids=lambda folder: folder.name)
def test_documents_are_accepted(folder: Path) -> None:
    problems = trusted_documents.read_documents(folder).problems
    # The pages' documents are found by id only.
    assert [problem for problem in problems if "another operation with the name" not in problem] == []


@pytest.mark.parametrize("path", sorted(profiles.OPERATIONS_FOLDER.glob("*.graphql")), ids=lambda path: path.name)
def test_those_of_a_profile_are_valid_in_the_place_of_others(path: Path) -> None:
    documented = parse(DOCUMENTS[rest_v3.OPERATIONS_FOLDER.relative_to(ROOT)]).definitions
    replaced = {each.name.value: each for each in parse(path.read_text()).definitions}
    definitions = {each.name.value: each for each in documented} | replaced
    errors = [error.message for error in validate(graphql_schema, DocumentNode(definitions=tuple(definitions.values())))]
    # A profile need not use all fragments of the routes, but its own ones.
    unused = {f"Fragment '{name}' is never used." for name in definitions.keys() - replaced.keys()}
    assert [message for message in errors if message not in unused] == []
