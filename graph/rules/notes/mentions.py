"""Mentions of issues and merge requests: `#12`, `!3`, `group/project#12`, `group/project!3`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from graph.context import Context
from graph.rules import lookup
from graph.rules.permissions.policy import Action, can, filter_visible_projects
from storage import tables
from storage.tables.base import Row
from storage.tables.projects import projects

MAX_SCANNED_CHARACTERS = 100_000
"""Characters of a string that are scanned."""
MAX_MENTIONS = 50
"""Distinct mentions per string."""
PATH_SEGMENT = r"[A-Za-z0-9_.-]{1,255}"
"""Pattern of a segment of a full path."""
MENTION_PATTERN = re.compile(
    rf"(?<![\w./#!&-])(?:(?P<namespace>{PATH_SEGMENT})/(?P<path>{PATH_SEGMENT}))?(?P<sigil>[#!])(?P<iid>[1-9][0-9]{{0,9}})(?!\w)"
)
"""Matches are tried only at the beginning of a word, so the time is proportional to the length."""


class Mention(NamedTuple):
    """A mention: path keys of the project (None for the current one), `iid`, and sigil of the kind."""

    project: tuple[str, str] | None
    iid: int
    sigil: str = "#"


@dataclass(frozen=True)
class MentionableKind:
    """A kind of object that can be mentioned.

    `sigil` is its character in mentions, `name` its name in keys, `display_name` its name in notes, `read_action` the action that reads
    one.
    """

    table: type[Row]
    name: str
    sigil: str
    read_action: Action

    @property
    def display_name(self) -> str:
        return self.name.replace("_", " ")

    @property
    def foreign_key(self) -> str:
        """The foreign key column of `Note` for this kind."""
        return f"{self.name}_id"


ISSUE = MentionableKind(tables.Issue, "issue", "#", Action.READ_ISSUE)
MERGE_REQUEST = MentionableKind(tables.MergeRequest, "merge_request", "!", Action.READ_MERGE_REQUEST)
MENTIONABLE_KINDS = (ISSUE, MERGE_REQUEST)


class MentionTarget(NamedTuple):
    """The object that a mention refers to."""

    kind: MentionableKind
    id: int
    project_id: int


def kind_of(issuable: tables.Issue | tables.MergeRequest) -> MentionableKind:
    return ISSUE if isinstance(issuable, tables.Issue) else MERGE_REQUEST


def parse_mentions(string: str) -> list[Mention]:
    """The mentions in a string, in order, without duplicates.

    >>> parse_mentions("As #2 and Group/App!3 say, see #2")
    [Mention(project=None, iid=2, sigil='#'), Mention(project=('group', 'app'), iid=3, sigil='!')]
    """
    found: dict[Mention, None] = {}
    if "#" not in string and "!" not in string:
        return []
    for match in MENTION_PATTERN.finditer(string, 0, MAX_SCANNED_CHARACTERS):
        iid = lookup.parse_id(match["iid"])
        if match.end() == MAX_SCANNED_CHARACTERS < len(string) or len(found) == MAX_MENTIONS:
            # A number cut off by the limit would refer to another object.
            break
        if iid is not None:
            project = (match["namespace"].lower(), match["path"].lower()) if match["path"] else None
            found[Mention(project, iid, match["sigil"])] = None
    return list(found)


async def resolve_targets(context: Context, project_id: int, mentions: Iterable[Mention]) -> dict[Mention, MentionTarget]:
    """Resolve mentions in strings of this project to objects that the viewer may see; others are absent.

    The number of statements does not depend on the number of mentions.
    """
    unique_mentions = set(mentions)
    paths = await load_project_ids(context, {mention.project for mention in unique_mentions if mention.project is not None})
    project_ids = {mention: project_id if mention.project is None else paths.get(mention.project) for mention in unique_mentions}
    visible_ids = await filter_visible_projects(context, [key for key in set(project_ids.values()) if key is not None])
    rows = await context.rows_by_id(tables.Project).get_many(visible_ids)
    found: dict[Mention, MentionTarget] = {}
    for kind in MENTIONABLE_KINDS:
        readable_ids = {key for key, project in rows.items() if await can(context, kind.read_action, project)}
        candidates = {
            mention: owner_id for mention, owner_id in project_ids.items() if mention.sigil == kind.sigil and owner_id in readable_ids
        }
        numbers: dict[int, set[int]] = {}
        for mention, owner_id in candidates.items():
            numbers.setdefault(owner_id or 0, set()).add(mention.iid)
        if numbers:
            # The lock prevents that they are deleted before the notes on them are written; without it the commit finds that out.
            statement = projects.ids_by_iid(kind.table, numbers, key_share=not context.locks_at_commit)
            existing = {(owner_id, iid): key for key, owner_id, iid in await context.tuples(statement)}
            for mention, owner_id in candidates.items():
                key = existing.get((owner_id, mention.iid))
                if key is not None:
                    found[mention] = MentionTarget(kind, key, owner_id or 0)
    return found


async def load_project_ids(context: Context, paths: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of projects by path key, without checking permissions."""
    if not paths:
        return {}
    found = {}
    for namespace, project in await context.tuples(projects.of_path_keys(sorted(paths))):
        if (key := (namespace, project.path_key)) in paths:
            found[key] = project.id
            context.rows_by_id(tables.Project).prime_if_absent(project.id, project)
    return found
