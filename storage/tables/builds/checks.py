"""Checks of commits: builds and commit statuses together."""

from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, and_, bindparam, func, literal, null, select, union_all
from sqlmodel import col

from storage.database.statements.statement_cache import mark_constant
from storage.tables.builds.builds import Build, is_check, is_current
from storage.tables.builds.commit_statuses import CommitStatus
from storage.tables.git.commits import SUMMARY_COLUMNS, Commit, CommitKeys, key_parameters, matches_keys

ParameterizedStatement = tuple[Select[Any], dict[str, Any]]
"""A constant statement and its parameters; constant, because constructing one costs more than running it."""

RUN_COLUMNS = ("project_id", "sha", "name", "ref", "status", "allow_failure", "created_at", "started_at", "finished_at")


CHECK_COLUMNS = ("id", *RUN_COLUMNS)
INDEXED_COMMIT = 2
"""The kind of the rows of `newest_and_summaries` that are commits."""


def newest_checks(commits: CommitKeys) -> ParameterizedStatement:
    """(kind, CHECK_COLUMNS, coverage) of the newest check of each name and ref of each commit, unordered.

    The kind is 0 for a build and 1 for a commit status, which has no coverage.
    """
    values = key_parameters(commits)
    return _newest("project_id" in values), values


def newest_and_summaries(commits: CommitKeys) -> ParameterizedStatement:
    """As `newest_checks`, with the indexed commits: the columns of a check, then SUMMARY_COLUMNS, of which one of the two is null.

    The kind of commits is INDEXED_COMMIT.
    """
    values = key_parameters(commits)
    return _newest_and_summaries("project_id" in values), values


def runs(commits: CommitKeys, limit: int) -> ParameterizedStatement:
    """(RUN_COLUMNS, check id, attempt, kind) for all attempts of builds and all commit statuses of these commits, at most `limit`.

    The check id is the same for all attempts of a build; the kind is 0 for a build and 1 for a commit status.
    """
    values = key_parameters(commits)
    return _runs("project_id" in values), {**values, "limit": limit}


@cache
def _newest(is_single_project: bool) -> Select[Any]:
    found = union_all(*_select_newest(is_single_project)).subquery()
    return mark_constant(select(*found.c))


@cache
def _newest_and_summaries(is_single_project: bool) -> Select[Any]:
    no_check = [null().label(name) for name in (*CHECK_COLUMNS[1:], "coverage")]
    indexed: Any = select(literal(INDEXED_COMMIT).label("kind"), col(Commit.id).label("id"), *no_check)
    indexed = indexed.where(matches_keys(Commit.project_id, Commit.oid, is_single_project))
    found = union_all(*_select_newest(is_single_project), indexed).subquery()
    statement: Any = select(*found.c, *map(col, SUMMARY_COLUMNS)).select_from(found)
    return mark_constant(statement.outerjoin(Commit, and_(found.c.kind == INDEXED_COMMIT, col(Commit.id) == found.c.id)))


def _select_newest(is_single_project: bool) -> list[Any]:
    """The SELECTs of (kind, CHECK_COLUMNS, coverage) of the newest builds and commit statuses, without the long columns of their rows."""
    tables: list[tuple[Any, Any, list[Any]]] = [
        (Build, col(Build.coverage), [is_current(), is_check()]),
        (CommitStatus, null(), []),
    ]
    found = []
    for kind, (table, coverage, conditions) in enumerate(tables):
        newest = (
            select(func.max(col(table.id)).label("id"))
            .where(matches_keys(table.project_id, table.sha, is_single_project), *conditions)
            .group_by(col(table.project_id), col(table.sha), col(table.name), col(table.ref))
            .subquery()
        )
        columns: list[Any] = [col(getattr(table, name)).label(name) for name in CHECK_COLUMNS]
        statement = select(literal(kind).label("kind"), *columns, coverage.label("coverage"))
        found.append(statement.join(newest, newest.c.id == col(table.id)))
    return found


@cache
def _runs(is_single_project: bool) -> Select[Any]:
    build_id = func.coalesce(col(Build.current_id), col(Build.id))
    tables: list[tuple[Any, Any, Any, list[Any]]] = [
        (Build, build_id, col(Build.attempt), [is_check()]),
        (CommitStatus, col(CommitStatus.id), literal(1), []),
    ]
    found = union_all(
        *(
            select(
                *(col(getattr(table, name)).label(name) for name in RUN_COLUMNS),
                check_id.label("check_id"),
                attempt.label("attempt"),
                literal(kind).label("kind"),
            ).where(matches_keys(table.project_id, table.sha, is_single_project), *conditions)
            for kind, (table, check_id, attempt, conditions) in enumerate(tables)
        )
    ).subquery()
    return mark_constant(select(*found.c).limit(bindparam("limit", type_=Integer)))
