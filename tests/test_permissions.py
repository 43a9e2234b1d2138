"""Every operation answers every kind of caller as the permission matrix (tests/support/permission_matrix.py) says."""

from collections.abc import Iterable
from typing import Any

import pytest

from graph.schema import graphql_schema
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, Ask
from tests.support.permission_matrix import ANONYMOUS_V3_CALLS, MUTATIONS, ROLES, V3, parse_matrix
from tests.support.scenario import Scenario, valid_mutation_input, valid_v3_request

V3_ROWS, MUTATION_ROWS = parse_matrix(V3), parse_matrix(MUTATIONS)


class TestPermissionMatrix:
    def test_has_a_row_for_every_v3_route(self) -> None:
        assert {route.call for route in (*ROUTES, *EXTRA_ROUTES)} - ANONYMOUS_V3_CALLS == V3_ROWS.keys(), (
            "add the row to tests/support/permission_matrix.py"
        )

    def test_has_a_row_for_every_mutation(self) -> None:
        assert graphql_schema.mutation_type is not None
        assert graphql_schema.mutation_type.fields.keys() == MUTATION_ROWS.keys(), "add the row to tests/support/permission_matrix.py"


ROWS_OF_A_TEST = 12
"""So many share a world, which takes longer to make than they take to ask; each has things of its own to be done to."""


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
