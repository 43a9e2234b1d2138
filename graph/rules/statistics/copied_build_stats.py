"""Statistics of builds from the columnar copy, which answers as the database does, only sooner."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import literal, select
from sqlmodel import col

from graph.context import Context
from graph.jobs.build_analytics import BuildAnalytics
from graph.rules.statistics.copied_builds import fetch_from_copy
from storage import tables
from storage.analytics import build_statistics
from storage.analytics.build_statistics import BuildCopyQuery
from storage.tables.builds.build_stats import BuildDimension
from storage.tables.issues.issues import ids_of_users


async def load_groups(context: Context, query: BuildCopyQuery) -> list[Sequence[Any]] | None:
    """The columns of `storage/tables/builds/build_stats.py:groups`; None if the copy cannot answer."""
    found = await fetch_from_copy(context, lambda analytics: _fetch(context, analytics, query))
    return None if found is None else build_statistics.arrange_columns(found, query)


async def _fetch(context: Context, analytics: BuildAnalytics, query: BuildCopyQuery) -> list[Any] | None:
    selection, dimensions, ids = query.selection, query.grouping.dimensions, sorted(query.owners)
    version = None
    if selection.author_usernames is not None:
        rows = await context.tuples(ids_of_users(list(selection.author_usernames)))
        query = replace(query, author_ids=[row[0] for row in rows])
    if selection.refs is not None and None in selection.refs:
        row = tables.Project
        query = replace(query, default_branches=await _read_names(context, select(col(row.id), col(row.default_branch)), row, ids))
    if BuildDimension.PROJECT in dimensions:
        row = tables.Project
        paths: Any = select(col(row.id), col(tables.Namespace.path) + literal("/") + col(row.path))
        paths = paths.join(tables.Namespace, col(tables.Namespace.id) == col(row.namespace_id))
        query = replace(query, project_paths=await _read_names(context, paths, row, ids))
    if BuildDimension.AUTHOR in dimensions:
        statement = build_statistics.compile_author_ids(query)
        authors = await analytics.fetch(lambda _: statement)
        version = authors.version
        author_ids = sorted(author for (author,) in authors.rows)
        user = tables.User
        query = replace(query, usernames=await _read_names(context, select(col(user.id), col(user.username)), user, author_ids))
        if len(query.usernames) != len(author_ids):
            return None
    found = await analytics.fetch(partial(build_statistics.compile_groups, query))
    return found.rows if version in (None, found.version) else None


async def _read_names(context: Context, statement: Any, table: Any, ids: Sequence[int]) -> Mapping[int, Any]:
    return {row[0]: row[1] for row in await context.tuples(statement.where(col(table.id).in_(ids)))}
