"""System notes on issues and merge requests: their changes and mentions (docs/wire-facts.md 6).

They are written in the transaction of the change, in the viewer's name. A note that names an issue, a merge request or a commit stores
it as its source, also one of the same project: a viewer who may not see the source does not see the note either.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, or_
from sqlmodel import col

from graph.context import Context
from graph.events.payloads import full_path, get_existing
from graph.rules.notes import mentions
from graph.rules.notes.mentions import Mention, MentionTarget, kind_of, parse_mentions
from graph.rules.permissions.policy import Action, can, filter_visible_projects, load_project_of
from graph.rules.permissions.policy_conditions import any_allowed
from graph.rules.permissions.sql_policy import SqlViewer
from graph.rules.snapshots import IssueSnapshot, MergeRequestSnapshot
from storage import tables
from storage.tables import IssueState, MergeRequestState
from storage.tables.accounts import access_conditions
from storage.tables.issues import notes

_MILESTONE_LINK = re.compile(r"\]\((?:https?://[^()\s]*)?(/[^/()\s]+/[^/()\s]+/milestones/[0-9]+)\)\Z")
"""The link to a milestone's path that ends such a note.

Old notes have the full URL that the instance had then.
"""

Issuable = tables.Issue | tables.MergeRequest
"""An issue or a merge request."""
NotedSnapshot = IssueSnapshot | MergeRequestSnapshot


@dataclass(frozen=True, slots=True)
class NoteSource:
    """The object that mentions or closes another; `key` is stored with the note.

    `noun` and `name` describe it: `issue` and `#12`, `commit` and `@FULLSHA`. `author` is the context of its author, in whose name the
    note is written if the author may see the target; otherwise, or if None, the note is written in the viewer's name.
    """

    project_id: int
    key: str
    noun: str
    name: str
    author: Context | None = None

    @classmethod
    def of(cls, issuable: Issuable) -> "NoteSource":
        noun = kind_of(issuable)
        return cls(issuable.project_id, f"{noun.name}:{issuable.id}", noun.display_name, f"{noun.sigil}{issuable.iid}")

    @classmethod
    def of_commit(cls, project_id: int, oid: str, author: Context | None) -> "NoteSource":
        return cls(project_id, f"commit:{oid}", "commit", f"@{oid}", author)

    def describe(self, path: str | None) -> str:
        """The description in a note: `issue #12`, with the full path of its project if given."""
        return f"{self.noun} {self.name.removeprefix('@') if path is None else path + self.name}"


SOURCE_READ_ACTIONS = {"issue": Action.READ_ISSUE, "merge_request": Action.READ_MERGE_REQUEST, "commit": Action.READ_CODE}
"""The first word of `Note.source`, mapped to the action that reads such a source in its project."""


async def write_changes(context: Context, issuable: Issuable, before: NotedSnapshot, current: NotedSnapshot) -> None:
    """Write a note for each field that differs, and notes on what a new description mentions. `current` is of `issuable`."""
    bodies = []
    if current.state != before.state:
        bodies.append(format_status(current.state))
    if current.title != before.title:
        bodies.append(f"Title changed from **{before.title}** to **{current.title}**")
    if current.target_branch != before.target_branch:
        bodies.append(f"Target branch changed from `{before.target_branch}` to `{current.target_branch}`")
    if current.milestone_id != before.milestone_id:
        bodies.append(await _milestone_body(context, issuable))
    if current.assignee_id != before.assignee_id:
        bodies.append(await _assignee_body(context, issuable))
    rows = [build_note(context, build_target(issuable), body) for body in bodies]
    if current.description != before.description:
        rows += await _build_mention_notes(context, issuable, current.description)
    write_notes(context, rows)


async def write_mentions(context: Context, issuable: Issuable, text: str | None) -> None:
    """Write notes on what a string of this object, its description or a note on it, mentions.

    A mention is noted once.
    """
    write_notes(context, await _build_mention_notes(context, issuable, text))


async def write_mentions_of_sources(
    context: Context, project_id: int, found: Sequence[tuple[NoteSource, list[Mention]]], targets: Mapping[Mention, MentionTarget]
) -> None:
    """Like `write_mentions` for several sources of one project, with their parsed and resolved mentions."""
    write_notes(context, await _build_notes_of_sources(context, project_id, found, targets))


async def rename_project(context: Context, project: tables.Project, old_path: str) -> None:
    """Replace the former full path of a project in the system notes that name its objects, so that their links lead to its new one.

    Notes of users are not changed.
    """
    path = await full_path(context, project)
    if path != old_path:
        await _execute_all(context, notes.rename_project(project.id, old_path, path))


async def rename_namespace(context: Context, namespace: tables.Namespace, old_path: str) -> None:
    """As `rename_project`, for all projects of a group or a user whose path has changed."""
    if namespace.path != old_path:
        await _execute_all(context, notes.rename_namespace(namespace.id, old_path, namespace.path))


async def _execute_all(context: Context, statements: Iterable[Any]) -> None:
    await context.session.flush()
    for statement in statements:
        await context.session.execute(statement)


async def filter_visible(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """Those of the notes that have no source or one that the viewer may see; takes at most two statements."""
    notes = list(notes)
    visible_ids = await filter_visible_projects(context, [note.source_project_id for note in notes if note.source_project_id is not None])
    found = await context.rows_by_id(tables.Project).get_many(visible_ids)
    shown = {
        (key, kind) for key, project in found.items() for kind, action in SOURCE_READ_ACTIONS.items() if await can(context, action, project)
    }
    return [
        note for note in notes if note.source_project_id is None or (note.source_project_id, (note.source or "").partition(":")[0]) in shown
    ]


def visible_conditions(viewer: SqlViewer) -> list[ColumnElement[bool]]:
    """The SQL conditions on `Note` under which the viewer, whose `is_admin` is a constant, may see its source, if it has one."""
    note = tables.Note
    conditions = {action: col(note.source).startswith(f"{kind}:") for kind, action in SOURCE_READ_ACTIONS.items()}
    is_readable = any_allowed(conditions, viewer.id, is_admin=viewer.is_admin)
    return [or_(col(note.source_project_id).is_(None), access_conditions.in_projects(note.source_project_id, is_readable))]


def format_status(state: IssueState | MergeRequestState, closed_by: str | None = None) -> str:
    """`Status changed to closed`, with ` by commit FULLSHA` if given."""
    state_name = "reopened" if state in (IssueState.OPENED, MergeRequestState.OPENED) else state
    return f"Status changed to {state_name}{f' by {closed_by}' if closed_by else ''}"


def build_change_source(source: NoteSource, moment: datetime) -> str:
    """The value of `Note.source` for a state change that a source caused.

    A source may close the same issue again after it was reopened, so the timestamp in microseconds makes each value unique. A mention
    uses only the key and is noted once.
    """
    return f"{source.key}:{round(moment.timestamp() * 1_000_000)}"


def create_body_renderer(external_url: str) -> Callable[[str, bool], str]:
    """A function (body, is system note) that renders a body with links on the current URL of the instance.

    >>> create_body_renderer("https://forge.example")("Milestone changed to [1.0](/ada/mill/milestones/1)", True)
    'Milestone changed to [1.0](https://forge.example/ada/mill/milestones/1)'
    """

    def linked(match: re.Match[str]) -> str:
        return f"]({external_url}{match[1]})"

    def render(body: str, system: bool) -> str:
        return _MILESTONE_LINK.sub(linked, body) if system and body.startswith(notes.MILESTONE_CHANGED_PREFIX) else body

    return render


def build_target(issuable: Issuable) -> MentionTarget:
    return MentionTarget(kind_of(issuable), issuable.id, issuable.project_id)


def build_note(context: Context, target: MentionTarget, body: str, **source: Any) -> dict[str, Any]:
    """The columns of a note on the target, by the context's viewer."""
    moment = context.now()
    dates = {"created_at": moment, "updated_at": moment}
    return {
        "project_id": target.project_id,
        target.kind.foreign_key: target.id,
        "author_id": context.viewer.id,
        "body": body,
        **dates,
        **source,
    }


