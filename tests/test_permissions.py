"""Every operation answers every kind of caller as the permission matrix (tests/permissions.py) says."""

from typing import Any

import pytest

from graph.schema import graphql_schema
from rest_v3.routes import EXTRA, ROUTES
from tests.forge import Api, Ask
from tests.permissions import MUTATIONS, OPEN_V3, ROLES, V3, rows
from tests.rest_v3.rules import cites
from tests.world import World, mutation_input, v3_request

V3_ROWS, MUTATION_ROWS = rows(V3), rows(MUTATIONS)


class TestTheMatrix:
    def test_has_a_row_for_every_v3_route(self) -> None:
        assert {route.call for route in (*ROUTES, *EXTRA)} - OPEN_V3 == V3_ROWS.keys(), "add the row to tests/permissions.py"

    def test_has_a_row_for_every_mutation(self) -> None:
        assert graphql_schema.mutation_type is not None
        assert graphql_schema.mutation_type.fields.keys() == MUTATION_ROWS.keys(), "add the row to tests/permissions.py"


class TestV3:
    @cites("Errors: 200 for reads, updates and deletes", "Errors: 404 for reads of a private project by a non-member")
    @pytest.mark.parametrize("call", V3_ROWS)
    async def test_answers_each_caller_as_the_matrix_says(self, api: Api, world: World, call: str) -> None:
        answered = {}
        for role in ROLES:
            method, path, parameters = await v3_request(world, call, role)
            settings: dict[str, Any] = {"params": parameters} if method in ("GET", "DELETE") else {"json": parameters}
            if call.endswith("/uploads"):
                settings = {"files": {"file": ("a.txt", b"x")}}
            answered[role] = str((await api.request(method, path, world.users[role], **settings)).status_code)

        assert answered == V3_ROWS[call]


class TestMutations:
    @pytest.mark.parametrize("name", MUTATION_ROWS)
    async def test_answers_each_caller_as_the_matrix_says(self, ask: Ask, world: World, name: str) -> None:
        assert graphql_schema.mutation_type is not None
        kind = str(graphql_schema.mutation_type.fields[name].args["input"].type)
        query = f"mutation ($input: {kind}) {{ {name}(input: $input) {{ userErrors {{ field message code }} }} }}"
        answered = {}
        for role in ROLES:
            outcome = await ask(query, world.users[role], input=await mutation_input(world, name, role))
            if outcome.errors:
                answered[role] = {"UNAUTHENTICATED": "401"}.get(str(outcome.errors[0].code), str(outcome.errors[0].code).lower())
            else:
                assert outcome.data is not None
                errors = outcome.data[name]["userErrors"]
                answered[role] = f"{errors}" if errors else "ok"

        assert answered == MUTATION_ROWS[name]
