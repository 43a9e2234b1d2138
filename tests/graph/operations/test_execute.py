"""One operation is one transaction for one viewer; errors have a code and reveal nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm.exc import StaleDataError

from graph.context import Context
from graph.operations.execution import Graph, InvalidOperation, prepare
from graph.rules.permissions.policy import Action, can
from storage import tables
from storage.tables import UserState
from tests.make import DataFactory
from tests.support.api_clients import Ask

VIEWER = "query { viewer { username } }"
CREATE = """mutation ($path: String!, $title: String!, $labels: [String!]) {
    createIssue(input: {projectPath: $path, title: $title, labels: $labels}) { issue { iid } userErrors { field message code } } }"""


class TestViewer:
    async def test_is_the_owner_of_the_token(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.data(VIEWER, await make.user("ada")) == {"viewer": {"username": "ada"}}

    @pytest.mark.parametrize("credential", [None, "", "wrong", "token-ad", "TOKEN-ADA", "token-ada "])
    async def test_is_null_without_a_valid_token(self, graph: Graph, make: DataFactory, credential: str | None) -> None:
        await make.user("ada")

        outcome = await graph.run_document(VIEWER, None, None, credential, request_id="r")

        assert outcome.data is None
        assert [problem.code for problem in outcome.errors] == ["UNAUTHENTICATED"]

    async def test_is_null_for_a_blocked_user(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user(state=UserState.BLOCKED)

        assert await ask.codes(VIEWER, user) == ["UNAUTHENTICATED"]
        assert await ask.codes("query { __schema { queryType { name } } }", user) == ["UNAUTHENTICATED"]


class TestTransaction:
    async def test_a_rejected_mutation_is_rolled_back(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert await ask.codes(CREATE, owner, path=str(project.id), title="t", labels=["good", "b&d"]) == ["INVALID"]

        assert [await make.count(table) for table in (tables.Issue, tables.Label)] == [0, 0]

    async def test_a_rejected_issue_leaves_no_gap_in_numbers(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await ask.codes(CREATE, owner, path=str(project.id), title="t", labels=["b&d"])

        data = await ask.data(CREATE, owner, path=str(project.id), title="t")

        assert data["createIssue"] == {"issue": {"iid": 1}, "userErrors": []}

    async def test_commits_before_the_payload_is_resolved(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project(owner=(owner := await make.user()))

        async def may_once_committed(context: Context, action: Action, subject: object = None) -> bool:
            if action is not Action.UPDATE_ISSUE:
                return await can(context, action, subject)
            # Would wait in vain on SQLite, if the change still held the writers' turn.
            await make.user()
            raise RuntimeError("the secret text of a fault")

        monkeypatch.setattr("graph.types.issues.issues.can", may_once_committed)
        outcome = await ask(CREATE.replace("{ iid }", "{ viewerCan { update } }"), owner, path=str(project.id), title="t", labels=None)

        assert [problem.code for problem in outcome.errors] == ["INTERNAL"]
        assert "secret" not in str(outcome)
        assert await make.count(tables.Issue) == 1

    async def test_a_row_that_somebody_else_removed_meanwhile_is_not_found(
        self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)

        def commit_after_deletion(*_: object) -> None:
            raise StaleDataError("UPDATE statement on table 'issues' expected to update 1 row(s); 0 were matched.")

        monkeypatch.setattr("storage.database.write_session.WriteSession.commit", commit_after_deletion)
        update = 'mutation ($id: ID!) { updateIssue(input: {id: $id, title: "t"}) { issue { iid } userErrors { code } } }'

        assert await ask.codes(update, owner, id=global_id("Issue", issue.id)) == ["NOT_FOUND"]


class TestFaults:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (lambda: OperationalError("select", {}, Exception("database is locked")), "UNAVAILABLE"),
            (lambda: ConnectionRefusedError(), "UNAVAILABLE"),
            (lambda: KeyError("what only we should see"), "INTERNAL"),
        ],
    )
    async def test_are_reported_by_code_only(
        self, graph: Graph, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], code: str
    ) -> None:
        async def fails(*_: Any) -> None:
            raise error()

        monkeypatch.setattr("graph.operations.token_cache.find_token", fails)
        outcome = await graph.run_document(VIEWER, None, None, "x", request_id="r")

        assert [problem.code for problem in outcome.errors] == [code]
        assert "what only we should see" not in str(outcome)

    async def test_text_that_cannot_be_stored_is_rejected(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        for title in ("nul\0", "half \ud800"):
            assert await ask.codes(CREATE, owner, path=str(project.id), title=title) == ["BAD_REQUEST"]
        assert await ask.codes('query { project(path: "a\\u0000/b") { name } }', owner) == ["BAD_REQUEST"]


class TestPrepare:
    def test_includes_only_used_fragments(self) -> None:
        source = "query A { viewer { ...name } } query B { viewer { id } } fragment name on User { name } fragment id on User { id }"

        prepared = prepare(source, "A")

        assert [node.name.value for node in prepared.document.definitions if node.name] == ["A", "name"]

    @pytest.mark.parametrize("source", ["query B { viewer { id } }", "query A { viewer { ...gone } }"])
    def test_rejects_unknown_names(self, source: str) -> None:
        with pytest.raises(InvalidOperation):
            prepare(source, "A")


class TestNodes:
    async def test_are_returned_in_request_order_with_null_for_hidden_ones(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        mine, hidden = await make.issue(await make.project(owner=user)), await make.issue(await make.project())
        ids = [global_id("Issue", hidden.id), global_id("User", user.id), "nonsense", global_id("Issue", mine.id), global_id("Issue", 99)]

        data = await ask.data("query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }", user, ids=ids)

        assert data["nodes"] == [
            None,
            {"__typename": "User", "id": ids[1]},
            None,
            {"__typename": "Issue", "id": ids[3]},
            None,
        ]

    async def test_too_many_ids_are_rejected(self, ask: Ask, make: DataFactory) -> None:
        ids = [global_id("User", number) for number in range(1, 102)]

        assert await ask.codes("query ($ids: [ID!]!) { nodes(ids: $ids) { id } }", await make.user(), ids=ids) == ["LIMIT_EXCEEDED"]


def global_id(name: str, key: int) -> str:
    from graph.fields import entities

    return str(entities.global_id(name, key))
