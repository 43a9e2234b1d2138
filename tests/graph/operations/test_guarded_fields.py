"""Fields that need a right beyond that of their object, or a feature, are nullable: a refusal nulls them, and nothing around them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from graphql import GraphQLField, GraphQLObjectType, is_non_null_type
from strawberry.schema.schema_converter import GraphQLCoreConverter

from graph.fields.declarations import ByNumber, ToMany
from graph.fields.entities import ENTITIES
from graph.fields.metadata import metadata_of
from graph.rules.permissions.policy import RULES, Action
from graph.schema import graphql_schema
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask

CHANGING_ROOTS = ("Mutation", "Subscription")
"""Their fields are operations of their own."""
SHOWN_BY_OTHERS = ("Commit",)
"""Types whose objects are shown to viewers without the action of their entity: a merge request shows its commits to all who see it."""


def functions_of(field: GraphQLField) -> Iterator[Any]:
    """The functions that resolve a field, other than those that its declaration makes."""
    definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
    resolver = getattr(getattr(definition, "base_resolver", None), "wrapped_func", None)
    for function in (resolver, metadata_of(field).get("pages"), metadata_of(field).get("batch")):
        if function is not None and not isinstance(metadata_of(field).get("declared"), ToMany | ByNumber):
            yield function


def actions_in(function: Any) -> Iterator[Action]:
    """The actions that a function names, if it requires any."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if called & {"require", "require_all"}:
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Action":
                yield Action[node.attr]


def guards_of(field: GraphQLField) -> set[Action]:
    """The actions that a field requires of the viewer, except for those of a filter that the caller chooses."""
    found = {action for function in functions_of(field) for action in actions_in(function)}
    declared = metadata_of(field).get("declared")
    if isinstance(declared, ToMany | ByNumber) and declared.action is not None:
        found.add(declared.action)
    return found


def is_implied(action: Action, kind: str) -> bool:
    """Whether every viewer of an object of this type may perform the action on it, because the type's own action requires as much."""
    own = next((entity.action for entity in ENTITIES.values() if entity.name == kind), None)
    if own is None or kind in SHOWN_BY_OTHERS or action not in RULES or own not in RULES:
        return False
    wanted, given = RULES[action], RULES[own]
    return (
        wanted.min_level <= given.min_level
        and (wanted.includes_non_members or not given.includes_non_members)
        and wanted.visibility_switch in (None, given.visibility_switch)
        and wanted.feature in (None, given.feature)
        and wanted.any_feature in ((), given.any_feature)
        and not wanted.requires_unarchived
    )


def guarded_fields() -> Iterator[tuple[str, GraphQLField, set[Action]]]:
    for kind in graphql_schema.type_map.values():
        if isinstance(kind, GraphQLObjectType) and kind.name not in CHANGING_ROOTS:
            for name, field in kind.fields.items():
                guards = {action for action in guards_of(field) if not is_implied(action, kind.name)}
                if guards:
                    yield f"{kind.name}.{name}", field, guards


class TestGuardedFields:
    def test_are_nullable(self) -> None:
        wrong = {name: sorted(guards) for name, field, guards in guarded_fields() if is_non_null_type(field.type)}
        assert wrong == {}, "a viewer without the right or a project without the feature would lose the object or the whole list"

    def test_are_found_by_their_declarations_and_resolvers(self) -> None:
        found = {name: guards for name, _, guards in guarded_fields()}
        assert found["Project.builds"] == {Action.READ_BUILD}, "to_many"
        assert found["Project.issue"] == {Action.READ_ISSUE}, "by_number"
        assert found["Project.snippets"] == {Action.READ_SNIPPET}, "connection_field"
        assert found["Commit.rollup"] == {Action.READ_CHECKS}, "a resolver"
        assert found["Milestone.issues"] == {Action.READ_ISSUE}
        assert found["Query.hooks"] == {Action.ADMIN_HOOKS}
        assert not {"Issue.notes", "Pipeline.builds", "Branch.health", "Project.members"} & found.keys()
        assert len(found) > 60


WALL = """{ projects(orderBy: {field: NAME, direction: ASC}) { nodes {
    name issues { totalCount } mergeRequests { totalCount } builds { totalCount } snippets { totalCount } labels { totalCount }
    milestones { totalCount } pipelines { totalCount } environments { totalCount } deployments { totalCount }
    buildStats { rows { counts { total } } } mergeRequestStats { opened }
} } }"""
HIDDEN_BY = {
    "issues_enabled": {"issues"},
    "merge_requests_enabled": {"mergeRequests", "mergeRequestStats"},
    "snippets_enabled": {"snippets"},
    "builds_enabled": {"builds", "pipelines", "environments", "deployments", "buildStats"},
}


class TestLists:
    @pytest.mark.parametrize("feature", [*HIDDEN_BY, None])
    async def test_of_projects_lose_nothing_by_one_of_them(self, ask: Ask, make: DataFactory, feature: str | None) -> None:
        """`feature`: one that the second project has not; None: the viewer is a guest there."""
        viewer = await make.user()
        await make.project(name="first", members=[(viewer, AccessLevel.DEVELOPER)])
        level = AccessLevel.DEVELOPER if feature else AccessLevel.GUEST
        await make.project(name="second", members=[(viewer, level)], **({feature: False} if feature else {}))
        hidden = HIDDEN_BY[feature or "builds_enabled"]
        # The later runs have a plan.
        for _ in range(3):
            outcome = await ask(WALL, viewer)
            first, second = outcome.data["projects"]["nodes"]
            assert None not in first.values()
            assert {name for name, value in second.items() if value is None} == hidden
            assert {(str(error.code), error.path[-1]) for error in outcome.errors} == {("FORBIDDEN", name) for name in hidden}
