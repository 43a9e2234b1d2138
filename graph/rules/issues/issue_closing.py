"""Closing of issues by commits and merge requests: "Fixes #12 and group/project#3" (docs/wire-facts.md 12).

The references of a merge request are stored in `closings`, by number: the messages of its commits and its description are parsed when
they change, so that a list of any length takes one statement. Whether the viewer may see or close an issue is checked when the
references are read or applied.

A merge closes issues in the name of the user who merges. A push to the default branch closes them in the name of the commit's author,
if the email address belongs to an account that may close them, else of the pusher; but only issues that the pusher may close, because
anyone can write any author into a commit.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from graph.context import Context
from graph.events import object_payloads
from graph.events.payloads import full_path, get_existing
from graph.events.publisher import publish_all
from graph.rules import lookup
from graph.rules.accounts.viewer_contexts import build_user_contexts
from graph.rules.events import activities, change_records
from graph.rules.issues import issues
from graph.rules.notes import mentions, system_notes
from graph.rules.notes.mentions import ISSUE, MAX_MENTIONS, MAX_SCANNED_CHARACTERS, PATH_SEGMENT, Mention, MentionTarget, parse_mentions
from graph.rules.notes.system_notes import NoteSource
from graph.rules.permissions.policy import Action, can
from graph.rules.permissions.policy_conditions import allowed_project_conditions
from graph.rules.states import IssueTransition
from storage import tables
from storage.git.commits import GitCommit
from storage.tables import IssueState, UserState
from storage.tables.accounts import users
from storage.tables.issues import closings
from storage.tables.issues import issues as issue_statements
from storage.tables.projects import projects

MAX_CLOSED_ISSUES = 200
"""Issues that the commits of a merge request can close; its description can close as many."""
MAX_MERGE_REQUESTS = 100
"""Merge requests that are shown for an issue."""
MENTIONS_PER_BATCH = 2_000
"""Mentions of a push that are resolved together; a statement has a limited number of parameters."""

CLOSING_KEYWORD = r"(?:[Cc]los(?:e[sd]?|ing)|[Ff]ix(?:e[sd]|ing)?|[Rr]esolv(?:e[sd]?|ing)) +"
SEPARATOR_PATTERN = re.compile(r", *| and +")


class CommitReferences(NamedTuple):
    """A commit, the issues it closes and the objects it mentions."""

    commit: GitCommit
    closes: list[Mention]
    mentions: list[Mention]


def parse_closing_references(string: str, external_url: str) -> list[Mention]:
    """The issues that a string closes, in order, without duplicates.

    `external_url` is the URL of this instance. Each keyword and each reference is matched only where it begins, and no part of the
    pattern can match the same characters in two ways, so the time is proportional to the length.

    >>> parse_closing_references("Fixes #2, issue Group/App#3", "http://forge.example")
    [Mention(project=None, iid=2, sigil='#'), Mention(project=('group', 'app'), iid=3, sigil='#')]
    """
    start, reference = _patterns(external_url)
    found: dict[Mention, None] = {}
    position = 0
    while keyword := start.search(string, position, MAX_SCANNED_CHARACTERS):
        position = keyword.end()
        while match := reference.match(string, position, MAX_SCANNED_CHARACTERS):
            position = match.end()
            if (position == MAX_SCANNED_CHARACTERS < len(string)) or len(found) == MAX_MENTIONS:
                # A number cut off by the limit would refer to another issue.
                return list(found)
            iid = lookup.parse_id(match["iid"] or match["number"])
            names = match["namespace"] or match["group"], match["path"] or match["project"]
            if iid is not None:
                found[Mention((names[0].lower(), names[1].lower()) if names[0] else None, iid)] = None
            separator = SEPARATOR_PATTERN.match(string, position, MAX_SCANNED_CHARACTERS)
            if separator is None:
                break
            position = separator.end()
    return list(found)


@lru_cache(maxsize=8)
def _patterns(external_url: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The patterns of a keyword before a reference, and of a reference."""
    address = re.escape(external_url.partition("://")[2].rstrip("/"))
    short = rf"(?:(?P<namespace>{PATH_SEGMENT})/(?P<path>{PATH_SEGMENT}))?#(?P<iid>[1-9][0-9]{{0,9}})"
    long = rf"https?://{address}/(?P<group>{PATH_SEGMENT})/(?P<project>{PATH_SEGMENT})/issues/(?P<number>[1-9][0-9]{{0,9}})"
    reference = rf"(?:issues? +)?(?:{long}|{short})(?!\w)"
    return re.compile(rf"{CLOSING_KEYWORD}(?={reference})"), re.compile(reference)


# References of merge requests


async def record_closings(context: Context, messages: Iterable[tuple[tables.MergeRequest, Iterable[str]]]) -> None:
    """Replace the stored references of merge requests by those in the descriptions and in the messages of all commits.

    Messages are newest first. The number of statements does not depend on the number of merge requests.
    """
    await _replace_closings(context, [(row, {True: [row.description or ""], False: some}) for row, some in messages])


