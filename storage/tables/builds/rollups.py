"""The rollup of a commit's checks as an SQL expression, for filters and for thousands of commits in one statement.

It has the same rules as graph/rules/builds/rollups.py. The status of a check at an earlier time follows from its rows: it is pending from
`created_at`, running from `started_at` and finished from `finished_at`; a retry stores the previous attempt as a row. So the rollup at an
earlier time can be computed from the same rows.

The arguments are columns of tables or subqueries, not attributes of classes: with these, SQLAlchemy compiles each of the many subqueries as
one of the ORM, which takes twice as long.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ScalarSelect,
    Select,
    Subquery,
    and_,
    case,
    distinct,
    false,
    func,
    literal,
    literal_column,
    not_,
    null,
    or_,
    select,
    union_all,
)

from storage.database.column_types import enum_type
from storage.tables.base import table_of
from storage.tables.builds.builds import Build, is_check, is_current
from storage.tables.builds.commit_statuses import FINISHED, UNSUCCESSFUL, CheckStatus, CommitStatus

STATUS_TYPE = enum_type(CheckStatus)
EVIDENCE = {
    "none": (),
    "pending": (CheckStatus.PENDING,),
    "running": (CheckStatus.PENDING, CheckStatus.RUNNING),
    "failed": (CheckStatus.FAILED,),
    "canceled": (CheckStatus.CANCELED,),
}
"""The `RollupState` values other than success; a commit in such a state, except none, has a check with one of these statuses."""


def rollup_state(
    project_id: Any, oid: Any, outer: Any, *, moment: Any = None, names: Sequence[str] | None = None, builds: bool = True
) -> ScalarSelect[Any]:
    """The `RollupState` value of the commit in columns of the enclosing statement's `outer`, now or at the time `moment`.

    With `names` only these checks count; without `builds` only commit statuses count.
    """
    all_checks = _all_checks(project_id, oid, outer, moment, names, builds)
    newest, checks = _newest(all_checks), all_checks.subquery()
    state_of_newest = select(_state(newest)).select_from(newest).correlate(outer).scalar_subquery()
    # Most commits have one check of each name, and counting names takes a fraction of the time of finding the newest of each.
    state = case((func.count() == func.count(distinct(checks.c.name)), _state(checks)), else_=state_of_newest)
    return select(state).select_from(checks).correlate(outer).scalar_subquery()


def has_state(project_id: Any, oid: Any, outer: Any, states: Collection[str]) -> ColumnElement[bool]:
    """The condition that `rollup_state` is now one of these values, for filters of long lists.

    It computes the rollup only of commits with a check that did not succeed, which an index finds. So success is the absence of the
    other states.
    """
    if "success" in states:
        return not_(_has_unsuccessful_state(project_id, oid, outer, EVIDENCE.keys() - states))
    return _has_unsuccessful_state(project_id, oid, outer, states)


def _has_unsuccessful_state(project_id: Any, oid: Any, outer: Any, states: Collection[str]) -> ColumnElement[bool]:
    alternatives: list[ColumnElement[bool]] = []
    if "none" in states:
        alternatives.append(
            not_(or_(*(_exists(table, project_id, oid, outer, *_conditions(table), *_current(table)) for table in (Build, CommitStatus))))
        )
    if statuses := {status for state in states for status in EVIDENCE[state]}:
        evidence = or_(*(_exists(table, project_id, oid, outer, *_unsuccessful(table, statuses)) for table in (Build, CommitStatus)))
        alternatives.append(and_(evidence, rollup_state(project_id, oid, outer).in_(sorted(states))))
    return or_(false(), *alternatives)


def _unsuccessful(table: Any, statuses: Collection[CheckStatus]) -> list[ColumnElement[bool]]:
    """The conditions that a check has one of these statuses and is no allowed failure, which decides nothing."""
    status: Any = table_of(table).c.status
    allowed = and_(status.in_(_literals([CheckStatus.FAILED])), table_of(table).c.allow_failure)
    found = [status.in_(_literals(each for each in UNSUCCESSFUL if each in statuses)), not_(allowed)]
    # The condition of the partial index, which SQLite uses only for the same expression.
    return [*_current(table), status.in_(_literals(UNSUCCESSFUL)), *found]


def _literals(statuses: Iterable[CheckStatus]) -> list[Any]:
    return [literal_column(f"'{status.value}'") for status in statuses]


def has_checks(project_id: Any, oid: Any, outer: Any) -> ColumnElement[bool]:
    """The condition that the commit has a check; arguments as in `rollup_state`, of which it costs a fraction."""
    return or_(*(_exists(table, project_id, oid, outer, *_conditions(table)) for table in (Build, CommitStatus)))


def _exists(table: Any, project_id: Any, oid: Any, outer: Any, *conditions: Any) -> ColumnElement[bool]:
    """The condition that the commit has a row of `table` that meets the conditions."""
    found = select(literal(1)).where(table_of(table).c.project_id == project_id, table_of(table).c.sha == oid, *conditions)
    return found.correlate(outer).exists()


def last_finished_at(
    project_id: Any, oid: Any, outer: Any, *, names: Sequence[str] | None = None, builds: bool = True
) -> ScalarSelect[Any]:
    """The time when the last check finished; arguments as in `rollup_state`."""
    newest = _newest(_all_checks(project_id, oid, outer, None, names, builds))
    return select(func.max(newest.c.finished_at)).select_from(newest).correlate(outer).scalar_subquery()


def _newest(checks: CompoundSelect[Any]) -> Subquery:
    """The relevant checks: the newest of each name and ref, and of these the newest of each name."""
    rows = checks.subquery()
    latest = func.row_number().over(
        partition_by=[rows.c.kind, rows.c.name, rows.c.ref], order_by=(rows.c.check_id.desc(), rows.c.attempt.desc())
    )
    first = select(rows, latest.label("newest_of_ref")).subquery()
    among = func.row_number().over(
        partition_by=[first.c.name], order_by=(first.c.created_at.desc(), first.c.kind.desc(), first.c.check_id.desc())
    )
    second = select(first, among.label("newest_of_name")).where(first.c.newest_of_ref == 1).subquery()
    return select(second).where(second.c.newest_of_name == 1).subquery()


def _all_checks(project_id: Any, oid: Any, outer: Any, moment: Any, names: Sequence[str] | None, builds: bool) -> CompoundSelect[Any]:
    build, status = table_of(Build).c, table_of(CommitStatus).c
    of_builds = [_checks(Build, 0, func.coalesce(build.current_id, build.id), build.attempt, project_id, oid, outer, moment, names)]
    of_statuses = _checks(CommitStatus, 1, status.id, literal(1), project_id, oid, outer, moment, names)
    return union_all(*(of_builds if builds else []), of_statuses)


def _checks(
    table: Any, kind: int, check_id: Any, attempt: Any, project_id: Any, oid: Any, outer: Any, moment: Any, names: Sequence[str] | None
) -> Select[Any]:
    row = table_of(table).c
    conditions = [row.project_id == project_id, row.sha == oid, *_conditions(table)]
    if names is not None:
        conditions.append(row.name.in_(names))
    status: Any = row.status
    if moment is not None:
        conditions.append(row.created_at <= moment)
        ended = and_(status.in_(FINISHED), or_(row.finished_at.is_(None), row.finished_at <= moment))
        begun = case((row.started_at <= moment, literal(CheckStatus.RUNNING, STATUS_TYPE)), else_=literal(CheckStatus.PENDING, STATUS_TYPE))
        status = case((ended, status), else_=begun)
    else:
        conditions += _current(table)
    columns: tuple[Any, ...] = (
        literal(kind).label("kind"),
        check_id.label("check_id"),
        attempt.label("attempt"),
        status.label("status"),
        row.name,
        row.ref,
        row.allow_failure,
        row.created_at,
        row.finished_at,
    )
    return select(*columns).where(*conditions).correlate(outer)


def _conditions(table: Any) -> list[Any]:
    return [is_check()] if table is Build else []


def _current(table: Any) -> list[Any]:
    return [is_current()] if table is Build else []


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
