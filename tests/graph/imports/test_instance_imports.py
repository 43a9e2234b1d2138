"""The states of an import, its identities and its marks."""

from graph.operations.callers import LocalAdmin
from graph.operations.execution import prepare
from tests.graph.imports.support import BEGIN, FINISH, SOURCE, begin, user_item
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

IDENTITIES = """query ($id: Int!, $kind: ImportKind!, $after: String!, $first: Int!) {
    importIdentities(importId: $id, kind: $kind, afterSourceId: $after, first: $first) { sourceId databaseId }
}"""
MARKS = "query ($id: Int!, $after: String!) { importMarks(importId: $id, afterName: $after) { name value } }"
SET_MARKS = """mutation ($input: SetImportMarksInput!) {
    setImportMarks(input: $input) { userErrors { field message code } }
}"""


class TestImports:
    async def test_are_continued_by_their_source_and_refused_when_they_do_not_run(self, ask: Ask, make: DataFactory) -> None:
        admin, other = await make.admin(), await make.admin()
        running = await begin(ask, admin, "https://token:secret@OLD.example/?a=b")
        again = await ask.data(BEGIN, other, input={"source": SOURCE, "keepIds": False})
        kept = await ask.data(BEGIN, admin, input={"source": SOURCE, "keepIds": True})
        refused = await ask.data(BEGIN, admin, input={"source": "https://new.example", "keepIds": True})
        bad = [await ask.codes(BEGIN, admin, input={"source": url}) for url in ("", "ftp://x", "https://", "javascript:alert(1)")]
        listed = await ask.data("{ instanceImports { source state user { username } identityCounts { count } } }", admin)

        assert again["beginImport"]["instanceImport"] == {
            "databaseId": running.id, "source": SOURCE, "keepIds": False, "state": "RUNNING", "finishedAt": None,
            "user": {"username": other.username}, "identityCounts": [],
        }  # fmt: skip
        assert [each["field"] for each in kept["beginImport"]["userErrors"]] == ["keepIds"]
        assert refused["beginImport"]["userErrors"][0]["message"] == (
            "requires an instance without users and projects; this one has other users"
        )
        assert bad == [["INVALID"]] * 4
        assert listed["instanceImports"] == [
            {"source": SOURCE, "state": "RUNNING", "user": {"username": other.username}, "identityCounts": []}
        ]

        assert (await ask.data(FINISH, admin, input={"importId": running.id}))["finishImport"]["instanceImport"]["state"] == "FINISHED"
        assert await ask.codes(FINISH, admin, input={"importId": running.id}) == ["NOT_ALLOWED"]
        assert await ask.codes(FINISH, admin, input={"importId": running.id + 1}) == ["INVALID"]
        payload = await running.payload("importUsers", [user_item(1)])
        assert [(each["field"], each["code"]) for each in payload["userErrors"]] == [("importId", "NOT_ALLOWED")]
        assert await ask.codes(SET_MARKS, admin, input={"importId": running.id, "items": [{"name": "a", "value": "b"}]}) == ["NOT_ALLOWED"]
        assert (await begin(ask, admin)).id == running.id

    async def test_of_an_operator_without_an_account_can_be_begun(self, ask: Ask) -> None:
        operation = prepare(BEGIN.replace("mutation", "mutation Begin", 1), "Begin")
        result = await ask.graph.run_as_admin(LocalAdmin(), operation, {"input": {"source": SOURCE, "keepIds": True}})
        assert result.errors == [] and result.data is not None
        assert result.data["beginImport"]["instanceImport"]["user"] is None

    async def test_have_identities_and_marks_that_are_read_page_by_page(self, ask: Ask, make: DataFactory) -> None:
        admin, outsider = await make.admin(), await make.user()
        running = await begin(ask, admin)
        ids = await running.ids("importUsers", *(user_item(number) for number in (9, 10, 2)))
        values = {"id": running.id, "kind": "USER"}
        first = await ask.data(IDENTITIES, admin, **values, after="", first=2)
        rest = await ask.data(IDENTITIES, admin, **values, after="2", first=2)
        counts = await ask.data("{ instanceImports { identityCounts { kind count } } }", admin)

        assert first["importIdentities"] == [{"sourceId": "10", "databaseId": ids[1]}, {"sourceId": "2", "databaseId": ids[2]}]
        assert rest["importIdentities"] == [{"sourceId": "9", "databaseId": ids[0]}]
        assert counts["instanceImports"][0]["identityCounts"] == [{"kind": "NAMESPACE", "count": 3}, {"kind": "USER", "count": 3}]
        assert await ask.codes(IDENTITIES, admin, **values, after="", first=1001) == ["LIMIT_EXCEEDED"]
        assert await ask.codes(IDENTITIES, outsider, **values, after="", first=1) == ["FORBIDDEN"]
        assert await ask.codes("{ instanceImports { source } }", outsider) == ["FORBIDDEN"]

        for value in ("1", "2"):
            items = [{"name": "project/12/issues", "value": value}, {"name": "users", "value": value}]
            assert (await ask(SET_MARKS, admin, input={"importId": running.id, "items": items})).errors == []
        marks = await ask.data(MARKS, admin, id=running.id, after="")
        assert marks["importMarks"] == [{"name": "project/12/issues", "value": "2"}, {"name": "users", "value": "2"}]
        assert (await ask.data(MARKS, admin, id=running.id, after="project/12/issues"))["importMarks"] == marks["importMarks"][1:]
        assert await ask.codes(MARKS, outsider, id=running.id, after="") == ["FORBIDDEN"]
        long = [{"name": "n" * 201, "value": ""}]
        assert await ask.codes(SET_MARKS, admin, input={"importId": running.id, "items": long}) == ["INVALID"]

    async def test_are_listed_by_as_many_statements_whatever_their_number(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        admin, query = await make.admin(), "{ instanceImports { user { username } identityCounts { kind count } } }"
        counts = []
        for number in (1, 2, 3):
            running = await begin(ask, admin, f"https://source{number}.example")
            await running.ids("importUsers", user_item(number))
            with statements.record() as seen:
                listed = (await ask.data(query, admin))["instanceImports"]
            assert [len(each["identityCounts"]) for each in listed] == [2] * number
            counts.append(len(seen))
        assert counts[1] == counts[2]

    async def test_accept_1_to_100_items(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        query = "mutation ($input: ImportUsersInput!) { importUsers(input: $input) { userErrors { code } } }"
        for items in ([], [user_item(number) for number in range(101)]):
            assert await ask.codes(query, running.admin, input={"importId": running.id, "items": items}) == ["LIMIT_EXCEEDED"]