async def record_description_closings(context: Context, merge_request: tables.MergeRequest) -> None:
    """Store the references in the description, replacing earlier ones of the description."""
    await _replace_closings(context, [(merge_request, {True: [merge_request.description or ""]})])


async def load_closing_issues(context: Context, merge_request: tables.MergeRequest) -> list[tables.Issue]:
    """The issues that merging would close, or that a merged request referred to, by id.

    Only those that the viewer may see. One statement for all merge requests of a level.
    """

    async def fetch(ids: list[int]) -> dict[int, list[tables.Issue]]:
        conditions = allowed_project_conditions(context, Action.READ_ISSUE)
        found: dict[int, dict[int, tables.Issue]] = {}
        for key, issue in await context.tuples(closings.issues_of(ids, *conditions)):
            found.setdefault(key, {})[issue.id] = issue
        return {key: list(named.values()) for key, named in found.items()}

    return await context.loader(closings.issues_of, fetch).get(merge_request.id) or []


async def load_closing_merge_requests(context: Context, issue: tables.Issue) -> list[tables.MergeRequest]:
    """The open merge requests that would close the issue, and merged ones that referred to it.

    Newest first. Only those that the viewer may see, among the newest MAX_MERGE_REQUESTS. One statement for all issues of a level.
    """

    async def fetch(ids: list[int]) -> dict[int, list[tables.MergeRequest]]:
        conditions = allowed_project_conditions(context, Action.READ_MERGE_REQUEST)
        found: dict[int, list[tables.MergeRequest]] = {}
        for key, row in await context.tuples(closings.merge_requests_of(ids, MAX_MERGE_REQUESTS, *conditions)):
            found.setdefault(key, []).append(row)
        return found

    return await context.loader(closings.merge_requests_of, fetch).get(issue.id) or []


async def _replace_closings(context: Context, bodies: Sequence[tuple[tables.MergeRequest, Mapping[bool, Iterable[str]]]]) -> None:
    """Replace the stored references; the bodies of each merge request are keyed by whether they are descriptions, the same for all."""
    url = context.services.external_url
    named = [(row, in_description, _collect_references(some, url)) for row, parts in bodies for in_description, some in parts.items()]
    paths = await _lock_named_projects(context, {each.project for *_, some in named for each in some if each.project is not None})
    now = {
        (row.id, in_description, target_project_id, each.iid)
        for row, in_description, some in named
        for each in some
        if (target_project_id := row.project_id if each.project is None else paths.get(each.project)) is not None
    }
    replaced = {in_description for _, in_description, _ in named}
    stored = map(tuple, await context.tuples(closings.of_merge_requests([row.id for row, _ in bodies])))
    before = {found for found in stored if found[1] in replaced}
    if outdated := {found[0] for found in before - now}:
        await context.session.execute(closings.delete_closings(sorted(outdated), replaced))
        before = {found for found in before if found[0] not in outdated}
    if added := sorted(now - before):
        keys = ("merge_request_id", "in_description", "project_id", "iid")
        rows = [dict(zip(keys, values, strict=True)) for values in added]
        await context.session.execute(closings.insert_closings(context.services.database.dialect), rows)
    context.loaders.pop(closings.issues_of, None)
    context.loaders.pop(closings.merge_requests_of, None)


