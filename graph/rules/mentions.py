"""How texts name issues and merge requests, and which of them somebody sees: `#12`, `!3`, `group/project#12`, `group/project!3`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from graph.context import Context
from graph.rules import finding
from graph.rules.policy import Action, may, seen_projects
from storage import tables
from storage.tables import projects
from storage.tables.base import Row

LONGEST_READ = 100_000
"""Characters of a text that are looked through."""
MOST_MENTIONS = 50
"""Different things that one text can mention."""
NAME = r"[A-Za-z0-9_.-]{1,255}"
"""A part of a full path, as texts have it."""
MENTION = re.compile(rf"(?<![\w./#!&-])(?:(?P<namespace>{NAME})/(?P<path>{NAME}))?(?P<sigil>[#!])(?P<iid>[1-9][0-9]{{0,9}})(?!\w)")
"""Where a word begins is the only place that is tried, so reading takes time in line with the length."""


class Mention(NamedTuple):
    """What a text names: its number, the path keys of another project, or None for the text's own, and the sign of its noun."""

    project: tuple[str, str] | None
    iid: int
    sigil: str = "#"


@dataclass(frozen=True)
class Noun:
    """What texts can name. `sigil` is its sign, `name` its word in keys, `words` in notes, `read` the action of seeing one."""

    table: type[Row]
    name: str
    sigil: str
    read: Action

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    @property
    def key(self) -> str:
        """The foreign key of `Note` that names such a thing."""
        return f"{self.name}_id"


ISSUE = Noun(tables.Issue, "issue", "#", Action.READ_ISSUE)
MERGE_REQUEST = Noun(tables.MergeRequest, "merge_request", "!", Action.READ_MERGE_REQUEST)
NOUNS = (ISSUE, MERGE_REQUEST)


class Target(NamedTuple):
    """What a mention means."""

    noun: Noun
    id: int
    project_id: int


def noun_of(thing: tables.Issue | tables.MergeRequest) -> Noun:
    return ISSUE if isinstance(thing, tables.Issue) else MERGE_REQUEST


def mentioned(text: str) -> list[Mention]:
    """What a text names, in its order, each once.

    >>> mentioned("As #2 and Group/App!3 say, see #2")
    [Mention(project=None, iid=2, sigil='#'), Mention(project=('group', 'app'), iid=3, sigil='!')]
    """
    found: dict[Mention, None] = {}
    if "#" not in text and "!" not in text:
        return []
    for match in MENTION.finditer(text, 0, LONGEST_READ):
        iid = finding.as_id(match["iid"])
        if match.end() == LONGEST_READ < len(text) or len(found) == MOST_MENTIONS:
            # A number that the end cuts off would be another one.
            break
        if iid is not None:
            project = (match["namespace"].lower(), match["path"].lower()) if match["path"] else None
            found[Mention(project, iid, match["sigil"])] = None
    return list(found)


async def targets(context: Context, project_id: int, mentions: Iterable[Mention]) -> dict[Mention, Target]:
    """What the mentions in texts of this project mean, of what the viewer may see; the rest is left out, as if it were not there.

    A few statements, whatever the number of mentions.
    """
    wanted = set(mentions)
    paths = await ids_of(context, {mention.project for mention in wanted if mention.project is not None})
    places = {mention: project_id if mention.project is None else paths.get(mention.project) for mention in wanted}
    seen = await seen_projects(context, [place for place in set(places.values()) if place is not None])
    rows = await context.rows_by_id(tables.Project).get_many(seen)
    found: dict[Mention, Target] = {}
    for noun in NOUNS:
        shown = {key for key, project in rows.items() if await may(context, noun.read, project)}
        asked = {mention: place for mention, place in places.items() if mention.sigil == noun.sigil and place in shown}
        numbers: dict[int, set[int]] = {}
        for mention, place in asked.items():
            numbers.setdefault(place or 0, set()).add(mention.iid)
        if numbers:
            there = {(place, iid): key for key, place, iid in await context.tuples(projects.numbered(noun.table, numbers))}
            for mention, place in asked.items():
                key = there.get((place, mention.iid))
                if key is not None:
                    found[mention] = Target(noun, key, place or 0)
    return found


async def ids_of(context: Context, paths: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of the projects of these path keys, whoever may see them."""
    if not paths:
        return {}
    found = {}
    for namespace, project in await context.tuples(projects.of_path_keys(sorted(paths))):
        if (key := (namespace, project.path_key)) in paths:
            found[key] = project.id
            context.rows_by_id(tables.Project).offer(project.id, project)
    return found
