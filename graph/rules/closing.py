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
from graph.events.payloads import existing, full_path
from graph.events.publish import publish_all
from graph.rules import finding, issues, mentions, system_notes
from graph.rules.acting import acting
from graph.rules.mentions import ISSUE, LONGEST_READ, MOST_MENTIONS, NAME, Mention, Target, mentioned
from graph.rules.policy import Action, may, projects_where
from graph.rules.states import IssueEvent
from graph.rules.system_notes import Source
from storage import tables
from storage.git.commits import Commit
from storage.tables import UserState, closings, projects, users
from storage.tables import issues as issue_statements

MOST_CLOSED = 200
"""Issues that the commits of a merge request, and as many that its description, can close."""
MOST_SHOWN = 100
"""Merge requests that are shown of an issue."""
AT_ONCE = 2_000
"""Mentions of a push that are looked up together: the parameters of a statement are limited."""

KEYWORD = r"(?:[Cc]los(?:e[sd]?|ing)|[Ff]ix(?:e[sd]|ing)?|[Rr]esolv(?:e[sd]?|ing)) +"
SEPARATOR = re.compile(r", *| and +")


class Saying(NamedTuple):
    """A commit with what it closes and what it mentions."""

    commit: Commit
    closes: list[Mention]
    mentions: list[Mention]


def references(text: str, external_url: str) -> list[Mention]:
    """The issues that a text says it closes, in its order, each once. `external_url` is the address of this instance.

    Each keyword and each reference is matched where it begins and nowhere else, and no part of the pattern can match the same text in
    two ways, so reading takes time in line with the length.

    >>> references("Fixes #2, issue Group/App#3", "http://forge.example")
    [Mention(project=None, iid=2, sigil='#'), Mention(project=('group', 'app'), iid=3, sigil='#')]
    """
    start, reference = _patterns(external_url)
    found: dict[Mention, None] = {}
    place = 0
    while keyword := start.search(text, place, LONGEST_READ):
        place = keyword.end()
        while match := reference.match(text, place, LONGEST_READ):
            place = match.end()
            if (place == LONGEST_READ < len(text)) or len(found) == MOST_MENTIONS:
                # A number that the end cuts off would be another one.
                return list(found)
            iid = finding.as_id(match["iid"] or match["number"])
            names = match["namespace"] or match["group"], match["path"] or match["project"]
            if iid is not None:
                found[Mention((names[0].lower(), names[1].lower()) if names[0] else None, iid)] = None
            separator = SEPARATOR.match(text, place, LONGEST_READ)
            if separator is None:
                break
            place = separator.end()
    return list(found)


