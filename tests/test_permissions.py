"""Every operation answers every kind of caller as the permission matrix (tests/permissions.py) says."""

from collections.abc import Iterable
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


ROWS_OF_A_TEST = 12
"""So many share a world, which takes longer to make than they take to ask; each has things of its own to be done to."""


def portions(rows: Iterable[str]) -> list[Any]:
    """The rows in parts, each known by its first."""
    listed = list(rows)
    parts = [listed[start : start + ROWS_OF_A_TEST] for start in range(0, len(listed), ROWS_OF_A_TEST)]
    return [pytest.param(part, id=f"{part[0]} …") for part in parts]


class TestV3:
    @cites("Errors: 200 for reads, updates and deletes", "Errors: 404 for reads of a private project by a non-member")
    @pytest.mark.parametrize("calls", portions(V3_ROWS))
    async def test_answers_each_caller_as_the_matrix_says(self, api: Api, world: World, calls: list[str]) -> None:
        answered = {call: {role: await self.status(api, world, call, role) for role in ROLES} for call in calls}

        assert answered == {call: V3_ROWS[call] for call in calls}

    async def status(self, api: Api, world: World, call: str, role: str) -> str:
        method, path, parameters = await v3_request(world, call, role)
        settings: dict[str, Any] = {"params": parameters} if method in ("GET", "DELETE") else {"json": parameters}
        if call.endswith("/uploads"):
            settings = {"files": {"file": ("a.txt", b"x")}}
        return str((await api.request(method, path, world.users[role], **settings)).status_code)


class TestMutations:
    @pytest.mark.parametrize("names", portions(MUTATION_ROWS))
    async def test_answers_each_caller_as_the_matrix_says(self, ask: Ask, world: World, names: list[str]) -> None:
        answered = {name: {role: await self.word(ask, world, name, role) for role in ROLES} for name in names}

        assert answered == {name: MUTATION_ROWS[name] for name in names}

    async def word(self, ask: Ask, world: World, name: str, role: str) -> str:
        assert graphql_schema.mutation_type is not None
        kind = str(graphql_schema.mutation_type.fields[name].args["input"].type)
        query = f"mutation ($input: {kind}) {{ {name}(input: $input) {{ userErrors {{ field message code }} }} }}"
        outcome = await ask(query, world.users[role], input=await mutation_input(world, name, role))
        if outcome.errors:
            return {"UNAUTHENTICATED": "401"}.get(str(outcome.errors[0].code), str(outcome.errors[0].code).lower())
        assert outcome.data is not None
        errors = outcome.data[name]["userErrors"]
        return f"{errors}" if errors else "ok"
