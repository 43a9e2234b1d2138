"""The conditions of lists that few rows meet: each reads rows of an index, however many users, groups and projects there are."""

import re
from typing import Any

import pytest
from sqlalchemy import insert, select, text
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
    database, ids = make.services.database, range(1, ROWS + 1)
    paths = [(NamespaceKind.USER, f"user{number}", number) for number in ids] + [
        (NamespaceKind.GROUP, f"group{number}", None) for number in ids
    ]
    async with database.write_session() as session:
        people = [{"id": number, "username": f"User{number}", "name": "x", "email": f"{number}@example.org"} for number in ids]
        await session.execute(insert(tables.User), people)
        rows = [
            {"id": at, "kind": kind, "name": "x", "path": path, "path_key": path, "owner_id": owner}
            for at, (kind, path, owner) in enumerate(paths, 1)
        ]
        await session.execute(insert(tables.Namespace), rows)
        projects = [{"id": row["id"], "namespace_id": row["id"], "name": "x", "path": "x", "path_key": "x"} for row in rows]
        await session.execute(insert(tables.Project), projects)
        build = {"sha": "a" * 40, "name": "test"}
        built = [{**build, "user_id": at % 100 + 1, "project_id": at if at % 2 else 7, "ref": f"branch{at}"} for at in range(1, ROWS // 4)]
        await session.execute(insert(tables.Build), built)
        joined = [{"group_id": ROWS + number, "user_id": number, "access_level": 50} for number in ids]
        await session.execute(insert(tables.GroupMember), joined)
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
