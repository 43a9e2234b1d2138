"""Merge requests by their branches: the statements for moved branches, and the commits of merge requests."""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    Select,
    String,
    Update,
    bindparam,
    delete,
    false,
    insert,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlmodel import col

from storage.database.column_types import metadata
from storage.database.statements.compiled_statements import literal_number
from storage.database.statements.statement_cache import mark_constant
from storage.tables.merge_requests.merge_requests import (
    UNCHECKED,
    MergeRequest,
    MergeRequestCommit,
    MergeRequestState,
    MergeStatus,
    is_open,
)

MAX_NAMES = 1000
"""With more branch names, a statement covers all branches of the project."""
MAX_MOVED = 5000
"""Maximum of merge requests from, and into, the branches of one push that are updated with them."""


def _open_from_and_into(project_id: Any, is_named: Callable[[Any], ColumnElement[bool]]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The conditions for open ones from, and into, the branches of a project whose names meet a condition."""
    row = MergeRequest
    return (
        is_open() & (col(row.source_project_id) == project_id) & is_named(col(row.source_branch)),
        is_open() & (col(row.project_id) == project_id) & is_named(col(row.target_branch)),
    )


def _open_of_branches(project_id: int, names: Collection[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The same for these branches; for very many, for all branches of the project."""
    return _open_from_and_into(project_id, lambda branch: branch.in_(names) if len(names) <= MAX_NAMES else true())


def open_for_update(project_id: int, names: Collection[str]) -> Select[int, int, str, MergeRequestState, bool]:
    """(id, target project, target branch, state, whether `mark_unchecked` changes more than UNCHECKED) of open ones of these branches.

    They are locked in the order of their ids.
    """
    row = MergeRequest
    source, target = _open_of_branches(project_id, names)
    cancels_waiting = source & col(row.merge_when_build_succeeds) if len(names) <= MAX_NAMES else false()
    # One without commits cannot be merged, but has no conflicts.
    has_conflicts = (col(row.merge_status) == MergeStatus.CANNOT_BE_MERGED) & col(row.commit_count).is_distinct_from(0)
    needs_notice = or_(has_conflicts, cancels_waiting)
    statement = select(col(row.id), col(row.project_id), col(row.target_branch), col(row.state), needs_notice).where(or_(source, target))
    return statement.order_by(col(row.id)).with_for_update(key_share=True)


def mark_unchecked(project_id: int, names: Collection[str]) -> tuple[Update, Update]:
    """The statements that mark the open ones from and into these branches as unchecked, and cancel waiting merges from them."""
    source, target = _open_of_branches(project_id, names)
    unchecked = update(MergeRequest).values(merge_status=MergeStatus.UNCHECKED)
    not_waiting = unchecked.values(merge_when_build_succeeds=False, merge_params=null(), merge_user_id=None)
    first = not_waiting if len(names) <= MAX_NAMES else unchecked
    return first.where(source), unchecked.where(target, col(MergeRequest.merge_status) != MergeStatus.UNCHECKED)


def mark_all_unchecked(project_ids: Any) -> Update:
    """The statement that marks the open ones of these projects (a query of their ids) as unchecked."""
    row = MergeRequest
    among = col(row.project_id).in_(project_ids), is_open(), col(row.merge_status) != MergeStatus.UNCHECKED
    return update(row).where(*among).values(merge_status=MergeStatus.UNCHECKED).execution_options(synchronize_session=False)


def mark_source_deleted(source_project_ids: Collection[int]) -> Update:
    """The statement that marks open ones from these projects into others as unchecked, unless they cannot be merged anyway, and cancels
    waiting merges."""
    row = MergeRequest
    from_others = col(row.source_project_id).in_(source_project_ids) & col(row.project_id).not_in(source_project_ids)
    is_affected = or_(col(row.merge_status) == MergeStatus.CAN_BE_MERGED, col(row.merge_when_build_succeeds))
    unchecked = update(row).values(merge_status=MergeStatus.UNCHECKED)
    not_waiting = unchecked.values(merge_when_build_succeeds=False, merge_params=null(), merge_user_id=None)
    return not_waiting.where(from_others, is_open(), is_affected).execution_options(synchronize_session=False)


def open_from(project_id: int, names: Collection[str]) -> Select[MergeRequest]:
    """Open ones from these branches, the oldest first, at most MAX_MOVED."""
    source, _ = _open_of_branches(project_id, names)
    return select(MergeRequest).where(source).order_by(col(MergeRequest.id)).limit(literal_number(MAX_MOVED))


def open_into(project_id: int, names: Collection[str]) -> Select[MergeRequest]:
    """Open ones into these branches, the oldest first, at most MAX_MOVED."""
    _, target = _open_of_branches(project_id, names)
    return select(MergeRequest).where(target).order_by(col(MergeRequest.id)).limit(literal_number(MAX_MOVED))


def _open_of_moved(is_moved: Callable[[Any], ColumnElement[bool]]) -> Select[MergeRequest]:
    # Each by its own index: for both in one condition, the databases' plans read the whole table.
    ids = union_all(*(select(col(MergeRequest.id)).where(each) for each in _open_from_and_into(bindparam("project_id"), is_moved)))
    found: Select[MergeRequest] = select(MergeRequest).where(col(MergeRequest.id).in_(ids))
    return mark_constant(found.order_by(col(MergeRequest.id)).limit(literal_number(MAX_MOVED)))


_NAMES: Any = bindparam("names", expanding=True)
OPEN_OF_MOVED = _open_of_moved(lambda branch: branch.in_(_NAMES))
"""Open ones from or into the branches `names` of the project `project_id`, the oldest first, at most MAX_MOVED; a constant."""
OPEN_OF_ONE_MOVED = _open_of_moved(lambda branch: branch == select(bindparam("name", type_=String)).scalar_subquery())
"""The same of the branch `name`, as most pushes and merges move one. With a list of one, or a name that it sees, PostgreSQL would plan at
every call, because few merge requests have it."""


def _none_open() -> Select[int]:
    # Each by its own index, as above.
    conditions = _open_from_and_into(bindparam("of_project"), lambda branch: branch == bindparam("branch"))
    return select(literal_column("1")).where(*(~select(col(MergeRequest.id)).where(each).exists() for each in conditions))


NONE_OPEN = _none_open()
"""Returns 1 if no open ones are from or into the branch `branch` of the project `of_project`, otherwise no row; a constant."""


def unchecked(after_id: int, limit: int) -> Select[MergeRequest]:
    """Unchecked open ones after this id, ordered by id."""
    statement: Select[MergeRequest] = select(MergeRequest).where(UNCHECKED, col(MergeRequest.id) > after_id)
    return statement.order_by(col(MergeRequest.id)).limit(limit)


def oids_of(merge_request_ids: Collection[int]) -> Select[int, str]:
    """(merge request id, commit) of the commits of merge requests."""
    row = MergeRequestCommit
    return select(col(row.merge_request_id), col(row.oid)).where(col(row.merge_request_id).in_(merge_request_ids))


def delete_commits(merge_request_ids: Collection[int]) -> Delete:
    return delete(MergeRequestCommit).where(col(MergeRequestCommit.merge_request_id).in_(merge_request_ids))


def insert_commits() -> Insert:
    """The INSERT of the commits of merge requests, executed with the rows."""
    return insert(metadata.tables[MergeRequestCommit.__tablename__])
