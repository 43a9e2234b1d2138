"""Notes that the service itself writes under issues and merge requests: what became of them, and where else they were mentioned
(wire facts 6).

They are written in the transaction of what they tell, by the viewer. A note that names an issue, a merge request or a commit as its
source carries that source, also one of the same project: a viewer who may not see the source does not see the note either.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from graph.context import Context
from graph.events.payloads import full_path, get_existing
from graph.rules.notes import mentions
from graph.rules.notes.mentions import Mention, MentionTarget, kind_of, parse_mentions
from graph.rules.policy import Action, can, filter_visible_projects, load_project_of
from storage import tables
from storage.tables import IssueState, MergeRequestState, notes

ROWS_PER_STATEMENT = 500
"""Notes that one statement writes: the parameters of a statement are limited."""

MILESTONE_CHANGED_PREFIX = "Milestone changed to "
_MILESTONE_LINK = re.compile(r"\]\((?:https?://[^()\s]*)?(/[^/()\s]+/[^/()\s]+/milestones/[0-9]+)\)\Z")
"""The end of such a note: a link to the path of a milestone. Notes from before had the whole address that the service had then."""

Issuable = tables.Issue | tables.MergeRequest
"""What is told of."""


@dataclass(frozen=True, slots=True)
class IssuableSnapshot:
    """What is told of a thing when it changes; an issue has no target branch."""

    state: IssueState | MergeRequestState
    title: str
    description: str | None
    assignee_id: int | None
    milestone_id: int | None
    target_branch: str | None

    @classmethod
    def of(cls, thing: Issuable) -> "IssuableSnapshot":
        branch = getattr(thing, "target_branch", None)
        return cls(thing.state, thing.title, thing.description, thing.assignee_id, thing.milestone_id, branch)


@dataclass(frozen=True, slots=True)
class NoteSource:
    """What mentions: `key` is kept with the note, `noun` and `name` are its words: `issue` and `#12`, `commit` and `@FULLSHA`.

    `author` is who wrote it, as far as that one may see what is mentioned; else, and where it is None, the viewer speaks.
    """

    project_id: int
    key: str
    noun: str
    name: str
    author: Context | None = None

    @classmethod
    def of(cls, thing: Issuable) -> "NoteSource":
        noun = kind_of(thing)
        return cls(thing.project_id, f"{noun.name}:{thing.id}", noun.display_name, f"{noun.sigil}{thing.iid}")

    @classmethod
    def of_commit(cls, project_id: int, oid: str, author: Context | None) -> "NoteSource":
        return cls(project_id, f"commit:{oid}", "commit", f"@{oid}", author)

    def describe(self, path: str | None) -> str:
        """`issue #12`; with the full path of its project where that is given."""
        return f"{self.noun} {self.name.removeprefix('@') if path is None else path + self.name}"


SOURCE_READ_ACTIONS = {"issue": Action.READ_ISSUE, "merge_request": Action.READ_MERGE_REQUEST, "commit": Action.READ_CODE}
"""The first word of `Note.source` → what lets somebody see such a source in its project."""


async def write_changes(context: Context, thing: Issuable, before: IssuableSnapshot, *, by: str | None = None) -> None:
    """Writes a note for each thing that differs from before, and tells what a new description mentions.

    `by` is what changed the state, where that was no person: `commit FULLSHA`, `merge request !12`.
    """
    current, bodies = IssuableSnapshot.of(thing), []
    if current.state != before.state:
        bodies.append(format_status(current.state, by))
    if current.title != before.title:
        bodies.append(f"Title changed from **{before.title}** to **{current.title}**")
    if current.target_branch != before.target_branch:
        bodies.append(f"Target branch changed from `{before.target_branch}` to `{current.target_branch}`")
    if current.milestone_id != before.milestone_id:
        bodies.append(await _milestone_body(context, thing))
    if current.assignee_id != before.assignee_id:
        bodies.append(await _assignee_body(context, thing))
    rows = [build_note(context, build_target(thing), body) for body in bodies]
    if current.description != before.description:
        rows += await _build_mention_notes(context, thing, current.description)
    await write_notes(context, rows)


async def write_mentions(context: Context, thing: Issuable, text: str | None) -> None:
    """Tells what a text of this thing's, its description or a note under it, mentions: each once, whoever mentions it again."""
    await write_notes(context, await _build_mention_notes(context, thing, text))


