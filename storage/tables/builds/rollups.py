"""The rollup of a commit's checks as an SQL expression, for filters and for thousands of commits in one statement.

It has the same rules as graph/rules/builds/rollups.py. The status of a check at an earlier time follows from its rows: it is pending from
`created_at`, running from `started_at` and finished from `finished_at`; a retry stores the previous attempt as a row. So the rollup at an
earlier time can be computed from the same rows.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Select, Subquery, and_, case, func, literal, null, or_, select, union_all
from sqlmodel import col

from storage.database.engine import enum_type
from storage.tables.builds.builds import Build, is_check
from storage.tables.builds.commit_statuses import FINISHED, CheckStatus, CommitStatus

STATUS_TYPE = enum_type(CheckStatus)


def rollup_state(
    project_id: Any, oid: Any, outer: Any, *, moment: Any = None, names: Sequence[str] | None = None, builds: bool = True
) -> ScalarSelect[Any]:
    """The `RollupState` value of the commit in columns of the enclosing statement's `outer`, now or at the time `moment`.

    With `names` only these checks count; without `builds` only commit statuses count.
    """
    newest = _newest(project_id, oid, (), outer, moment, names, builds)
    return select(_state(newest)).select_from(newest).correlate(outer).scalar_subquery()


def has_checks(outer: Any) -> ColumnElement[bool]:
    """The condition that the commit of the enclosing statement's `outer` has a check; it costs a fraction of `rollup_state`."""
    return or_(
        *(
            select(literal(1))
            .where(col(table.project_id) == col(outer.project_id), col(table.sha) == col(outer.oid), *_conditions(table))
            .correlate(outer)
            .exists()
            for table in (Build, CommitStatus)
        )
    )


def last_finished_at(
    project_id: Any, oid: Any, outer: Any, *, names: Sequence[str] | None = None, builds: bool = True
) -> ScalarSelect[Any]:
    """The time when the last check finished; arguments as in `rollup_state`."""
    newest = _newest(project_id, oid, (), outer, None, names, builds)
    return select(func.max(newest.c.finished_at)).select_from(newest).correlate(outer).scalar_subquery()


def _newest(project_id: Any, oid: Any, keys: Sequence[Any], outer: Any, moment: Any, names: Sequence[str] | None, builds: bool) -> Subquery:
    """The relevant checks: the newest of each name and ref, and of these the newest of each name."""
    build_id = func.coalesce(col(Build.current_id), col(Build.id))
    build_checks = [_checks(Build, 0, build_id, col(Build.attempt), project_id, oid, keys, outer, moment, names)] if builds else []
    rows = union_all(
        *build_checks, _checks(CommitStatus, 1, col(CommitStatus.id), literal(1), project_id, oid, keys, outer, moment, names)
    ).subquery()
    own = [rows.c[key.key] for key in keys]
    latest = func.row_number().over(
        partition_by=[*own, rows.c.kind, rows.c.name, rows.c.ref], order_by=(rows.c.check_id.desc(), rows.c.attempt.desc())
    )
    first = select(rows, latest.label("newest_of_ref")).subquery()
    own = [first.c[key.key] for key in keys]
    among = func.row_number().over(
        partition_by=[*own, first.c.name], order_by=(first.c.created_at.desc(), first.c.kind.desc(), first.c.check_id.desc())
    )
    second = select(first, among.label("newest_of_name")).where(first.c.newest_of_ref == 1).subquery()
    return select(second).where(second.c.newest_of_name == 1).subquery()


def _checks(
    table: Any,
    kind: int,
    build_id: Any,
    attempt: Any,
    project_id: Any,
    oid: Any,
    keys: Sequence[Any],
    outer: Any,
    moment: Any,
    names: Sequence[str] | None,
) -> Select[Any]:
    conditions = [col(table.project_id) == project_id, col(table.sha) == oid, *_conditions(table)]
    if names is not None:
        conditions.append(col(table.name).in_(names))
    status: Any = col(table.status)
    if moment is not None:
        conditions.append(col(table.created_at) <= moment)
        ended = and_(status.in_(FINISHED), or_(col(table.finished_at).is_(None), col(table.finished_at) <= moment))
        begun = case(
            (col(table.started_at) <= moment, literal(CheckStatus.RUNNING, STATUS_TYPE)), else_=literal(CheckStatus.PENDING, STATUS_TYPE)
        )
        status = case((ended, status), else_=begun)
    elif table is Build:
        conditions.append(col(Build.current_id).is_(None))
    columns = (
        literal(kind).label("kind"),
        build_id.label("check_id"),
        attempt.label("attempt"),
        status.label("status"),
        col(table.name),
        col(table.ref),
        col(table.allow_failure),
        col(table.created_at),
        col(table.finished_at),
    )
    statement: Select[Any] = select(*keys, *columns).where(*conditions)
    return statement.correlate(outer) if outer is not None else statement


def _conditions(table: Any) -> list[Any]:
    return [is_check()] if table is Build else []


def _state(checks: Subquery) -> Any:
    def number(*statuses: CheckStatus, also: Any = None) -> Any:
        chosen = checks.c.status.in_(statuses)
        return func.count(case((chosen if also is None else and_(chosen, also), 1), else_=null()))

    total = func.count()
    return case(
        (total == 0, "none"),
        (number(CheckStatus.PENDING) == total, "pending"),
        (number(CheckStatus.PENDING, CheckStatus.RUNNING) > 0, "running"),
        (number(CheckStatus.FAILED, also=~checks.c.allow_failure) > 0, "failed"),
        (number(CheckStatus.CANCELED) == total, "canceled"),
        else_="success",
    )
