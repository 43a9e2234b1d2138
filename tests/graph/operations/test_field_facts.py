"""Facts about fields stand in their declarations, where they have an effect, and nowhere else."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import graphql
import pytest
from graphql import GraphQLField, GraphQLObjectType

from graph.documents.documents import ROOT_FIELD_FACTS
from graph.fields.metadata import NO_FACTS, FieldFacts, facts, facts_of, metadata_of
from graph.schema import graphql_schema
from graph.types.accounts.users import TYPES_SHOWING_EMAIL

ROOT = Path(__file__).parents[3]
DELETING_VERBS = ("delete", "remove", "revoke", "unregister")
PAGE_SUFFIX = "Connection"
FACTS_OF_ALL_FIELDS = ("extra_rows", "max_page_size", "revision_argument", "is_pure")
"""Facts that are read of fields of any type: their cost, and what determines their value."""

query_type, mutation_type = graphql_schema.query_type, graphql_schema.mutation_type
assert query_type is not None and mutation_type is not None
MUTATIONS = dict(mutation_type.fields)
ROOT_FIELDS = {**query_type.fields, **MUTATIONS}


def declared_facts() -> Iterator[tuple[str, str, GraphQLField, FieldFacts]]:
    for kind in graphql_schema.type_map.values():
        if isinstance(kind, GraphQLObjectType):
            for name, field in kind.fields.items():
                if (found := facts_of(field)) != NO_FACTS:
                    yield kind.name, name, field, found


class TestDeclarations:
    def test_unknown_fact_is_rejected(self) -> None:
        with pytest.raises(TypeError, match="anonymus"):
            facts(anonymus=True)

    @pytest.mark.parametrize("name", MUTATIONS)
    def test_every_mutation_is_made_by_the_decorator(self, name: str) -> None:
        assert "facts" in metadata_of(MUTATIONS[name]), f"{name}: declare it with @mutation of graph/fields/mutations.py"

    def test_facts_of_root_fields_are_on_root_fields(self) -> None:
        for kind, name, _, found in declared_facts():
            if found != replace(NO_FACTS, **{key: getattr(found, key) for key in FACTS_OF_ALL_FIELDS}):
                assert kind in ("Query", "Mutation"), f"{kind}.{name}: only {', '.join(FACTS_OF_ALL_FIELDS)} are read of such a field"

    def test_extra_rows_are_on_fields_whose_cost_is_counted(self) -> None:
        for kind, name, field, found in declared_facts():
            if found.extra_rows:
                is_list = graphql.is_list_type(graphql.get_nullable_type(field.type))
                named = graphql.get_named_type(field.type)
                assert graphql.is_composite_type(named) and not is_list and not named.name.endswith(PAGE_SUFFIX), (
                    f"{kind}.{name}: graph/operations/cost.py adds extra_rows only to single objects"
                )

    def test_root_fields_that_others_than_users_call_are_found(self) -> None:
        assert ROOT_FIELD_FACTS["signIn"].anonymous and not ROOT_FIELD_FACTS["signIn"].runner
        assert ROOT_FIELD_FACTS["frontPage"].anonymous
        assert ROOT_FIELD_FACTS["job"].runner and not ROOT_FIELD_FACTS["job"].anonymous
        assert ROOT_FIELD_FACTS["claimBuild"].extra_wait_seconds > 0
        assert "createIssue" not in ROOT_FIELD_FACTS

    @pytest.mark.parametrize("name", MUTATIONS)
    def test_mutations_that_delete_return_the_id(self, name: str) -> None:
        payload = graphql.get_named_type(MUTATIONS[name].type)
        assert isinstance(payload, GraphQLObjectType)
        assert ("deletedId" in payload.fields) == name.startswith(DELETING_VERBS), f"{name}: @mutation(deletes=True), if it deletes"


class TestOtherModules:
    def test_do_not_name_root_fields(self) -> None:
        """Only names with a capital, because the others are also words."""
        names = {name for name in ROOT_FIELDS if name != name.lower()}
        for path in sorted((ROOT / "graph").rglob("*.py")):
            if "types" not in path.parts:
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    named = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
                    assert not named, (
                        f"{path.relative_to(ROOT)}:{node.lineno}: declare the fact with the field, in graph/fields/metadata.py"
                    )

    def test_types_that_show_email_addresses_exist(self) -> None:
        assert graphql_schema.type_map.keys() >= TYPES_SHOWING_EMAIL
