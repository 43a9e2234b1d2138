"""Issues that are closed by what commits and merge requests say of them: "Fixes #12, group/project#3 and #4" (wire facts 12).

What a merge request would close is kept in `closings`, as numbers: its commits' messages and its description are read when they change,
and a list of any length is one statement. Who may see an issue, and who may close it, is looked at when it is asked or done.

By a merge the issues are closed as whoever merges. By a push to the default branch they are closed as the author of the commit, where the
e-mail in it is an account's that may do so, else as the pusher; but in any case only those that the pusher may close, for what
stands in a commit is whatever its writer likes.
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
from graph.rules.issues import issues
from graph.rules.notes import mentions, system_notes
from graph.rules.notes.mentions import ISSUE, MAX_MENTIONS, MAX_SCANNED_CHARACTERS, PATH_SEGMENT, Mention, MentionTarget, parse_mentions
from graph.rules.notes.system_notes import NoteSource
from graph.rules.policy import Action, allowed_project_conditions, can
from graph.rules.states import IssueTransition
from storage import tables
from storage.git.commits import GitCommit
from storage.tables import UserState, closings, projects, users
from storage.tables import issues as issue_statements

MAX_CLOSED_ISSUES = 200
"""Issues that the commits of a merge request, and as many that its description, can close."""
MAX_MERGE_REQUESTS = 100
"""Merge requests that are shown of an issue."""
MENTIONS_PER_BATCH = 2_000
"""Mentions of a push that are looked up together: the parameters of a statement are limited."""

CLOSING_KEYWORD = r"(?:[Cc]los(?:e[sd]?|ing)|[Ff]ix(?:e[sd]|ing)?|[Rr]esolv(?:e[sd]?|ing)) +"
SEPARATOR_PATTERN = re.compile(r", *| and +")


class CommitReferences(NamedTuple):
    """A commit with what it closes and what it mentions."""

    commit: GitCommit
    closes: list[Mention]
    mentions: list[Mention]


def parse_closing_references(string: str, external_url: str) -> list[Mention]:
    """The issues that a text says it closes, in its order, each once. `external_url` is the address of this instance.

    Each keyword and each reference is matched where it begins and nowhere else, and no part of the pattern can match the same text in
    two ways, so reading takes time in line with the length.

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
                # A number that the end cuts off would be another one.
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
    """A keyword in front of a reference, and a reference."""
    address = re.escape(external_url.partition("://")[2].rstrip("/"))
    short = rf"(?:(?P<namespace>{PATH_SEGMENT})/(?P<path>{PATH_SEGMENT}))?#(?P<iid>[1-9][0-9]{{0,9}})"
    long = rf"https?://{address}/(?P<group>{PATH_SEGMENT})/(?P<project>{PATH_SEGMENT})/issues/(?P<number>[1-9][0-9]{{0,9}})"
    reference = rf"(?:issues? +)?(?:{long}|{short})(?!\w)"
    return re.compile(rf"{CLOSING_KEYWORD}(?={reference})"), re.compile(reference)


# What merge requests would close


async def record_closings(context: Context, merge_request: tables.MergeRequest, messages: Iterable[str]) -> None:
    """Keeps what the description of a merge request and the messages of all its commits, newest first, say it closes, instead of what
    they said before."""
    await _replace_closings(context, merge_request, {True: [merge_request.description or ""], False: messages})


async def record_description_closings(context: Context, merge_request: tables.MergeRequest) -> None:
    """The same for its description alone."""
    await _replace_closings(context, merge_request, {True: [merge_request.description or ""]})


async def load_closing_issues(context: Context, merge_request: tables.MergeRequest) -> list[tables.Issue]:
    """The issues that merging would close, of those that the viewer may see, by their ids; of one that is merged, those that it named.

    One statement for all merge requests of a level.
    """

    async def fetch(ids: list[int]) -> dict[int, list[tables.Issue]]:
        conditions = allowed_project_conditions(context, Action.READ_ISSUE)
        found: dict[int, dict[int, tables.Issue]] = {}
        for key, issue in await context.tuples(closings.issues_of(ids, *conditions)):
            found.setdefault(key, {})[issue.id] = issue
        return {key: list(named.values()) for key, named in found.items()}

    return await context.loader(closings.issues_of, fetch).get(merge_request.id) or []


async def load_closing_merge_requests(context: Context, issue: tables.Issue) -> list[tables.MergeRequest]:
    """The open merge requests that would close the issue, and the merged ones that named it, of those that the viewer may see: of the
    newest MAX_MERGE_REQUESTS, the newest first. One statement for all issues of a level."""

    async def fetch(ids: list[int]) -> dict[int, list[tables.MergeRequest]]:
        conditions = allowed_project_conditions(context, Action.READ_MERGE_REQUEST)
        found: dict[int, list[tables.MergeRequest]] = {}
        for key, row in await context.tuples(closings.merge_requests_of(ids, MAX_MERGE_REQUESTS, *conditions)):
            found.setdefault(key, []).append(row)
        return found

    return await context.loader(closings.merge_requests_of, fetch).get(issue.id) or []


