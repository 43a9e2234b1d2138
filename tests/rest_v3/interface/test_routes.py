"""The route table equals the interface document: the same calls, parameters and statuses; every operation has a row."""

import re

import pytest
from graphql import parse

from graph.operations.execution import prepare_document
from rest_v3 import OPERATIONS_FOLDER
from rest_v3.operations import VIEWER, OperationRegistry
from rest_v3.profiles import PROFILES, apply_profile
from rest_v3.route import Route
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from tests.rest_v3.interface.test_interface_document import SHARED
from tests.rest_v3.support.fake_graph import fragment_names
from tests.rest_v3.support.further_calls import FURTHER_CALLS, FURTHER_ROUTES
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS, DocumentedCall
from tests.rest_v3.support.interface_rules import cites
from tests.rest_v3.support.response_shapes import SHAPES

BY_CALL = {route.call: route for route in ROUTES}
WITHOUT_A_BODY = frozenset(
    {
        "DELETE /users/:uid/keys/:id",
        "DELETE /user/emails/:id",
        "DELETE /users/:uid/emails/:id",
    }
)
"""Rows that answer `null`: the document shows no body."""


UNDOCUMENTED_CALLS = {
    "GET /users": frozenset({"active"}),
    "PUT /projects/:id/merge_requests/:merge_request_id": frozenset({"source_branch"}),
}
"""Parameters that the document leaves out and the server of that time read."""


class TestCalls:
    def test_are_those_of_the_document(self) -> None:
        assert BY_CALL.keys() == {call.call for call in DOCUMENTED_CALLS}, "a row that the document does not have belongs in EXTRA_ROUTES"

    def test_stand_in_the_order_of_the_document(self) -> None:
        assert [route.call for route in ROUTES] == [call.call for call in DOCUMENTED_CALLS]

    def test_stand_once(self) -> None:
        calls = [route.call for route in (*ROUTES, *EXTRA_ROUTES)]
        assert len(calls) == len(set(calls))


@pytest.mark.parametrize("documented", DOCUMENTED_CALLS, ids=lambda call: call.call)
class TestRow:
    def test_has_the_documented_parameters(self, documented: DocumentedCall) -> None:
        route = BY_CALL[documented.call]
        assert {parameter.name for parameter in route.params} == documented.names | UNDOCUMENTED_CALLS.get(documented.call, frozenset())

    def test_required_parameters_match_the_document(self, documented: DocumentedCall) -> None:
        route = BY_CALL[documented.call]
        required = {parameter.name for parameter in route.params if parameter.is_required} | set(route.path_names)
        assert required == documented.required

    @cites("Errors: 200 for reads, updates and deletes")
    def test_answers_the_documented_status(self, documented: DocumentedCall) -> None:
        route = BY_CALL[documented.call]
        answered = route.rejection_status if documented.status == 405 else route.success_status
        expected = documented.status or (201 if documented.call.startswith("POST ") else 200)
        assert answered == expected

    def test_has_a_closed_shape(self, documented: DocumentedCall) -> None:
        route = BY_CALL[documented.call]
        bare = route.file_key or route.rejection_status or route.call in WITHOUT_A_BODY or route.call.endswith(("/block", "/unblock"))
        assert route.shape in SHAPES or bare


OWN_CALLS = {
    "POST /session",
    "POST /projects/:id/uploads",
    "POST /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds",
}
"""Calls that neither the document nor the list has: docs/wire-facts.md 1.4 and 14, docs/decisions.md 16."""
FURTHER_BY_CALL = {route.call: route for route in EXTRA_ROUTES}
UNDOCUMENTED_FURTHER: dict[str, frozenset[str]] = {
    "POST /projects/:id/hooks": frozenset({"token"}),
    "PUT /projects/:id/hooks/:hook_id": frozenset({"token"}),
    "GET /projects/:id/repository/archive": frozenset({"format"}),
}
"""Parameters of further calls that the list leaves out."""
NOT_MARKED_AS_REQUIRED = frozenset({"POST /projects/:id/keys"})
"""Further calls whose missing parameters are reported as invalid values."""


class TestFurtherRows:
    """The routes of GitLab 8.5 that the document leaves out."""

    def test_are_all_served(self) -> None:
        listed = {call.call for call in FURTHER_CALLS}
        assert FURTHER_BY_CALL.keys() - OWN_CALLS == listed, "a row that GitLab 8.5 has not either belongs in OWN_CALLS, by a decision"

    def test_have_the_listed_parameters(self) -> None:
        for call in FURTHER_CALLS:
            if (route := FURTHER_BY_CALL.get(call.call)) is None:
                continue
            names = {parameter.name for parameter in route.params}
            assert (call.call, names) == (call.call, call.names | UNDOCUMENTED_FURTHER.get(call.call, frozenset()))
            required = {parameter.name for parameter in route.params if parameter.is_required} | set(route.path_names)
            expected = set(route.path_names) if call.call in NOT_MARKED_AS_REQUIRED else call.required
            assert (call.call, required) == (call.call, expected)

    def test_have_a_closed_shape(self) -> None:
        for route in EXTRA_ROUTES:
            assert route.shape in SHAPES or route.file_key or route.is_text, route.call

    @pytest.mark.skipif(not SHARED.exists(), reason="the shared document is not beside this checkout")
    def test_are_those_of_the_shared_list(self) -> None:
        assert FURTHER_ROUTES.read_bytes() == (SHARED / "routes-8.5.tsv").read_bytes()


class TestOperations:
    OPERATIONS = OperationRegistry.read(OPERATIONS_FOLDER, prepare_document)

    def used(self) -> set[str]:
        rows: list[Route] = [row for profile in PROFILES for row in apply_profile(profile, (*ROUTES, *EXTRA_ROUTES))]
        return {name for row in rows for name in (row.operation, row.guard) if name}

    def test_are_each_run_by_a_row(self) -> None:
        # The guards that the engine requests for rows without one.
        own = {"ProjectSeen", "GroupSeen", VIEWER}
        assert self.OPERATIONS.names - own <= self.used(), "take out the operation, or name it in a row"

    def test_use_every_fragment(self) -> None:
        used = {fragment for name in self.used() - {VIEWER} for fragment in fragment_names(self.OPERATIONS.document(name))}
        assert {fragment for path in OPERATIONS_FOLDER.glob("*.graphql") for fragment in fragment_names(parse(path.read_text()))} == used

    def test_stand_beside_the_rows_of_their_noun(self) -> None:
        nouns = {path.stem for path in OPERATIONS_FOLDER.glob("*.graphql")}
        assert nouns == {path.stem for path in OPERATIONS_FOLDER.glob("*.py")} - {"__init__"}

    def test_are_the_presenters(self) -> None:
        """Names are given by aliases: a row's file builds no answer of its own."""
        for path in OPERATIONS_FOLDER.glob("*.py"):
            assert not re.search(r"^\s*from (storage|graph)\b", path.read_text(), re.MULTILINE), path.name
