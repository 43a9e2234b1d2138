"""Merge requests recovered from imported history: past merges are stored as merged merge requests.

They publish no hook events, get no notes and close no issues, but subscribers to merge requests receive them. They have the numbers in
the merge messages if those are free.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert

from graph.context import Context
from graph.rules import validation
from graph.rules.events import change_records
from storage import tables
from storage.git.history.merge_history import MergedBranch, read_merges
from storage.git.merge import DiffTotals, diff_stats
from storage.git.repository import Repository
from storage.tables import CounterKind, MergeRequestState, MergeStatus, counters
from storage.tables.accounts import users
from storage.tables.merge_requests import merge_requests

ROWS_PER_STATEMENT = 5000


@dataclass(frozen=True, slots=True)
class PastMerge:
    """A merge with the values of its row: its author, when it began, and its diff totals."""

    merged: MergedBranch
    author_email: str
    started_at: datetime
    stat: DiffTotals | None


def read_past_merges(repository: Repository, oids: Sequence[str], known: Collection[str]) -> list[PastMerge]:
    """The merged branches of these consecutive merge commits, without those that are `known`."""
    found = [each for each in read_merges(repository, oids) if each is not None and each.merge.oid not in known]
    with_base = [(each.base, each.head) for each in found if each.base is not None]
    stats = iter(diff_stats(repository, with_base))
    past_merges = []
    for each in found:
        head, first = repository.commit(each.head), repository.commit(each.oids[-1])
        started_at = min(first.authored_at, each.merge.committed_at)
        past_merges.append(PastMerge(each, head.author_email.lower(), started_at, next(stats) if each.base is not None else None))
    return past_merges


async def load_known_merges(context: Context, project_id: int, oids: Sequence[str]) -> set[str | None]:
    """Those of these merge commits that have a merge request."""
    return set(await context.all(merge_requests.known_merge_commits(project_id, list(oids))))


async def write_past_merges(context: Context, project: tables.Project, past_merges: Sequence[PastMerge], highest: int) -> None:
    """Insert the rows in a constant number of statements per batch.

    Rows without a free number of their own get numbers above `highest`, the highest number in the whole history.
    """
    if not past_merges:
        return
    dialect = context.services.database.dialect
    # Locks the counter, so that no other transaction can allocate these numbers.
    await context.session.execute(counters.raise_to(dialect, project.id, CounterKind.MERGE_REQUEST, highest))
    requested_numbers = [each.merged.message.number for each in past_merges if each.merged.message.number is not None]
    taken = set(await context.all(merge_requests.existing_iids(project.id, requested_numbers)))
    accounts = await _load_accounts(context, past_merges)
    numbers: list[int | None] = []
    for each in past_merges:
        number = each.merged.message.number
        numbers.append(None if number is None or number in taken else number)
        taken.add(number or 0)
    if missing := numbers.count(None):
        last = int((await context.session.execute(counters.advance(dialect, project.id, CounterKind.MERGE_REQUEST, missing))).scalar_one())
        following = iter(range(last - missing + 1, last + 1))
        numbers = [next(following) if number is None else number for number in numbers]
    rows = [_build_row(context, project, each, number or 0, accounts) for each, number in zip(past_merges, numbers, strict=True)]
    await context.session.execute(insert(tables.MergeRequest), [row.model_dump(exclude={"id"}) for row in rows])
    # On SQLite, returning the keys of many rows would take one statement per row.
    ids_by_iid = dict(map(tuple, await context.tuples(merge_requests.ids_by_iid(project.id, [row.iid for row in rows]))))
    ids = [ids_by_iid[row.iid] for row in rows]
    commits = [
        {"merge_request_id": key, "position": position, "oid": oid}
        for key, each in zip(ids, past_merges, strict=True)
        for position, oid in enumerate(each.merged.oids)
    ]
    for start in range(0, len(commits), ROWS_PER_STATEMENT):
        await context.session.execute(insert(tables.MergeRequestCommit), commits[start : start + ROWS_PER_STATEMENT])
    changed = [(key, row.project_id, row.target_branch, None, row.state) for key, row in zip(ids, rows, strict=True)]
    await change_records.record_merge_requests(context, changed)


def _build_row(
    context: Context, project: tables.Project, each: PastMerge, number: int, accounts: Mapping[str, tables.User]
) -> tables.MergeRequest:
    merged = each.merged
    merger = accounts.get(merged.merge.author_email.lower())
    author = accounts.get(each.author_email) or merger or context.viewer
    title = merged.message.title or merged.merge.message.partition("\n")[0]
    return tables.MergeRequest(
        project_id=project.id,
        source_project_id=project.id,
        iid=number,
        author_id=author.id,
        title=title.replace("\0", "")[: validation.MAX_NAME_LENGTH].strip() or f"Merge {merged.merge.short_oid}",
        state=MergeRequestState.MERGED,
        source_branch=merged.message.branch or f"merged-{number}",
        target_branch=project.default_branch or "",
        merge_status=MergeStatus.CAN_BE_MERGED,
        head_oid=merged.head,
        base_oid=merged.base,
        commit_count=merged.count,
        files=each.stat.files if each.stat else None,
        additions=each.stat.additions if each.stat else None,
        deletions=each.stat.deletions if each.stat else None,
        merge_user_id=merger.id if merger else None,
        merge_commit_oid=merged.merge.oid,
        merged_at=merged.merge.committed_at,
        created_at=each.started_at,
        updated_at=merged.merge.committed_at,
    )


async def _load_accounts(context: Context, past_merges: Sequence[PastMerge]) -> dict[str, tables.User]:
    """The accounts of authors and mergers, by email address in lower case."""
    emails = {email for each in past_merges for email in (each.author_email, each.merged.merge.author_email.lower()) if email}
    found: dict[str, tables.User] = {}
    listed = sorted(emails)
    for start in range(0, len(listed), ROWS_PER_STATEMENT):
        found.update(map(tuple, await context.tuples(users.by_emails(listed[start : start + ROWS_PER_STATEMENT]))))
    return found