async def _replace_closings(context: Context, merge_request: tables.MergeRequest, bodies: Mapping[bool, Iterable[str]]) -> None:
    """`bodies` by whether they are descriptions."""
    named = {described: _collect_references(some, context.services.external_url) for described, some in bodies.items()}
    paths = await mentions.load_project_ids(context, {each.project for some in named.values() for each in some if each.project is not None})
    if paths:
        # Nobody removes them until the rows that name them are kept.
        existing_ids = set(await context.all(projects.ids_for_key_share(sorted(set(paths.values())))))
        paths = {path: key for path, key in paths.items() if key in existing_ids}
    now = {
        (described, target_project_id, each.iid)
        for described, some in named.items()
        for each in some
        if (target_project_id := merge_request.project_id if each.project is None else paths.get(each.project)) is not None
    }
    before = {found for row in await context.tuples(closings.of_merge_request(merge_request.id)) if (found := tuple(row))[0] in bodies}
    if before - now:
        await context.session.execute(closings.delete_closings(merge_request.id, list(bodies)))
        before = set()
    if now - before:
        await context.session.execute(closings.insert_closings(context.services.database.dialect, merge_request.id, now - before))
    context.loaders.pop(closings.issues_of, None)
    context.loaders.pop(closings.merge_requests_of, None)


def _collect_references(bodies: Iterable[str], external_url: str) -> set[Mention]:
    named: set[Mention] = set()
    for text in bodies:
        named.update(parse_closing_references(text, external_url))
        if len(named) >= MAX_CLOSED_ISSUES:
            break
    return named


# Closing


async def close_after_merge(context: Context, merge_request: tables.MergeRequest) -> None:
    """Closes what the merge request closes, as far as the viewer, who merged it, may.

    To be called when the row says merged, and before `pushing.pushed` for the target: that would close the same by commits.
    """
    found = [issue for _, issue in await context.tuples(closings.issues_of([merge_request.id]))]
    await _close_issues(context, merge_request.project_id, [(NoteSource.of(merge_request), issue.id) for issue in found])


async def close_after_push(context: Context, project: tables.Project, commits: Sequence[GitCommit]) -> None:
    """What follows from the messages of commits that came to the default branch, newest first: issues are closed, and what is
    mentioned is told. Commits that name nothing cost no statement, and many that name something cost what one does."""
    if context.viewer_or_none is None:
        # Nobody pushed, so there are no rights to act by.
        return
    url = context.services.external_url
    # In a thread where there is much to read, since others are to be answered meanwhile.
    is_large = sum(min(len(commit.message), MAX_SCANNED_CHARACTERS) for commit in commits) > MAX_SCANNED_CHARACTERS
    for batch in await asyncio.to_thread(_batch_commits, url, commits) if is_large else _batch_commits(url, commits):
        await _apply_references(context, project, batch)


def _batch_commits(external_url: str, commits: Sequence[GitCommit]) -> list[list[CommitReferences]]:
    """Those that name something, the oldest first."""
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
    resolved = await mentions.resolve_targets(
        context, project.id, {each for saying in items for each in (*saying.closes, *saying.mentions)}
    )
    if not resolved:
        return
    authors = await _author_contexts(context, items, {target.project_id for target in resolved.values()})
    sources = [NoteSource.of_commit(project.id, saying.commit.oid, authors.get(saying.commit.author_email.lower())) for saying in items]
    closing_requests = [
        (source, resolved[each].id) for source, saying in zip(sources, items, strict=True) for each in saying.closes if each in resolved
    ]
    closed = await _close_issues(context, project.id, closing_requests)
    # What a commit closed is told of it already.
    remaining_mentions = [
        (
            source,
            [each for each in saying.mentions if each in resolved and (source.key, resolved[each].kind, resolved[each].id) not in closed],
        )
        for source, saying in zip(sources, items, strict=True)
    ]
    await system_notes.write_mentions_of_sources(context, project.id, remaining_mentions, resolved)


async def _author_contexts(context: Context, items: list[CommitReferences], project_ids: set[int]) -> dict[str, Context]:
    """The contexts of the accounts that wrote the commits, by e-mail in lower case; the viewer's own is left out."""
    emails = {saying.commit.author_email.lower() for saying in items}
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
    """Closes those of the issues that are open and that the viewer may close, each for the first source that wants it. Gives what was
    closed, as (key of the source, noun, id)."""
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
    await system_notes.write_notes(context, rows)
    await publish_all(context, object_payloads.IssueChanged, [(speaker, issue, "close") for _, speaker, issue in closed])
    return {(source.key, ISSUE, issue.id) for source, _, issue in closed}
