"""Checks of commits: builds and commit statuses together."""

from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, and_, bindparam, func, literal, select, union_all
from sqlmodel import col

from storage.database.statements.statement_cache import mark_constant
from storage.tables.builds.builds import Build, is_check
from storage.tables.builds.commit_statuses import CommitStatus
from storage.tables.git.commits import SUMMARY_COLUMNS, Commit, CommitKeys, key_parameters, matches_keys

ParameterizedStatement = tuple[Select[Any], dict[str, Any]]
"""A constant statement and its parameters; constant, because constructing one costs more than running it."""

RUN_COLUMNS = ("project_id", "sha", "name", "ref", "status", "allow_failure", "created_at", "started_at", "finished_at")


def newest_checks(commits: CommitKeys) -> ParameterizedStatement:
    """(build, None) or (None, commit status) for the newest of each name and ref of each commit, unordered."""
    values = key_parameters(commits)
    return _newest("project_id" in values), values


def newest_and_summaries(commits: CommitKeys) -> ParameterizedStatement:
    """As `newest_checks`, with summaries of the indexed commits: (SUMMARY_COLUMNS, build, commit status), of which one is not null."""
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
    found = union_all(*_newest_ids(is_single_project)).subquery()
    return mark_constant(_join_checks(select(Build, CommitStatus).select_from(found), found))


@cache
def _newest_and_summaries(is_single_project: bool) -> Select[Any]:
    indexed: Any = select(literal(2).label("kind"), col(Commit.id).label("id")).where(
        matches_keys(Commit.project_id, Commit.oid, is_single_project)
    )
    found = union_all(indexed, *_newest_ids(is_single_project)).subquery()
    statement: Any = select(*map(col, SUMMARY_COLUMNS), Build, CommitStatus).select_from(found)
    return mark_constant(_join_checks(statement.outerjoin(Commit, and_(found.c.kind == 2, col(Commit.id) == found.c.id)), found))


def _newest_ids(is_single_project: bool) -> list[Any]:
    """The SELECTs of (kind, id) of the newest checks; the kind is 0 for a build and 1 for a commit status."""
    tables: list[tuple[Any, Any]] = [(Build, [col(Build.current_id).is_(None), is_check()]), (CommitStatus, [])]
    return [
        select(literal(kind).label("kind"), func.max(col(table.id)).label("id"))
        .where(matches_keys(table.project_id, table.sha, is_single_project), *conditions)
        .group_by(col(table.project_id), col(table.sha), col(table.name), col(table.ref))
        for kind, (table, conditions) in enumerate(tables)
    ]


def _join_checks(statement: Any, found: Any) -> Any:
    statement = statement.outerjoin(Build, and_(found.c.kind == 0, col(Build.id) == found.c.id))
    return statement.outerjoin(CommitStatus, and_(found.c.kind == 1, col(CommitStatus.id) == found.c.id))


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
