"""Notes that the service itself writes: what became of an issue, and where else it was mentioned (wire facts 6).

They are written in the transaction of what they tell, by the viewer. Whoever does not see the issue that mentions does not see the
note of the mention either.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph.context import Context
from graph.events.payloads import existing, full_path
from graph.rules import finding
from graph.rules.policy import Action, may, project_of, seen_projects
from storage import tables
from storage.tables import IssueState, issues, notes, projects

MENTION = re.compile(
    r"(?<![\w./#&-])(?:(?P<namespace>[A-Za-z0-9_.-]{1,255})/(?P<path>[A-Za-z0-9_.-]{1,255}))?#(?P<iid>[1-9][0-9]{0,9})(?!\w)"
)
"""`#12`, or `group/project#12`. Where a word begins is the only place that is tried, so reading takes time in line with the length."""
LONGEST_READ = 100_000
"""Characters of a text that are looked through."""
MOST_MENTIONS = 50
"""Different issues that one text can mention."""


class Mention(NamedTuple):
    """An issue as a text names it: its number, and the path keys of another project, or None for the text's own."""

    project: tuple[str, str] | None
    iid: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is told of an issue when it changes."""

    state: IssueState
    title: str
    description: str | None
    assignee_id: int | None
    milestone_id: int | None

    @classmethod
    def of(cls, issue: tables.Issue) -> "Facts":
        return cls(issue.state, issue.title, issue.description, issue.assignee_id, issue.milestone_id)


async def write_changes(context: Context, issue: tables.Issue, before: Facts) -> None:
    """Writes a note for each thing that differs from before, and tells the issues that a new description mentions."""
    bodies = []
    if issue.state != before.state:
        bodies.append(f"Status changed to {'closed' if issue.state is IssueState.CLOSED else 'reopened'}")
    if issue.title != before.title:
        bodies.append(f"Title changed from **{before.title}** to **{issue.title}**")
    if issue.milestone_id != before.milestone_id:
        bodies.append(await _milestone(context, issue))
    if issue.assignee_id != before.assignee_id:
        bodies.append(await _assignee(context, issue))
    rows = [_row(context, issue.project_id, issue.id, body) for body in bodies]
    if issue.description != before.description:
        rows += await _mentioning(context, issue, issue.description)
    await _write(context, rows)


async def write_mentions(context: Context, issue: tables.Issue, text: str | None) -> None:
    """Tells the issues that a text of this issue's, its description or a note under it, mentions: each once, whoever mentions it again."""
    await _write(context, await _mentioning(context, issue, text))


async def seen(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """Those of the notes whose mentioning issue, if they tell of one, the viewer may see: two statements whatever their number."""
    notes = list(notes)
    sources = await seen_projects(context, [note.source_project_id for note in notes if note.source_project_id is not None])
    found = await context.rows_by_id(tables.Project).get_many(sources)
    shown = {key for key, project in found.items() if await may(context, Action.READ_ISSUE, project)}
    return [note for note in notes if note.source_project_id is None or note.source_project_id in shown]


def mentioned(text: str) -> list[Mention]:
    """The issues that a text names, in its order, each once.

    >>> mentioned("As #2 and Group/App#3 say, see #2")
    [Mention(project=None, iid=2), Mention(project=('group', 'app'), iid=3)]
    """
    found: dict[Mention, None] = {}
    for match in MENTION.finditer(text, 0, LONGEST_READ):
        iid = finding.as_id(match["iid"])
        if match.end() == LONGEST_READ < len(text) or len(found) == MOST_MENTIONS:
            # A number that the end cuts off would be another one.
            break
        if iid is not None:
            project = (match["namespace"].lower(), match["path"].lower()) if match["path"] else None
            found[Mention(project, iid)] = None
    return list(found)


async def _mentioning(context: Context, issue: tables.Issue, text: str | None) -> list[dict[str, Any]]:
    """The notes for the issues that the text mentions and the viewer may see; others stay untouched, as if they were not there."""
    wanted = mentioned(text or "")
    if not wanted:
        return []
    ids = await _seen_ids(context, {mention.project for mention in wanted if mention.project is not None})
    numbers: dict[int, list[int]] = {}
    for mention in wanted:
        project_id = issue.project_id if mention.project is None else ids.get(mention.project)
        if project_id is not None:
            numbers.setdefault(project_id, []).append(mention.iid)
    if not numbers:
        return []
    targets = [(key, place) for key, place in await context.tuples(issues.numbered(numbers)) if key != issue.id]
    path = "" if all(place == issue.project_id for _, place in targets) else await full_path(context, await project_of(context, issue))
    return [
        _row(
            context,
            place,
            key,
            f"mentioned in issue {'' if place == issue.project_id else path}#{issue.iid}",
            source_project_id=issue.project_id,
            source=f"issue:{issue.id}",
        )
        for key, place in targets
    ]


async def _seen_ids(context: Context, paths: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of the projects of these path keys whose issues the viewer may see."""
    if not paths:
        return {}
    found = {
        key: project
        for namespace, project in await context.tuples(projects.of_path_keys(paths))
        if (key := (namespace, project.path_key)) in paths
    }
    seen = await seen_projects(context, [project.id for project in found.values()])
    return {key: project.id for key, project in found.items() if project.id in seen and await may(context, Action.READ_ISSUE, project)}


async def _milestone(context: Context, issue: tables.Issue) -> str:
    if issue.milestone_id is None:
        return "Milestone removed"
    milestone: tables.Milestone = await existing(context, tables.Milestone, issue.milestone_id)
    path = await full_path(context, await project_of(context, issue))
    return f"Milestone changed to [{milestone.title}]({context.services.external_url}/{path}/milestones/{milestone.iid})"


async def _assignee(context: Context, issue: tables.Issue) -> str:
    if issue.assignee_id is None:
        return "Assignee removed"
    assignee: tables.User = await existing(context, tables.User, issue.assignee_id)
    return f"Reassigned to @{assignee.username}"


def _row(context: Context, project_id: int, issue_id: int, body: str, **source: Any) -> dict[str, Any]:
    moment = context.now()
    dates = {"created_at": moment, "updated_at": moment}
    return {"project_id": project_id, "issue_id": issue_id, "author_id": context.viewer.id, "body": body, **dates, **source}


async def _write(context: Context, rows: list[dict[str, Any]]) -> None:
    if rows:
        await context.session.execute(notes.write_system(context.services.database.dialect, rows))
