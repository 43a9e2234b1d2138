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
from graph.events.payloads import existing, full_path
from graph.rules import mentions
from graph.rules.mentions import Mention, Target, mentioned, noun_of
from graph.rules.policy import Action, may, project_of, seen_projects
from storage import tables
from storage.tables import IssueState, MergeRequestState, notes

ROWS_AT_ONCE = 500
"""Notes that one statement writes: the parameters of a statement are limited."""

MILESTONE_CHANGED = "Milestone changed to "
_MILESTONE_LINK = re.compile(r"\]\((?:https?://[^()\s]*)?(/[^/()\s]+/[^/()\s]+/milestones/[0-9]+)\)\Z")
"""The end of such a note: a link to the path of a milestone. Notes from before had the whole address that the service had then."""

Thing = tables.Issue | tables.MergeRequest
"""What is told of."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is told of a thing when it changes; an issue has no target branch."""

    state: IssueState | MergeRequestState
    title: str
    description: str | None
    assignee_id: int | None
    milestone_id: int | None
    target_branch: str | None

    @classmethod
    def of(cls, thing: Thing) -> "Facts":
        branch = getattr(thing, "target_branch", None)
        return cls(thing.state, thing.title, thing.description, thing.assignee_id, thing.milestone_id, branch)


@dataclass(frozen=True, slots=True)
class Source:
    """What mentions: `key` is kept with the note, `noun` and `name` are its words: `issue` and `#12`, `commit` and `@FULLSHA`.

    `author` is who wrote it, as far as that one may see what is mentioned; else, and where it is None, the viewer speaks.
    """

    project_id: int
    key: str
    noun: str
    name: str
    author: Context | None = None

    @classmethod
    def of(cls, thing: Thing) -> "Source":
        noun = noun_of(thing)
        return cls(thing.project_id, f"{noun.name}:{thing.id}", noun.words, f"{noun.sigil}{thing.iid}")

    @classmethod
    def of_commit(cls, project_id: int, oid: str, author: Context | None) -> "Source":
        return cls(project_id, f"commit:{oid}", "commit", f"@{oid}", author)

    def words(self, path: str | None) -> str:
        """`issue #12`; with the full path of its project where that is given."""
        return f"{self.noun} {self.name.removeprefix('@') if path is None else path + self.name}"


SOURCES = {"issue": Action.READ_ISSUE, "merge_request": Action.READ_MERGE_REQUEST, "commit": Action.READ_CODE}
"""The first word of `Note.source` → what lets somebody see such a source in its project."""


async def write_changes(context: Context, thing: Thing, before: Facts, *, by: str | None = None) -> None:
    """Writes a note for each thing that differs from before, and tells what a new description mentions.

    `by` is what changed the state, where that was no person: `commit FULLSHA`, `merge request !12`.
    """
    now, bodies = Facts.of(thing), []
    if now.state != before.state:
        bodies.append(status(now.state, by))
    if now.title != before.title:
        bodies.append(f"Title changed from **{before.title}** to **{now.title}**")
    if now.target_branch != before.target_branch:
        bodies.append(f"Target branch changed from `{before.target_branch}` to `{now.target_branch}`")
    if now.milestone_id != before.milestone_id:
        bodies.append(await _milestone(context, thing))
    if now.assignee_id != before.assignee_id:
        bodies.append(await _assignee(context, thing))
    rows = [note(context, target_of(thing), body) for body in bodies]
    if now.description != before.description:
        rows += await _mentioning(context, thing, now.description)
    await write(context, rows)


async def write_mentions(context: Context, thing: Thing, text: str | None) -> None:
    """Tells what a text of this thing's, its description or a note under it, mentions: each once, whoever mentions it again."""
    await write(context, await _mentioning(context, thing, text))


async def write_mentions_of(
    context: Context, project_id: int, found: Sequence[tuple[Source, list[Mention]]], meant: Mapping[Mention, Target]
) -> None:
    """The same for many sources of one project, with what each mentions and what that means."""
    await write(context, await _telling(context, project_id, found, meant))


