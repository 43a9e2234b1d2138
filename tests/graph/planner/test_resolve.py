"""The resolution of selected fields, by declaration and selection. No database is needed."""

from graphql import OperationDefinitionNode, parse

from graph.context import StaticSettings
from graph.planner.collect import FieldCollector
from graph.planner.resolve.classify import ConstantKind, DerivedKind, IndexedKind, PageKind, ProjectKind, StepKind
from graph.planner.resolve.fields import FieldResolver, ResolvedField
from graph.schema import graphql_schema

SETTINGS = StaticSettings("https://forge.example", shows_avatars=False, ssh_prefix="git@forge.example:")


def resolve(document: str) -> list[ResolvedField]:
    (operation,) = parse(document).definitions
    assert isinstance(operation, OperationDefinitionNode)
    root = graphql_schema.query_type
    assert root is not None
    collected = FieldCollector(graphql_schema, {}, {}).collect(root, [operation.selection_set], ())
    return FieldResolver(SETTINGS).resolve(root.name, collected, None)


def find(fields: list[ResolvedField], *path: str) -> ResolvedField:
    """The field at a path of response keys, below types that are all objects."""
    (field,) = [each for each in fields if each.key == path[0]]
    children = [child for below in field.children.values() for child in below]
    return find(children, *path[1:]) if len(path) > 1 else field


def typenames(field: ResolvedField) -> list[str | None]:
    """The types of a field's path, from its object to the root."""
    found, path = [], field.path
    while path is not None:
        found.append(path.typename)
        path = path.prev  # type: ignore[assignment]
    return found


def test_one_project_is_looked_up_by_its_statement_and_several_by_a_loader() -> None:
    assert isinstance(find(resolve('{ project(path: "a/b") { id } }'), "project").kind, ProjectKind)
    several = resolve('{ a: project(path: "a/b") { id } b: project(path: "b/c") { id } }')
    assert [each.kind for each in several] == [StepKind(), StepKind()]


def test_a_page_has_only_the_fields_of_connections() -> None:
    fields = resolve('{ project(path: "a/b") { issues { totalCount pageInfo { endCursor } edges { cursor node { iid } } __typename } } }')
    assert isinstance(find(fields, "project", "issues").kind, PageKind)


def test_an_index_serves_only_what_it_has() -> None:
    query = '{ project(path: "a/b") { builds { nodes { commit { %s } } } } }'
    assert isinstance(find(resolve(query % "title"), "project", "builds", "nodes", "commit").kind, IndexedKind)
    assert find(resolve(query % "title status"), "project", "builds", "nodes", "commit").kind == StepKind()


def test_a_computed_field_is_a_function_or_a_constant_of_the_settings() -> None:
    fields = resolve('{ project(path: "a/b") { owner { webUrl avatarUrl } } }')
    assert isinstance(find(fields, "project", "owner", "webUrl").kind, DerivedKind)
    assert find(fields, "project", "owner", "avatarUrl").kind == ConstantKind(None)


def test_the_items_of_a_list_have_no_type_in_the_path() -> None:
    fields = resolve('{ project(path: "a/b") { issues { nodes { author { username } } } } }')
    username = find(fields, "project", "issues", "nodes", "author", "username")
    assert typenames(username) == ["User", "Issue", None, "IssueConnection", "Project", "Query"]