async def _lock_named_projects(context: Context, paths: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of existing projects by their path keys. They are not deleted before the rows that refer to them are committed."""
    found = await mentions.load_project_ids(context, paths)
    existing_ids = set(await context.all(projects.ids_for_key_share(sorted(set(found.values()))))) if found else set()
    return {path: key for path, key in found.items() if key in existing_ids}


def _collect_references(bodies: Iterable[str], external_url: str) -> set[Mention]:
    named: set[Mention] = set()
    for body in bodies:
        named.update(parse_closing_references(body, external_url))
        if len(named) >= MAX_CLOSED_ISSUES:
            break
    return named


# Closing


async def close_after_merge(context: Context, merge_request: tables.MergeRequest) -> None:
    """Close the issues of a merged request that the viewer, who merged it, may close.

    Call it when the row is merged and before `ref_updates.apply_updates` for the target, which would close the same issues by
    commits.
    """
    await close_after_merges(context, [merge_request])


async def close_after_merges(context: Context, merge_requests: Sequence[tables.MergeRequest]) -> None:
    """As `close_after_merge`; statements depend on the number of target projects only."""
    by_id = {row.id: row for row in merge_requests}
    closes: dict[int, list[tuple[NoteSource, int]]] = {}
    for key, issue in await context.tuples(closings.issues_of(list(by_id))):
        closes.setdefault(by_id[key].project_id, []).append((NoteSource.of(by_id[key]), issue.id))
    for project_id, requests in closes.items():
        await _close_issues(context, project_id, requests)


async def close_after_push(context: Context, project: tables.Project, commits: Sequence[GitCommit]) -> None:
    """Apply the references in messages of new commits: close issues, and note mentions.

    The commits are new to the default branch, newest first. Commits without references take no statement; the number of statements does
    not depend on the number of commits in a batch.
    """
    if context.viewer_or_none is None:
        # An update without a user has no permissions to act with.
        return
    url = context.services.external_url
    # Large inputs are parsed in a thread, so that the event loop is not blocked.
    is_large = sum(min(len(commit.message), MAX_SCANNED_CHARACTERS) for commit in commits) > MAX_SCANNED_CHARACTERS
    for batch in await asyncio.to_thread(_batch_commits, url, commits) if is_large else _batch_commits(url, commits):
        await _apply_references(context, project, batch)


def _batch_commits(external_url: str, commits: Sequence[GitCommit]) -> list[list[CommitReferences]]:
    """The commits that have references, oldest first, in batches."""
    batches: list[list[CommitReferences]] = []
    size = MENTIONS_PER_BATCH
    for commit in reversed(commits):
        item = CommitReferences(commit, parse_closing_references(commit.message, external_url), parse_mentions(commit.message))
        if item.closes or item.mentions:
            if size >= MENTIONS_PER_BATCH:
                batches.append([])
                size = 0
            batches[-1].append(item)
            size += len(item.closes) + len(item.mentions)
    return batches


async def _apply_references(context: Context, project: tables.Project, items: list[CommitReferences]) -> None:
    resolved = await mentions.resolve_targets(context, project.id, {each for item in items for each in (*item.closes, *item.mentions)})
    if not resolved:
        return
    authors = await _author_contexts(context, items, {target.project_id for target in resolved.values()})
    sources = [NoteSource.of_commit(project.id, item.commit.oid, authors.get(item.commit.author_email.lower())) for item in items]
    closing_requests = [
        (source, resolved[each].id) for source, item in zip(sources, items, strict=True) for each in item.closes if each in resolved
    ]
    closed = await _close_issues(context, project.id, closing_requests)
    # The note about closing already names the commit, so it gets no mention.
    remaining_mentions = [
        (
            source,
            [each for each in item.mentions if each in resolved and (source.key, resolved[each].kind, resolved[each].id) not in closed],
        )
        for source, item in zip(sources, items, strict=True)
    ]
    await system_notes.write_mentions_of_sources(context, project.id, remaining_mentions, resolved)


async def _author_contexts(context: Context, items: list[CommitReferences], project_ids: set[int]) -> dict[str, Context]:
    """Contexts of the accounts that wrote the commits, by email in lower case, without the viewer's own."""
    emails = {item.commit.author_email.lower() for item in items}
    found = {
        email: user
        for email, user in await context.tuples(users.by_emails(sorted(emails)))
        if user.state is UserState.ACTIVE and user.id != context.viewer.id
    }
    contexts = await build_user_contexts(context, list({user.id: user for user in found.values()}.values()), project_ids)
    return {email: contexts[user.id] for email, user in found.items()}


async def _close_issues(
    context: Context, project_id: int, requests: Sequence[tuple[NoteSource, int]]
) -> set[tuple[str, mentions.MentionableKind, int]]:
    """Close the open issues that the viewer may close, each for the first source that refers to it.

    Returns what was closed, as (key of the source, kind, id).
    """
    if not requests:
        return set()
    locked = {issue.id: issue for issue in await context.all(issue_statements.open_for_update(sorted({key for _, key in requests})))}
    await context.rows_by_id(tables.Project).get_many({issue.project_id for issue in locked.values()})
    closed: list[tuple[NoteSource, Context, tables.Issue]] = []
    for source, key in requests:
        issue = locked.get(key)
        if issue is None or not await can(context, Action.UPDATE_ISSUE, issue):
            continue
        author = source.author
        author_context = author if author is not None and await can(author, Action.UPDATE_ISSUE, issue) else context
        if issues.change_state(context, issue, IssueTransition.CLOSE):
            issues.touch(context, issue)
            closed.append((source, author_context, issue))
    if not closed:
        return set()
    await context.session.flush()
    path = None
    if any(issue.project_id != project_id for _, _, issue in closed):
        path = await full_path(context, await get_existing(context, tables.Project, project_id))
    rows = []
    for source, author_context, issue in closed:
        by = source.describe(None if issue.project_id == project_id else path)
        source_columns = {"source_project_id": project_id, "source": system_notes.build_change_source(source, context.now())}
        rows.append(
            system_notes.build_note(
                author_context,
                MentionTarget(ISSUE, issue.id, issue.project_id),
                system_notes.format_status(issue.state, by),
                **source_columns,
            )
        )
    system_notes.write_notes(context, rows)
    change_records.record_issues(context, [(issue, IssueState.OPENED) for _, _, issue in closed])
    activities.record_closed_issues(context, [(author_context.viewer.id, issue) for _, author_context, issue in closed])
    await publish_all(context, object_payloads.IssueChanged, [(author_context, issue, "close") for _, author_context, issue in closed])
    return {(source.key, ISSUE, issue.id) for source, _, issue in closed}
