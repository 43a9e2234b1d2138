"""Every field of a mutation's input is read: a field that the function forgets would be accepted and ignored."""

import dataclasses
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import strawberry

import graph.types
from graph.schema import graphql_schema
from graph.types.inputs import sent_values
from graph.types.notes import PARENT_FIELDS
from tests.support.api_clients import Ask
from tests.support.queries.permission_matrix import MUTATIONS, parse_matrix
from tests.support.scenario import Scenario, valid_mutation_input

READ_OTHERWISE = {
    "UpdateMergeRequestInput.allow_missing_target",  # only with a target branch
    "AddProjectMemberInput.keep_existing",  # only of somebody who is a member
    *(f"CreateNoteInput.{field}" for field, _, _ in PARENT_FIELDS),  # the fields that were sent, from a list that follows the declarations
}
"""Fields that the valid calls of the scenario do not read."""


def find_inputs() -> Iterator[type]:
    for module in pkgutil.walk_packages(graph.types.__path__, "graph.types."):
        for name, member in vars(importlib.import_module(module.name)).items():
            if name.endswith("Input") and dataclasses.is_dataclass(member) and isinstance(member, type):
                yield member


class WatchedValues(dict[str, Any]):
    """What rules take of an input. `watch` is called with the name of each value that they read or ask for.

    A rule that takes all that was sent, whatever its name, reads all `names`.
    """

    def __init__(self, values: dict[str, Any], names: list[str], watch: Callable[[str], None]) -> None:
        super().__init__(values)
        self._names = names
        self._watch = watch

    def __contains__(self, key: object) -> bool:
        self._watch(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._watch(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._watch(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        for each in self._names:
            self._watch(each)
        return super().__iter__()

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The fields that are read from now on, as `CreateIssueInput.title`."""
    found: set[str] = set()

    def watch(kind: type) -> None:
        def read(self: Any, name: str) -> Any:
            found.add(f"{type(self).__name__}.{name}")
            return object.__getattribute__(self, name)

        monkeypatch.setattr(kind, "__getattribute__", read)

    def watched_values(input: Any) -> WatchedValues:
        names = [each.name for each in dataclasses.fields(input)]
        sent = {name: value for name in names if (value := object.__getattribute__(input, name)) is not strawberry.UNSET}
        return WatchedValues(sent, names, lambda name: found.add(f"{type(input).__name__}.{name}"))

    for kind in set(find_inputs()):
        watch(kind)
    for module in [each for name, each in sys.modules.items() if name.startswith("graph.")]:
        if vars(module).get("sent_values") is sent_values:
            monkeypatch.setattr(module, "sent_values", watched_values)
    return found


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_every_field_is_read(ask: Ask, scenario: Scenario, reads: set[str]) -> None:
    assert graphql_schema.mutation_type is not None
    kinds = {kind.__name__: kind for kind in find_inputs()}
    unread: list[str] = []
    for name, row in parse_matrix(MUTATIONS).items():
        role = next((role for role in ("AD", *row) if row[role] == "ok"), None)
        if role is None:
            continue
        kind = str(graphql_schema.mutation_type.fields[name].args["input"].type)
        query = f"mutation ($input: {kind}) {{ {name}(input: $input) {{ userErrors {{ message }} }} }}"
        await ask(query, scenario.users[role], input=await valid_mutation_input(scenario, name, role))
        fields = [f"{kind.rstrip('!')}.{field.name}" for field in dataclasses.fields(kinds[kind.rstrip("!")])]
        unread += [field for field in fields if field not in reads and field not in READ_OTHERWISE]
    assert not unread, f"the functions of these mutations must read {', '.join(unread)}"
