"""Scalars of the schema: which values they accept, and where the errors of others are."""

from typing import Any

import pytest

from tests.make import DataFactory
from tests.support.api_clients import Ask


class TestTimestamps:
    @pytest.mark.parametrize(
        "value",
        [
            "2016-03-24T12:00:00Z",
            "2016-03-24t12:00:00z",
            "2016-03-24T14:00:00.000000+02:00",
            "2016-03-24t12:00:00.000-00:00",
            "2016-03-25T02:00:00+14:00",
        ],
    )
    async def test_of_rfc_3339_are_accepted(self, ask: Ask, make: DataFactory, value: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        text = """mutation ($path: String!, $at: DateTime) {
            createSnippet(input: {projectPath: $path, title: "a", fileName: "a.rb", content: "1", expiresAt: $at}) {
              snippet { expiresAt } userErrors { message } } }"""
        literal = text.replace("$at)", "").replace("$path: String!, $at: DateTime", "$path: String!").replace("$at", f'"{value}"')

        for query, variables in ((text, {"at": value}), (literal, {})):
            payload = (await ask.data(query, owner, path=str(project.id), **variables))["createSnippet"]
            assert payload == {"snippet": {"expiresAt": "2016-03-24T12:00:00.000000Z"}, "userErrors": []}


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "literal"),
        [
            ('createBuild(input: {projectPath: "1", sha: "x", name: "y", startedAt: "today"}) { build { id } }', '"today"'),
            ('createMilestone(input: {projectPath: "1", title: "x", dueDate: "2016-02-30"}) { milestone { id } }', '"2016-02-30"'),
            ('appendBuildTrace(input: {databaseId: 1, text: "x", offset: "5"}) { build { id } }', '"5"'),
        ],
    )
    async def test_of_literals_have_their_location(self, ask: Ask, make: DataFactory, call: str, literal: str) -> None:
        result: Any = await ask(f"mutation {{\n{call} }}", await make.user())
        assert [(error.code, error.locations) for error in result.errors] == [
            ("BAD_REQUEST", [{"line": 2, "column": call.index(literal) + 1}])
        ]
