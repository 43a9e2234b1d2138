"""The route table is the interface document: the same calls, parameters and statuses, and every operation has a caller."""

import re

import pytest

from graph.execute import prepare
from rest_v3 import ROUTES_FOLDER
from rest_v3.operations import VIEWER, Operations
from rest_v3.profiles import PROFILES, under
from rest_v3.route import Route
from rest_v3.routes import EXTRA, ROUTES
from tests.rest_v3.document import DOCUMENTED, Call
from tests.rest_v3.rules import cites
from tests.rest_v3.shapes import SHAPES

BY_CALL = {route.call: route for route in ROUTES}
WITHOUT_A_BODY = frozenset(
    {
        "DELETE /users/:uid/keys/:id",
        "DELETE /user/emails/:id",
        "DELETE /users/:uid/emails/:id",
    }
)
"""Rows that answer `null`: the document shows no body."""


BEYOND = {
    "GET /users": frozenset({"active"}),
    "PUT /projects/:id/merge_requests/:merge_request_id": frozenset({"source_branch"}),
}
"""Parameters that the document leaves out and the server of that time read."""


class TestCalls:
    def test_are_those_of_the_document(self) -> None:
        assert BY_CALL.keys() == {call.call for call in DOCUMENTED}

    def test_stand_in_the_order_of_the_document(self) -> None:
        assert [route.call for route in ROUTES] == [call.call for call in DOCUMENTED]

    def test_stand_once(self) -> None:
        calls = [route.call for route in (*ROUTES, *EXTRA)]
        assert len(calls) == len(set(calls))


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda call: call.call)
class TestRow:
    def test_has_the_documented_parameters(self, documented: Call) -> None:
        route = BY_CALL[documented.call]
        assert {parameter.name for parameter in route.params} == documented.names | BEYOND.get(documented.call, frozenset())

    def test_requires_what_the_document_requires(self, documented: Call) -> None:
        route = BY_CALL[documented.call]
        required = {parameter.name for parameter in route.params if parameter.required} | set(route.path_names)
        assert required == documented.required

    @cites("Errors: 200 for reads, updates and deletes")
    def test_answers_the_documented_status(self, documented: Call) -> None:
        route = BY_CALL[documented.call]
        answered = route.refuses if documented.status == 405 else route.success
        expected = documented.status or (201 if documented.call.startswith("POST ") else 200)
        assert answered == expected

    def test_has_a_closed_shape(self, documented: Call) -> None:
        route = BY_CALL[documented.call]
        bare = route.stream or route.refuses or route.call in WITHOUT_A_BODY or route.call.endswith(("/block", "/unblock"))
        assert route.shape in SHAPES or bare


class TestOperations:
    OPERATIONS = Operations.read(ROUTES_FOLDER, prepare)

    def used(self) -> set[str]:
        rows: list[Route] = [row for profile in PROFILES for row in under(profile, (*ROUTES, *EXTRA))]
        return {name for row in rows for name in (row.operation, row.guard) if name}

    def test_are_each_run_by_a_row(self) -> None:
        # The guards that the engine asks by itself for rows without one.
        own = {"ProjectSeen", "GroupSeen", VIEWER}
        assert self.OPERATIONS.names - own <= self.used(), "take out the operation, or name it in a row"

    def test_use_every_fragment(self) -> None:
        used = {fragment for name in self.used() - {VIEWER} for fragment in self.OPERATIONS.uses(name)}
        assert self.OPERATIONS.fragment_names == used

    def test_stand_beside_the_rows_of_their_noun(self) -> None:
        nouns = {path.stem for path in ROUTES_FOLDER.glob("*.graphql")}
        assert nouns == {path.stem for path in ROUTES_FOLDER.glob("*.py")} - {"__init__"}

    def test_are_the_presenters(self) -> None:
        """Names are given by aliases: a row's file builds no answer of its own."""
        for path in ROUTES_FOLDER.glob("*.py"):
            assert not re.search(r"^\s*from (storage|graph)\b", path.read_text(), re.MULTILINE), path.name
