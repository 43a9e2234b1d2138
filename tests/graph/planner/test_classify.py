"""The classification of fields, by the declarations of the whole schema. No database is needed."""

from collections import Counter
from collections.abc import Iterator

import pytest
from graphql import FieldNode, GraphQLField, GraphQLObjectType, NameNode

from graph.fields.declarations import ByNumber, NamesOf, ProjectLookup, ToMany, ToOne
from graph.fields.resolvers import LoaderSource, declaration_of, field_source_of
from graph.planner.collect import CollectedField
from graph.planner.resolve.classify import (
    ColumnKind,
    ComputedKind,
    FromRowKind,
    GlobalIdKind,
    IndexedKind,
    PageKind,
    ProjectKind,
    RelationKind,
    RowByNumberKind,
    StepKind,
    StringListKind,
    TypenameKind,
    classify,
)
from graph.schema import graphql_schema


def collected_field(name: str, field: GraphQLField | None) -> CollectedField:
    return CollectedField(name, [FieldNode(name=NameNode(value=name))], field, (name,), None, {})


def all_fields() -> Iterator[tuple[str, CollectedField]]:
    for kind in graphql_schema.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            for name, field in kind.fields.items():
                yield f"{kind.name}.{name}", collected_field(name, field)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("Issue.iid", ColumnKind),
        ("Issue.id", GlobalIdKind),
        ("User.webUrl", ComputedKind),
        ("Issue.author", RelationKind),
        ("Issue.labels", RelationKind),
        ("Build.commit", IndexedKind),
        ("Query.project", ProjectKind),
        ("Query.projects", PageKind),
        ("Project.owner", FromRowKind),
        ("Project.tagList", StringListKind),
        ("Project.issues", PageKind),
        ("Project.issue", RowByNumberKind),
        ("Issue.notes", PageKind),
        ("Query.viewer", StepKind),
        ("Mutation.updateIssue", StepKind),
    ],
)
def test_follows_the_declaration(path: str, kind: type) -> None:
    assert isinstance(classify(dict(all_fields())[path]), kind)


def test_typename() -> None:
    assert classify(collected_field("__typename", None)) == TypenameKind()


def test_every_declared_relation_has_a_loader() -> None:
    """A row's statement joins the relation; objects load it, so both ladders may share one kind."""
    for path, collected in all_fields():
        if isinstance(declaration_of(collected.field), ToOne | NamesOf):
            assert isinstance(field_source_of(collected.field), LoaderSource), path
            assert isinstance(classify(collected), RelationKind), path


def test_all_kinds_occur_and_declared_lists_are_pages() -> None:
    kinds = Counter(type(classify(collected)) for _, collected in all_fields())
    leaves = {ColumnKind, StringListKind, GlobalIdKind, ComputedKind}
    rows = {RelationKind, FromRowKind, IndexedKind, ProjectKind, PageKind, RowByNumberKind}
    assert set(kinds) == {*leaves, *rows, StepKind}
    for path, collected in all_fields():
        declared = declaration_of(collected.field)
        if isinstance(declared, ToMany):
            assert isinstance(classify(collected), PageKind), path
        elif isinstance(declared, ByNumber | ProjectLookup):
            assert not isinstance(classify(collected), StepKind), path
