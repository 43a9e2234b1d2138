"""Merge requests of the past: what an imported history tells was merged, written down as merged merge requests.

No hook is told of them, they get no note, and close no issue; who follows merge requests hears that they are there. They have the
numbers that the messages give, where those are free.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert

from graph.context import Context
from graph.rules import changes, naming
from graph.rules.commits import in_repository
from storage import tables
from storage.git.merge import DiffStat, diff_stat
from storage.git.merges import Merged, merges
from storage.git.repository import Repository
from storage.tables import CounterKind, MergeRequestState, MergeStatus, counters, merge_requests, users

ROWS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Past:
    """A merge with what the rows need of it: who wrote it, when it began, how much it changed."""

    merged: Merged
    author_email: str
    begun_at: datetime
    stat: DiffStat | None


async def read(context: Context, project: tables.Project) -> list[Past]:
    """The merges that the default branch tells of, oldest first; to be read before the transaction. Raises Unavailable."""
    progress, loop = context.services.progress, asyncio.get_running_loop()

    def work(repository: Repository) -> list[Past]:
        tip = repository.resolve(project.default_branch or "")
        found: list[Past] = []
        for merged in merges(repository, tip) if tip is not None else ():
            head, first = repository.commit(merged.head), repository.commit(merged.oids[-1])
            stat = diff_stat(repository, merged.base, merged.head) if merged.base is not None else None
            begun = min(first.authored_at, merged.merge.committed_at)
            found.append(Past(merged, head.author_email.lower(), begun, stat))
            if progress is not None:
                loop.call_soon_threadsafe(progress, "merge requests", len(found), 0)
        return found

    return await in_repository(context, project.id, work)


async def write(context: Context, project: tables.Project, past: list[Past]) -> list[tables.MergeRequest]:
    """The rows of those merges that are not written yet, in the writing transaction."""
    known = set(await context.all(merge_requests.merged_by(project.id)))
    wanted = [each for each in past if each.merged.merge.oid not in known]
    taken = set(await context.all(merge_requests.iids(project.id)))
    accounts = await _accounts(context, wanted)
    following = max([*taken, *(each.merged.told.number or 0 for each in wanted)], default=0)
    rows, commits = [], []
    for each in wanted:
        number = each.merged.told.number
        if number is None or number in taken:
            following += 1
            number = following
        taken.add(number)
        rows.append(await context.add(_row(context, project, each, number, accounts)))
        commits += [{"merge_request_id": rows[-1].id, "position": place, "oid": oid} for place, oid in enumerate(each.merged.oids)]
    for start in range(0, len(commits), ROWS_AT_ONCE):
        await context.session.execute(insert(tables.MergeRequestCommit), commits[start : start + ROWS_AT_ONCE])
    if rows:
        raise_to = counters.at_least(context.services.database.dialect, project.id, CounterKind.MERGE_REQUEST, max(taken))
        await context.session.execute(raise_to)
        await changes.of_merge_requests(context, [(row.id, row.project_id, row.target_branch, None, row.state) for row in rows])
    return rows


def _row(context: Context, project: tables.Project, each: Past, number: int, accounts: Mapping[str, tables.User]) -> tables.MergeRequest:
    merged = each.merged
    merger = accounts.get(merged.merge.author_email.lower())
    author = accounts.get(each.author_email) or merger or context.viewer
    title = merged.told.title or merged.merge.message.partition("\n")[0]
    return tables.MergeRequest(
        project_id=project.id,
        source_project_id=project.id,
        iid=number,
        author_id=author.id,
        title=title.replace("\0", "")[: naming.LONGEST_NAME].strip() or f"Merge {merged.merge.short_oid}",
        state=MergeRequestState.MERGED,
        source_branch=merged.told.branch or f"merged-{number}",
        target_branch=project.default_branch or "",
        merge_status=MergeStatus.CAN_BE_MERGED,
        head_oid=merged.head,
        base_oid=merged.base,
        commit_count=len(merged.oids),
        files=each.stat.files if each.stat else None,
        additions=each.stat.additions if each.stat else None,
        deletions=each.stat.deletions if each.stat else None,
        merge_user_id=merger.id if merger else None,
        merge_commit_oid=merged.merge.oid,
        merged_at=merged.merge.committed_at,
        created_at=each.begun_at,
        updated_at=merged.merge.committed_at,
    )


async def _accounts(context: Context, past: list[Past]) -> dict[str, tables.User]:
    """The accounts of those who wrote and merged, by e-mail address in lower case."""
    emails = {email for each in past for email in (each.author_email, each.merged.merge.author_email.lower()) if email}
    found: dict[str, tables.User] = {}
    listed = sorted(emails)
    for start in range(0, len(listed), ROWS_AT_ONCE):
        found.update(map(tuple, await context.tuples(users.by_emails(listed[start : start + ROWS_AT_ONCE]))))
    return found
