"""How texts name issues and merge requests, and which of them somebody sees: `#12`, `!3`, `group/project#12`, `group/project!3`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from graph.context import Context
from graph.rules import lookup
from graph.rules.policy import Action, can, filter_visible_projects
from storage import tables
from storage.tables import projects
from storage.tables.base import Row

MAX_SCANNED_CHARACTERS = 100_000
"""Characters of a text that are looked through."""
MAX_MENTIONS = 50
"""Different things that one text can mention."""
PATH_SEGMENT = r"[A-Za-z0-9_.-]{1,255}"
"""A part of a full path, as texts have it."""
MENTION_PATTERN = re.compile(
    rf"(?<![\w./#!&-])(?:(?P<namespace>{PATH_SEGMENT})/(?P<path>{PATH_SEGMENT}))?(?P<sigil>[#!])(?P<iid>[1-9][0-9]{{0,9}})(?!\w)"
)
"""Where a word begins is the only place that is tried, so reading takes time in line with the length."""


class Mention(NamedTuple):
    """What a text names: its number, the path keys of another project, or None for the text's own, and the sign of its noun."""

    project: tuple[str, str] | None
    iid: int
    sigil: str = "#"


@dataclass(frozen=True)
class MentionableKind:
    """What texts can name. `sigil` is its sign, `name` its word in keys, `display_name` in notes, `read_action` the action of seeing
    one."""

    table: type[Row]
    name: str
    sigil: str
    read_action: Action

    @property
    def display_name(self) -> str:
        return self.name.replace("_", " ")

    @property
    def foreign_key(self) -> str:
        """The foreign key of `Note` that names such a thing."""
        return f"{self.name}_id"


ISSUE = MentionableKind(tables.Issue, "issue", "#", Action.READ_ISSUE)
MERGE_REQUEST = MentionableKind(tables.MergeRequest, "merge_request", "!", Action.READ_MERGE_REQUEST)
MENTIONABLE_KINDS = (ISSUE, MERGE_REQUEST)


class MentionTarget(NamedTuple):
    """What a mention means."""

    kind: MentionableKind
    id: int
    project_id: int


def kind_of(thing: tables.Issue | tables.MergeRequest) -> MentionableKind:
    return ISSUE if isinstance(thing, tables.Issue) else MERGE_REQUEST


def parse_mentions(string: str) -> list[Mention]:
    """What a text names, in its order, each once.

    >>> parse_mentions("As #2 and Group/App!3 say, see #2")
    [Mention(project=None, iid=2, sigil='#'), Mention(project=('group', 'app'), iid=3, sigil='!')]
    """
    found: dict[Mention, None] = {}
    if "#" not in string and "!" not in string:
        return []
    for match in MENTION_PATTERN.finditer(string, 0, MAX_SCANNED_CHARACTERS):
        iid = lookup.parse_id(match["iid"])
        if match.end() == MAX_SCANNED_CHARACTERS < len(string) or len(found) == MAX_MENTIONS:
            # A number that the end cuts off would be another one.
            break
        if iid is not None:
            project = (match["namespace"].lower(), match["path"].lower()) if match["path"] else None
            found[Mention(project, iid, match["sigil"])] = None
    return list(found)


async def resolve_targets(context: Context, project_id: int, mentions: Iterable[Mention]) -> dict[Mention, MentionTarget]:
    """What the mentions in texts of this project mean, of what the viewer may see; the rest is left out, as if it were not there.

    A few statements, whatever the number of mentions.
    """
    unique_mentions = set(mentions)
    paths = await load_project_ids(context, {mention.project for mention in unique_mentions if mention.project is not None})
    project_ids = {mention: project_id if mention.project is None else paths.get(mention.project) for mention in unique_mentions}
    visible_ids = await filter_visible_projects(context, [place for place in set(project_ids.values()) if place is not None])
    rows = await context.rows_by_id(tables.Project).get_many(visible_ids)
    found: dict[Mention, MentionTarget] = {}
    for kind in MENTIONABLE_KINDS:
        readable_ids = {key for key, project in rows.items() if await can(context, kind.read_action, project)}
        candidates = {mention: place for mention, place in project_ids.items() if mention.sigil == kind.sigil and place in readable_ids}
        numbers: dict[int, set[int]] = {}
        for mention, place in candidates.items():
            numbers.setdefault(place or 0, set()).add(mention.iid)
        if numbers:
            existing = {
                (place, iid): key for key, place, iid in await context.tuples(projects.ids_by_iid_for_key_share(kind.table, numbers))
            }
            for mention, place in candidates.items():
                key = existing.get((place, mention.iid))
                if key is not None:
                    found[mention] = MentionTarget(kind, key, place or 0)
    return found


async def load_project_ids(context: Context, paths: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of the projects of these path keys, whoever may see them."""
    if not paths:
        return {}
    found = {}
    for namespace, project in await context.tuples(projects.of_path_keys(sorted(paths))):
        if (key := (namespace, project.path_key)) in paths:
            found[key] = project.id
            context.rows_by_id(tables.Project).prime_if_absent(project.id, project)
    return found