async def seen(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """Those of the notes whose source the viewer may see, and those that name none: two statements whatever their number."""
    notes = list(notes)
    sources = await seen_projects(context, [note.source_project_id for note in notes if note.source_project_id is not None])
    found = await context.rows_by_id(tables.Project).get_many(sources)
    shown = {(key, kind) for key, project in found.items() for kind, action in SOURCES.items() if await may(context, action, project)}
    return [
        note for note in notes if note.source_project_id is None or (note.source_project_id, (note.source or "").partition(":")[0]) in shown
    ]


def status(state: IssueState | MergeRequestState, by: str | None = None) -> str:
    """`Status changed to closed`, ` by commit FULLSHA` where that is given."""
    word = "reopened" if state in (IssueState.OPENED, MergeRequestState.OPENED) else state
    return f"Status changed to {word}{f' by {by}' if by else ''}"


def source_of_change(source: Source, moment: datetime) -> str:
    """The value of `Note.source` for a change of state that a source made: a source may close the same issue again after it was
    reopened, so the moment, in microseconds, makes each one unique. A mention has the key alone and is noted once."""
    return f"{source.key}:{round(moment.timestamp() * 1_000_000)}"


def body_shower(external_url: str) -> Callable[[str, bool], str]:
    """A function that shows a note's body, by whether the service wrote it: links begin with the present address of the service.

    >>> body_shower("https://forge.example")("Milestone changed to [1.0](/ada/mill/milestones/1)", True)
    'Milestone changed to [1.0](https://forge.example/ada/mill/milestones/1)'
    """

    def linked(match: re.Match[str]) -> str:
        return f"]({external_url}{match[1]})"

    def show(body: str, system: bool) -> str:
        return _MILESTONE_LINK.sub(linked, body) if system and body.startswith(MILESTONE_CHANGED) else body

    return show


def target_of(thing: Thing) -> Target:
    return Target(noun_of(thing), thing.id, thing.project_id)


def note(context: Context, target: Target, body: str, **source: Any) -> dict[str, Any]:
    """The columns of a note under what is meant, by the context's viewer."""
    moment = context.now()
    dates = {"created_at": moment, "updated_at": moment}
    return {
        "project_id": target.project_id,
        target.noun.key: target.id,
        "author_id": context.viewer.id,
        "body": body,
        **dates,
        **source,
    }


async def write(context: Context, rows: list[dict[str, Any]]) -> None:
    """Writes the notes of `note`, in their order; none of a mention that is told already."""
    if rows:
        # What mentions comes before what is told of it.
        await context.session.flush()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        await context.session.execute(notes.write_system(context.services.database.dialect, rows[start : start + ROWS_AT_ONCE]))


async def _mentioning(context: Context, thing: Thing, text: str | None) -> list[dict[str, Any]]:
    """The notes for what the text mentions and the viewer may see; others stay untouched, as if they were not there."""
    named = mentioned(text or "")
    if not named:
        return []
    meant = await mentions.targets(context, thing.project_id, named)
    return await _telling(context, thing.project_id, [(Source.of(thing), named)], meant)


async def _telling(
    context: Context, project_id: int, found: Sequence[tuple[Source, list[Mention]]], meant: Mapping[Mention, Target]
) -> list[dict[str, Any]]:
    path = None
    if any(target.project_id != project_id for target in meant.values()):
        path = await full_path(context, await existing(context, tables.Project, project_id))
    told = [(source, target) for source, named in found for target in sorted({meant[each] for each in named if each in meant}, key=_order)]
    return [
        note(
            await _speaker(context, source, target),
            target,
            f"mentioned in {source.words(None if target.project_id == project_id else path)}",
            source_project_id=project_id,
            source=source.key,
        )
        for source, target in told
        if source.key != f"{target.noun.name}:{target.id}"
    ]


async def _speaker(context: Context, source: Source, target: Target) -> Context:
    if source.author is None:
        return context
    project = await existing(context, tables.Project, target.project_id)
    return source.author if await may(source.author, target.noun.read, project) else context


def _order(target: Target) -> tuple[str, int]:
    # Everybody writes under the same things in the same order, so nobody waits in a circle.
    return target.noun.name, target.id


async def _milestone(context: Context, thing: Thing) -> str:
    if thing.milestone_id is None:
        return "Milestone removed"
    milestone: tables.Milestone = await existing(context, tables.Milestone, thing.milestone_id)
    path = await full_path(context, await project_of(context, thing))
    # Without the address of the service, which may change: it is added where the note is read.
    return f"{MILESTONE_CHANGED}[{milestone.title}](/{path}/milestones/{milestone.iid})"


async def _assignee(context: Context, thing: Thing) -> str:
    if thing.assignee_id is None:
        return "Assignee removed"
    assignee: tables.User = await existing(context, tables.User, thing.assignee_id)
    return f"Reassigned to @{assignee.username}"