async def write_mentions_of_sources(
    context: Context, project_id: int, found: Sequence[tuple[NoteSource, list[Mention]]], targets: Mapping[Mention, MentionTarget]
) -> None:
    """The same for many sources of one project, with what each mentions and what that means."""
    await write_notes(context, await _build_notes_of_sources(context, project_id, found, targets))


async def filter_visible(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """Those of the notes whose source the viewer may see, and those that name none: two statements whatever their number."""
    notes = list(notes)
    visible_ids = await filter_visible_projects(context, [note.source_project_id for note in notes if note.source_project_id is not None])
    found = await context.rows_by_id(tables.Project).get_many(visible_ids)
    shown = {
        (key, kind) for key, project in found.items() for kind, action in SOURCE_READ_ACTIONS.items() if await can(context, action, project)
    }
    return [
        note for note in notes if note.source_project_id is None or (note.source_project_id, (note.source or "").partition(":")[0]) in shown
    ]


def format_status(state: IssueState | MergeRequestState, closed_by: str | None = None) -> str:
    """`Status changed to closed`, ` by commit FULLSHA` where that is given."""
    word = "reopened" if state in (IssueState.OPENED, MergeRequestState.OPENED) else state
    return f"Status changed to {word}{f' by {closed_by}' if closed_by else ''}"


def build_change_source(source: NoteSource, moment: datetime) -> str:
    """The value of `Note.source` for a change of state that a source made: a source may close the same issue again after it was
    reopened, so the moment, in microseconds, makes each one unique. A mention has the key alone and is noted once."""
    return f"{source.key}:{round(moment.timestamp() * 1_000_000)}"


def create_body_renderer(external_url: str) -> Callable[[str, bool], str]:
    """A function that shows a note's body, by whether the service wrote it: links begin with the present address of the service.

    >>> create_body_renderer("https://forge.example")("Milestone changed to [1.0](/ada/mill/milestones/1)", True)
    'Milestone changed to [1.0](https://forge.example/ada/mill/milestones/1)'
    """

    def linked(match: re.Match[str]) -> str:
        return f"]({external_url}{match[1]})"

    def render(body: str, system: bool) -> str:
        return _MILESTONE_LINK.sub(linked, body) if system and body.startswith(MILESTONE_CHANGED_PREFIX) else body

    return render


def build_target(thing: Issuable) -> MentionTarget:
    return MentionTarget(kind_of(thing), thing.id, thing.project_id)


def build_note(context: Context, target: MentionTarget, body: str, **source: Any) -> dict[str, Any]:
    """The columns of a note under what is meant, by the context's viewer."""
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


async def write_notes(context: Context, rows: list[dict[str, Any]]) -> None:
    """Writes the notes of `note`, in their order; none of a mention that is told already."""
    if rows:
        # What mentions comes before what is told of it.
        await context.session.flush()
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        await context.session.execute(
            notes.insert_system_notes(context.services.database.dialect, rows[start : start + ROWS_PER_STATEMENT])
        )


async def _build_mention_notes(context: Context, thing: Issuable, text: str | None) -> list[dict[str, Any]]:
    """The notes for what the text mentions and the viewer may see; others stay untouched, as if they were not there."""
    mentioned_things = parse_mentions(text or "")
    if not mentioned_things:
        return []
    targets = await mentions.resolve_targets(context, thing.project_id, mentioned_things)
    return await _build_notes_of_sources(context, thing.project_id, [(NoteSource.of(thing), mentioned_things)], targets)


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
    # Everybody writes under the same things in the same order, so nobody waits in a circle.
    return target.kind.name, target.id


async def _milestone_body(context: Context, thing: Issuable) -> str:
    if thing.milestone_id is None:
        return "Milestone removed"
    milestone: tables.Milestone = await get_existing(context, tables.Milestone, thing.milestone_id)
    path = await full_path(context, await load_project_of(context, thing))
    # Without the address of the service, which may change: it is added where the note is read.
    return f"{MILESTONE_CHANGED_PREFIX}[{milestone.title}](/{path}/milestones/{milestone.iid})"


async def _assignee_body(context: Context, thing: Issuable) -> str:
    if thing.assignee_id is None:
        return "Assignee removed"
    assignee: tables.User = await get_existing(context, tables.User, thing.assignee_id)
    return f"Reassigned to @{assignee.username}"
