"""The operations of the product are valid: `prepare` does not check it when the service starts."""

from pathlib import Path

import pytest
from graphql import parse, validate

import ci_v1
import rest_v3
from graph.schema import graphql_schema
from rest_v3.operations import BUILTIN_SOURCE

ROOT = Path(__file__).parents[2]
SHARED_FOLDERS = (rest_v3.OPERATIONS_FOLDER, ci_v1.OPERATIONS_FOLDER)
"""Folders whose files share fragments; other files stand alone."""
FILES = [path for package in ("storage", "graph", "rest_v3", "ci_v1", "forgefront") for path in sorted((ROOT / package).rglob("*.graphql"))]
DOCUMENTS = {
    **{folder.relative_to(ROOT): "\n".join(path.read_text() for path in FILES if path.parent == folder) for folder in SHARED_FOLDERS},
    **{path.relative_to(ROOT): path.read_text() for path in FILES if path.parent not in SHARED_FOLDERS},
    "rest_v3/operations.py": BUILTIN_SOURCE,
}


@pytest.mark.parametrize("name", DOCUMENTS, ids=str)
def test_are_valid(name: Path | str) -> None:
    errors = validate(graphql_schema, parse(DOCUMENTS[name]))
    assert [f"{error.message} {error.locations}" for error in errors] == []