def write_notes(context: Context, rows: list[dict[str, Any]]) -> None:
    """Insert the rows of `build_note`, in order, by the end of the transaction, skipping mentions that are noted already."""
    if rows:
        context.insert_later(notes.insert_system_notes(context.services.database.dialect), [notes.system_note(row) for row in rows])


async def _build_mention_notes(context: Context, issuable: Issuable, text: str | None) -> list[dict[str, Any]]:
    """Notes on the objects that a string mentions and the viewer may see.

    Others are ignored, as if they did not exist.
    """
    parsed = parse_mentions(text or "")
    if not parsed:
        return []
    # The notes name the object, which may be new.
    await context.session.flush()
    targets = await mentions.resolve_targets(context, issuable.project_id, parsed)
    return await _build_notes_of_sources(context, issuable.project_id, [(NoteSource.of(issuable), parsed)], targets)


async def _build_notes_of_sources(
    context: Context, project_id: int, found: Sequence[tuple[NoteSource, list[Mention]]], targets: Mapping[Mention, MentionTarget]
) -> list[dict[str, Any]]:
    path = None
    if any(target.project_id != project_id for target in targets.values()):
        path = await full_path(context, await get_existing(context, tables.Project, project_id))
    pairs = [
        (source, target)
        for source, named in found
        for target in sorted({targets[each] for each in named if each in targets}, key=_lock_order)
    ]
    return [
        build_note(
            await _author_context(context, source, target),
            target,
            f"mentioned in {source.describe(None if target.project_id == project_id else path)}",
            source_project_id=project_id,
            source=source.key,
        )
        for source, target in pairs
        if source.key != f"{target.kind.name}:{target.id}"
    ]


async def _author_context(context: Context, source: NoteSource, target: MentionTarget) -> Context:
    if source.author is None:
        return context
    project = await get_existing(context, tables.Project, target.project_id)
    return source.author if await can(source.author, target.kind.read_action, project) else context


def _lock_order(target: MentionTarget) -> tuple[str, int]:
    # Every transaction writes in the same order, which prevents deadlocks.
    return target.kind.name, target.id


async def _milestone_body(context: Context, issuable: Issuable) -> str:
    if issuable.milestone_id is None:
        return "Milestone removed"
    milestone: tables.Milestone = await get_existing(context, tables.Milestone, issuable.milestone_id)
    path = await full_path(context, await load_project_of(context, issuable))
    # Without the URL of the instance, which may change; it is added when the note is rendered.
    return f"{notes.MILESTONE_CHANGED_PREFIX}[{milestone.title}](/{path}/milestones/{milestone.iid})"


async def _assignee_body(context: Context, issuable: Issuable) -> str:
    if issuable.assignee_id is None:
        return "Assignee removed"
    assignee: tables.User = await get_existing(context, tables.User, issuable.assignee_id)
    return f"Reassigned to @{assignee.username}"
