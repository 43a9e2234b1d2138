"""The local administrator: who the commands act as, under the same rules."""

import pytest

from graph.errors import Code
from graph.operations.callers import LocalAdmin
from graph.operations.execution import Graph, prepare
from storage import tables
from tests.make import DataFactory

VIEWER = prepare("query Viewer { viewer { username isAdmin } }", "Viewer")
BLOCK = prepare("mutation Block($id: Int!) { blockUser(input: {databaseId: $id}) { user { state } userErrors { code } } }", "Block")
CREATE = """
mutation Create {
  createUser(input: {username: "first", name: "First", email: "first@example.org", admin: true}) {
    user { databaseId isAdmin privateToken } userErrors { field code }
  }
}
"""


class TestActingUser:
    async def test_first_administrator_unless_named(self, graph: Graph, make: DataFactory) -> None:
        await make.user("ann")
        await make.user("first", admin=True)
        await make.user("second", admin=True)
        assert (await graph.run_as_admin(LocalAdmin(), VIEWER, {})).data == {"viewer": {"username": "first", "isAdmin": True}}
        assert (await graph.run_as_admin(LocalAdmin("Ann"), VIEWER, {})).data == {"viewer": {"username": "ann", "isAdmin": False}}

    async def test_blocked_administrators_do_not_count(self, graph: Graph, make: DataFactory) -> None:
        await make.user("blocked", admin=True, state=tables.UserState.BLOCKED)
        await make.user("active", admin=True)
        outcome = await graph.run_as_admin(LocalAdmin(), VIEWER, {})
        assert outcome.data == {"viewer": {"username": "active", "isAdmin": True}}

    @pytest.mark.parametrize(("username", "code"), [("nobody", Code.NOT_FOUND), ("blocked", Code.UNAUTHENTICATED)])
    async def test_missing_and_blocked_users_are_rejected(self, graph: Graph, make: DataFactory, username: str, code: Code) -> None:
        await make.user("blocked", state=tables.UserState.BLOCKED)
        outcome = await graph.run_as_admin(LocalAdmin(username), VIEWER, {})
        assert [problem.code for problem in outcome.errors] == [code]


class TestNoAdministrator:
    async def test_the_first_one_can_be_made(self, graph: Graph, make: DataFactory) -> None:
        outcome = await graph.run_as_admin(LocalAdmin(), prepare(CREATE, "Create"), {})
        assert outcome.errors == []
        assert outcome.data is not None
        assert outcome.data["createUser"]["user"]["isAdmin"] is True
        # The token is shown to its owner alone, here as everywhere.
        assert outcome.data["createUser"]["user"]["privateToken"] is None
        assert (await graph.run_as_admin(LocalAdmin(), VIEWER, {})).data == {"viewer": {"username": "first", "isAdmin": True}}

    async def test_an_unsaved_administrator_writes_no_author(self, graph: Graph, make: DataFactory) -> None:
        await graph.run_as_admin(LocalAdmin(), VIEWER, {})
        assert await make.count(tables.User) == 0


async def test_rights_are_those_of_the_acting_user(graph: Graph, make: DataFactory) -> None:
    ann, bob = await make.user("ann"), await make.user("bob")
    await make.admin()
    outcome = await graph.run_as_admin(LocalAdmin("ann"), BLOCK, {"id": bob.id})
    assert [problem.code for problem in outcome.errors] == [Code.FORBIDDEN]
    outcome = await graph.run_as_admin(LocalAdmin(), BLOCK, {"id": ann.id})
    assert outcome.data == {"blockUser": {"user": {"state": "BLOCKED"}, "userErrors": []}}
