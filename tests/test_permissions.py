"""Every operation answers every kind of caller as the permission matrix (tests/support/queries/permission_matrix.py) says."""

from collections.abc import Iterable
from typing import Any

import pytest

from graph.schema import graphql_schema
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from storage.tables import TokenScope
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, Ask
from tests.support.queries.permission_matrix import ANONYMOUS_V3_CALLS, MUTATIONS, ROLES, V3, parse_matrix
from tests.support.scenario import Scenario, valid_mutation_input, valid_v3_request

READ, WRITE, GIT, ADMIN = TokenScope
V3_ROWS, MUTATION_ROWS = parse_matrix(V3), parse_matrix(MUTATIONS)


def mutation_fields() -> Any:
    assert graphql_schema.mutation_type is not None
    return graphql_schema.mutation_type.fields


class TestPermissionMatrix:
    def test_has_a_row_for_every_v3_route(self) -> None:
        assert {route.call for route in (*ROUTES, *EXTRA_ROUTES)} - ANONYMOUS_V3_CALLS == V3_ROWS.keys(), (
            "add it to tests/support/queries/permission_matrix.py"
        )

    def test_has_a_row_for_every_mutation(self) -> None:
        assert graphql_schema.mutation_type is not None
        assert graphql_schema.mutation_type.fields.keys() == MUTATION_ROWS.keys(), "add it to tests/support/queries/permission_matrix.py"


ROWS_OF_A_TEST = 12
"""The number of cases that share a scenario, which takes longer to make than they take; each has objects of its own."""


def split_rows(rows: Iterable[str]) -> list[Any]:
    """The rows in parts, each known by its first."""
    listed = list(rows)
    parts = [listed[start : start + ROWS_OF_A_TEST] for start in range(0, len(listed), ROWS_OF_A_TEST)]
    return [pytest.param(part, id=f"{part[0]} …") for part in parts]


class TestV3:
    @cites("Errors: 200 for reads, updates and deletes", "Errors: 404 for reads of a private project by a non-member")
    @pytest.mark.parametrize("calls", split_rows(V3_ROWS))
    async def test_every_caller_gets_the_status_of_the_matrix(self, api: Api, scenario: Scenario, calls: list[str]) -> None:
        answered = {call: {role: await self.status_of(api, scenario, call, role) for role in ROLES} for call in calls}

        assert answered == {call: V3_ROWS[call] for call in calls}

    async def status_of(self, api: Api, world: Scenario, call: str, role: str) -> str:
        method, path, parameters = await valid_v3_request(world, call, role)
        settings: dict[str, Any] = {"params": parameters} if method in ("GET", "DELETE") else {"json": parameters}
        if call.endswith("/uploads"):
            settings = {"files": {"file": ("a.txt", b"x")}}
        return str((await api.request(method, path, world.users[role], **settings)).status_code)


class TestMutations:
    @pytest.mark.parametrize("names", split_rows(MUTATION_ROWS))
    async def test_every_caller_gets_the_status_of_the_matrix(self, ask: Ask, scenario: Scenario, names: list[str]) -> None:
        answered = {name: {role: await self.outcome_of(ask, scenario, name, role) for role in ROLES} for name in names}

        assert answered == {name: MUTATION_ROWS[name] for name in names}

    async def outcome_of(self, ask: Ask, world: Scenario, name: str, role: str) -> str:
        assert graphql_schema.mutation_type is not None
        kind = str(graphql_schema.mutation_type.fields[name].args["input"].type)
        query = f"mutation ($input: {kind}) {{ {name}(input: $input) {{ userErrors {{ field message code }} }} }}"
        outcome = await ask(query, world.users[role], input=await valid_mutation_input(world, name, role))
        if outcome.errors:
            return {"UNAUTHENTICATED": "401"}.get(str(outcome.errors[0].code), str(outcome.errors[0].code).lower())
        assert outcome.data is not None
        errors = outcome.data[name]["userErrors"]
        return f"{errors}" if errors else "ok"


class TestAccessTokens:
    """What access tokens of an administrator may do, by their scopes, with every route and mutation."""

    NO_WRITES = {"DELETE /projects/:id/issues/:issue_id": True, "GET /hooks/:id": False}
    """Routes whose method does not say whether they write: issues are never deleted, and the other one sends a test event."""

    NEEDS_ADMIN = frozenset({"POST /user/keys"})
    """Routes that would give a caller with the scopes WRITE and GIT the rights of the administrator that the user is."""

    async def test_start_only_what_their_scopes_cover(self, api: Api, ask: Ask, scenario: Scenario, make: DataFactory) -> None:
        admin = scenario.users["AD"]
        assert admin is not None
        git, read = await make.access_token(admin, GIT, ADMIN), await make.access_token(admin, READ, GIT, ADMIN)
        write = await make.access_token(admin, WRITE, GIT)
        wrong = []
        for call, row in V3_ROWS.items():
            if row["AN"] != "401":
                continue
            method, path, parameters = await valid_v3_request(scenario, call, "AD")
            settings: dict[str, Any] = {"params": parameters} if method in ("GET", "DELETE") else {"json": parameters}
            if call.endswith("/uploads"):
                settings = {"files": {"file": ("a.txt", b"x")}}
            found = []
            for token in (git, read, write):
                response = await api.request(method, path, admin if token == read else None, headers={"PRIVATE-TOKEN": token}, **settings)
                lacks = response.status_code == 403 and "lacks the scope" in response.text
                found.append("scope" if lacks else str(response.status_code))
            only_reads = self.NO_WRITES.get(call, method == "GET")
            expected = ["scope", row["AD"] if only_reads else "scope", "scope" if call in self.NEEDS_ADMIN else row["OU"]]
            if found != expected:
                wrong.append((call, found, expected))
        for name, row in MUTATION_ROWS.items():
            if row["AN"] != "401":
                continue
            kind = str(mutation_fields()[name].args["input"].type)
            query = f"mutation ($input: {kind}) {{ {name}(input: $input) {{ userErrors {{ field message code }} }} }}"
            variables = {"input": await valid_mutation_input(scenario, name, "AD")}
            found = []
            for token in (git, read, write):
                outcome = await ask.graph.run_document(query, variables, None, token, request_id="test")
                code = str(outcome.errors[0].code).lower() if outcome.errors else str((outcome.data or {})[name]["userErrors"] or "ok")
                found.append("scope" if code == "insufficient_scope" else code)
            expected = ["scope", "scope", row["OU"]]
            if found != expected:
                wrong.append((name, found, expected))
        assert not wrong, wrong