@lru_cache(maxsize=8)
def _patterns(external_url: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A keyword in front of a reference, and a reference."""
    address = re.escape(external_url.partition("://")[2].rstrip("/"))
    short = rf"(?:(?P<namespace>{NAME})/(?P<path>{NAME}))?#(?P<iid>[1-9][0-9]{{0,9}})"
    long = rf"https?://{address}/(?P<group>{NAME})/(?P<project>{NAME})/issues/(?P<number>[1-9][0-9]{{0,9}})"
    reference = rf"(?:issues? +)?(?:{long}|{short})(?!\w)"
    return re.compile(rf"{KEYWORD}(?={reference})"), re.compile(reference)


# What merge requests would close


async def record(context: Context, merge_request: tables.MergeRequest, messages: Iterable[str]) -> None:
    """Keeps what the description of a merge request and the messages of all its commits, newest first, say it closes, instead of what
    they said before."""
    await _record(context, merge_request, {True: [merge_request.description or ""], False: messages})


async def record_description(context: Context, merge_request: tables.MergeRequest) -> None:
    """The same for its description alone."""
    await _record(context, merge_request, {True: [merge_request.description or ""]})


async def issues_of(context: Context, merge_request: tables.MergeRequest) -> list[tables.Issue]:
    """The issues that merging would close, of those that the viewer may see, by their ids; of one that is merged, those that it named.

    One statement for all merge requests of a level.
    """

    async def fetch(ids: list[int]) -> dict[int, list[tables.Issue]]:
        seen = projects_where(context, Action.READ_ISSUE)
        found: dict[int, dict[int, tables.Issue]] = {}
        for key, issue in await context.tuples(closings.issues_of(ids, *seen)):
            found.setdefault(key, {})[issue.id] = issue
        return {key: list(named.values()) for key, named in found.items()}

    return await context.loader(closings.issues_of, fetch).get(merge_request.id) or []


async def merge_requests_of(context: Context, issue: tables.Issue) -> list[tables.MergeRequest]:
    """The open merge requests that would close the issue, and the merged ones that named it, of those that the viewer may see: of the
    newest MOST_SHOWN, the newest first. One statement for all issues of a level."""

    async def fetch(ids: list[int]) -> dict[int, list[tables.MergeRequest]]:
        seen = projects_where(context, Action.READ_MERGE_REQUEST)
        found: dict[int, list[tables.MergeRequest]] = {}
        for key, row in await context.tuples(closings.merge_requests_of(ids, MOST_SHOWN, *seen)):
            found.setdefault(key, []).append(row)
        return found

    return await context.loader(closings.merge_requests_of, fetch).get(issue.id) or []


async def _record(context: Context, merge_request: tables.MergeRequest, texts: Mapping[bool, Iterable[str]]) -> None:
    """`texts` by whether they are descriptions."""
    named = {described: _named(some, context.services.external_url) for described, some in texts.items()}
    paths = await mentions.ids_of(context, {each.project for some in named.values() for each in some if each.project is not None})
    if paths:
        # Nobody removes them until the rows that name them are kept.
        there = set(await context.all(projects.kept(sorted(set(paths.values())))))
        paths = {path: key for path, key in paths.items() if key in there}
    now = {
        (described, place, each.iid)
        for described, some in named.items()
        for each in some
        if (place := merge_request.project_id if each.project is None else paths.get(each.project)) is not None
    }
    before = {found for row in await context.tuples(closings.of_merge_request(merge_request.id)) if (found := tuple(row))[0] in texts}
    if before - now:
        await context.session.execute(closings.forget(merge_request.id, list(texts)))
        before = set()
    if now - before:
        await context.session.execute(closings.write(context.services.database.dialect, merge_request.id, now - before))
    context.loaders.pop(closings.issues_of, None)
    context.loaders.pop(closings.merge_requests_of, None)


def _named(texts: Iterable[str], external_url: str) -> set[Mention]:
    named: set[Mention] = set()
    for text in texts:
        named.update(references(text, external_url))
        if len(named) >= MOST_CLOSED:
            break
    return named


# Closing


async def after_merge(context: Context, merge_request: tables.MergeRequest) -> None:
    """Closes what the merge request closes, as far as the viewer, who merged it, may.

    To be called when the row says merged, and before `pushing.pushed` for the target: that would close the same by commits.
    """
    found = [issue for _, issue in await context.tuples(closings.issues_of([merge_request.id]))]
    await _close(context, merge_request.project_id, [(Source.of(merge_request), issue.id) for issue in found])


async def by_push(context: Context, project: tables.Project, commits: Sequence[Commit]) -> None:
    """What follows from the messages of commits that came to the default branch, newest first: issues are closed, and what is
    mentioned is told. Commits that name nothing cost no statement, and many that name something cost what one does."""
    if context.viewer_or_none is None:
        # Nobody pushed, so there are no rights to act by.
        return
    url = context.services.external_url
    # In a thread where there is much to read, since others are to be answered meanwhile.
    much = sum(min(len(commit.message), LONGEST_READ) for commit in commits) > LONGEST_READ
    for sayings in await asyncio.to_thread(_batches, url, commits) if much else _batches(url, commits):
        await _follow(context, project, sayings)


def _batches(external_url: str, commits: Sequence[Commit]) -> list[list[Saying]]:
    """Those that name something, the oldest first."""
    batches: list[list[Saying]] = []
    size = AT_ONCE
    for commit in reversed(commits):
        saying = Saying(commit, references(commit.message, external_url), mentioned(commit.message))
        if saying.closes or saying.mentions:
            if size >= AT_ONCE:
                batches.append([])
                size = 0
            batches[-1].append(saying)
            size += len(saying.closes) + len(saying.mentions)
    return batches


async def _follow(context: Context, project: tables.Project, sayings: list[Saying]) -> None:
    meant = await mentions.targets(context, project.id, {each for saying in sayings for each in (*saying.closes, *saying.mentions)})
    if not meant:
        return
    authors = await _authors(context, sayings, {target.project_id for target in meant.values()})
    sources = [Source.of_commit(project.id, saying.commit.oid, authors.get(saying.commit.author_email.lower())) for saying in sayings]
    wanted = [(source, meant[each].id) for source, saying in zip(sources, sayings, strict=True) for each in saying.closes if each in meant]
    closed = await _close(context, project.id, wanted)
    # What a commit closed is told of it already.
    told = [
        (source, [each for each in saying.mentions if each in meant and (source.key, meant[each].noun, meant[each].id) not in closed])
        for source, saying in zip(sources, sayings, strict=True)
    ]
    await system_notes.write_mentions_of(context, project.id, told, meant)


async def _authors(context: Context, sayings: list[Saying], project_ids: set[int]) -> dict[str, Context]:
    """The contexts of the accounts that wrote the commits, by e-mail in lower case; the viewer's own is left out."""
    emails = {saying.commit.author_email.lower() for saying in sayings}
    found = {
        email: user
        for email, user in await context.tuples(users.by_emails(sorted(emails)))
        if user.state is UserState.ACTIVE and user.id != context.viewer.id
    }
    contexts = await acting(context, list({user.id: user for user in found.values()}.values()), project_ids)
    return {email: contexts[user.id] for email, user in found.items()}


async def _close(context: Context, project_id: int, wanted: Sequence[tuple[Source, int]]) -> set[tuple[str, mentions.Noun, int]]:
    """Closes those of the issues that are open and that the viewer may close, each for the first source that wants it. Gives what was
    closed, as (key of the source, noun, id)."""
    if not wanted:
        return set()
    held = {issue.id: issue for issue in await context.all(issue_statements.open_and_held(sorted({key for _, key in wanted})))}
    await context.rows_by_id(tables.Project).get_many({issue.project_id for issue in held.values()})
    closed: list[tuple[Source, Context, tables.Issue]] = []
    for source, key in wanted:
        issue = held.get(key)
        if issue is None or not await may(context, Action.UPDATE_ISSUE, issue):
            continue
        author = source.author
        speaker = author if author is not None and await may(author, Action.UPDATE_ISSUE, issue) else context
        if issues.change_state(context, issue, IssueEvent.CLOSE):
            issues.touched(context, issue)
            closed.append((source, speaker, issue))
    if not closed:
        return set()
    await context.session.flush()
    path = None
    if any(issue.project_id != project_id for _, _, issue in closed):
        path = await full_path(context, await existing(context, tables.Project, project_id))
    rows = []
    for source, speaker, issue in closed:
        by = source.words(None if issue.project_id == project_id else path)
        told = {"source_project_id": project_id, "source": system_notes.source_of_change(source, context.now())}
        rows.append(system_notes.note(speaker, Target(ISSUE, issue.id, issue.project_id), system_notes.status(issue.state, by), **told))
    await system_notes.write(context, rows)
    await publish_all(context, object_payloads.IssueChanged, [(speaker, issue, "close") for _, speaker, issue in closed])
    return {(source.key, ISSUE, issue.id) for source, _, issue in closed}
