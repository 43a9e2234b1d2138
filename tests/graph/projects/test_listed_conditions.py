"""The conditions of lists that few rows meet: each reads rows of an index, however many users, groups and projects there are."""

import re
from functools import partial
from typing import Any

import pytest
from sqlalchemy import case, select, text
from sqlmodel import col

from graph.fields.keyset_listing import Order
from graph.rules.permissions.policy import Action
from graph.rules.permissions.sql_policy import SqlViewer, in_allowed_projects
from storage import tables
from storage.database.engine import Database
from storage.tables import NamespaceKind
from storage.tables.accounts import access_conditions, namespaces, users
from storage.tables.builds import builds, runners
from storage.tables.projects import stars
from tests.graph.merge_requests.test_open_merge_requests import plan_of
from tests.make import DataFactory
from tests.support.database.many_rows import insert_numbered, numbered

ROWS = 8_000
"""With fewer, PostgreSQL reads the whole table of users, which is cheaper then."""


def page(table: Any, order: Order, *conditions: Any) -> Any:
    descending = [column.desc() for column in order.columns(table)]
    return select(table).where(*conditions).order_by(*descending).limit(21)


PROJECTS = Order(tables.Project.created_at, descending=True)
GROUPS = Order(tables.Namespace.id, descending=True)
STATEMENTS: dict[str, tuple[str, Any]] = {
    "projects of a member": ("projects", page(tables.Project, PROJECTS, access_conditions.joined_projects(7))),
    "personal projects": ("projects", page(tables.Project, PROJECTS, access_conditions.personal_projects(7))),
    "projects in owned namespaces": ("projects", page(tables.Project, PROJECTS, access_conditions.projects_in_owned_namespaces(7))),
    "starred projects": ("projects", page(tables.Project, PROJECTS, stars.is_starred_by(7))),
    "groups of a member": ("namespaces", page(tables.Namespace, GROUPS, namespaces.is_group(), access_conditions.joined_groups(7))),
    "groups among personal namespaces": ("namespaces", page(tables.Namespace, GROUPS, namespaces.is_group())),
    "namespaces for new projects": ("namespaces", page(tables.Namespace, GROUPS, access_conditions.namespaces_at_level(7, 40))),
    "runners of a master": ("projects", page(tables.Runner, Order(tables.Runner.id), runners.is_available_to(7))),
    "builds of a user": (
        "builds",
        page(
            tables.Build,
            Order(tables.Build.id, descending=True),
            col(tables.Build.user_id) == 7,
            builds.is_current(),
            in_allowed_projects(tables.Build, Action.READ_BUILD, SqlViewer(7, is_admin=False)),
        ),
    ),
    "builds of a default branch": (
        "builds",
        page(
            tables.Build,
            Order(tables.Build.id, descending=True),
            col(tables.Build.project_id) == 7,
            builds.is_current(),
            builds.has_ref([None]),
        ),
    ),
    "a user by name": ("users", users.by_username("USER7")),
    "users by names": ("users", users.names_of(["USER7", "nobody"])),
}


@pytest.fixture
async def filled(make: DataFactory) -> Database:
    """A database with many users, each with a personal project and a group of a project."""
    database = make.services.database

    def person(number: Any) -> dict[str, Any]:
        return {"id": number, "username": numbered("User", number), "name": "x", "email": numbered("x@", number)}

    def namespace(kind: NamespaceKind, number: Any) -> dict[str, Any]:
        is_group = kind is NamespaceKind.GROUP
        path = numbered(kind.value, number)
        columns = {"id": number + ROWS * is_group, "kind": kind, "name": "x", "path": path, "path_key": path}
        return columns if is_group else {**columns, "owner_id": number}

    def built(number: Any) -> dict[str, Any]:
        place = {"user_id": number % 100 + 1, "project_id": case((number % 2 == 1, number), else_=7), "ref": numbered("branch", number)}
        return {**place, "sha": "a" * 40, "name": "test"}

    async with database.write_session() as session:
        await insert_numbered(session, tables.User, ROWS, person)
        for kind in (NamespaceKind.USER, NamespaceKind.GROUP):
            await insert_numbered(session, tables.Namespace, ROWS, partial(namespace, kind))
        project = {"name": "x", "path": "x", "path_key": "x"}
        await insert_numbered(session, tables.Project, 2 * ROWS, lambda number: {"id": number, "namespace_id": number, **project})
        await insert_numbered(session, tables.Build, ROWS // 4, built)
        joined = {"access_level": 50}
        await insert_numbered(session, tables.GroupMember, ROWS, lambda number: {"group_id": number + ROWS, "user_id": number, **joined})
        await session.execute(text("ANALYZE"))
        await session.commit()
    return database


async def test_no_plan_reads_all_rows(dialect: str, filled: Database) -> None:
    for name, (table, statement) in STATEMENTS.items():
        plan = await plan_of(filled, statement, None)
        assert table in plan, name
        assert (f"SCAN {table}" if dialect == "sqlite" else f"Seq Scan on {table}") not in plan, (name, plan)
        if name == "builds of a default branch":
            condition = "project_id=? AND ref=?" if dialect == "sqlite" else "Index Cond.* = .projects.default_branch"
            assert re.search(condition.replace("?", "[?]"), plan), plan
    # Builds that the viewer does not see are passed over without reading their rows.
    _, builds_of_user = STATEMENTS["builds of a user"]
    plan = await plan_of(filled, builds_of_user.with_only_columns(col(tables.Build.id)), None)
    index = "ix_builds_user_id_id_project_id"
    assert (f"USING COVERING INDEX {index}" if dialect == "sqlite" else f"Index Only Scan Backward using {index}") in plan, plan


async def test_finds_what_the_conditions_of_single_rows_find(make: DataFactory) -> None:
    level = tables.AccessLevel
    viewer, other = await make.user("ada"), await make.user("bob")
    group = await make.group(owner=viewer, members=[(other, level.GUEST)])
    hidden, shared = await make.group(owner=other), await make.group(owner=other)
    listed = [await make.project(owner=viewer), await make.project(group=group)]
    listed.append(await make.project(group=shared, visibility=tables.Visibility.INTERNAL))
    listed.append(await make.project(owner=other, members=[(viewer, level.GUEST)]))
    await make.project(group=hidden)
    async with make.services.database.read_session() as session:

        async def ids(table: Any, condition: Any) -> list[int]:
            return [key for (key,) in await session.read(select(col(table.id)).where(condition).order_by(col(table.id)))]

        for user in (viewer, other):
            assert await ids(tables.Project, access_conditions.listed_projects(user.id)) == await ids(
                tables.Project, access_conditions.visible_projects(user.id)
            )
            assert await ids(tables.Project, access_conditions.personal_projects(user.id)) == await ids(
                tables.Project, access_conditions.owned_projects(user.id)
            )
            is_group = namespaces.is_group()
            assert await ids(tables.Namespace, is_group & access_conditions.listed_groups(user.id)) == await ids(
                tables.Namespace, is_group & access_conditions.visible_groups(user.id)
            )
        assert await ids(tables.Project, access_conditions.listed_projects(viewer.id)) == [project.id for project in listed]
