"""The times from which lead times are computed: the first commit of a merge request, and the first note by another user."""

from typing import Any

from sqlalchemy import Select, bindparam, literal, select, union_all

from storage.database.statements.statement_cache import mark_constant
from storage.tables.issues.notes import Note, first_by_others
from storage.tables.merge_requests.merge_requests import MergeRequest, first_authored


def _first_times() -> Select[Any]:
    ids: Any = bindparam("ids", expanding=True)
    authored, answered = first_authored(ids).subquery(), first_by_others(Note.merge_request_id, MergeRequest, ids).subquery()
    parts = [select(each.c[0], literal(kind), each.c[1]) for kind, each in enumerate((authored, answered))]
    found: Select[Any] = select(*union_all(*parts).subquery().c)
    return mark_constant(found)


FIRST_TIMES = _first_times()
"""(merge request id, 0, author date of its first commit) and (merge request id, 1, time of the first note by another user) for `ids`; rows
without a time are missing. A constant."""
