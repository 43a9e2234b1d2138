"""The objects that imported system notes refer to, which the source names only in their bodies.

`Note.source` decides who may see such a note, and that a mention is noted once (graph/rules/notes/system_notes.py).
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graph.context import Context
from graph.rules.notes import mentions
from graph.rules.notes.mentions import MENTIONABLE_KINDS, PATH_SEGMENT
from storage.tables.projects import projects

_REFERENCE = re.compile(
    r"[*_]?(?:(?P<mentioned>mentioned in)|Status changed to \w+ by|(?:closed|merged) via) (?P<noun>issue|merge request|commit) "
    rf"(?:(?P<namespace>{PATH_SEGMENT}(?:/{PATH_SEGMENT}){{0,20}})/(?P<path>{PATH_SEGMENT})(?=[#!@]))?"
    r"(?:[#!](?P<iid>[1-9][0-9]{0,9})|@?(?P<oid>[0-9a-f]{40}|[0-9a-f]{64}))[*_]?\.?\Z"
)
"""The bodies of system notes of this service and of GitLab, in later versions of which groups may be nested."""


class NoteReference(NamedTuple):
    """What a system note names: an issue or a merge request by its number, or a commit by its id.

    `project` are the path keys of its project, None for that of the note. `mentioned` is false if it closed the noteable.
    """

    noun: str
    project: tuple[str, str] | None
    iid: int | None
    oid: str | None
    mentioned: bool


class ResolvedSource(NamedTuple):
    """The columns `source_project_id` and `source` of a note; for a change of state a suffix makes `key` unique."""

    project_id: int
    key: str
    mentioned: bool


def parse_reference(body: str) -> NoteReference | None:
    """The object that the body of a system note names.

    >>> parse_reference("mentioned in merge request ada/mill!3")
    NoteReference(noun='merge_request', project=('ada', 'mill'), iid=3, oid=None, mentioned=True)
    >>> parse_reference("Status changed to closed by issue #x")
    """
    found = _REFERENCE.match(body.strip())
    if found is None:
        return None
    # Groups here do not nest: the group `a/b` is imported as `a-b`.
    project = (found["namespace"].replace("/", "-").lower(), found["path"].lower()) if found["path"] else None
    iid = int(found["iid"]) if found["iid"] else None
    if (iid is None) != (found["noun"] == "commit"):
        return None
    return NoteReference(found["noun"].replace(" ", "_"), project, iid, found["oid"], found["mentioned"] is not None)


async def resolve(context: Context, references: Iterable[tuple[int, NoteReference]]) -> Mapping[tuple[int, NoteReference], ResolvedSource]:
    """The sources of references, given with the project of their note; one of an unknown project is absent.

    An issue or merge request that does not exist yet has its number as key, so that only those who may see its project see the note.
    """
    distinct = set(references)
    paths = await mentions.load_project_ids(context, {each.project for _, each in distinct if each.project is not None})
    owners = {key: key[0] if key[1].project is None else paths.get(key[1].project) for key in distinct}
    existing: dict[tuple[str, int, int], int] = {}
    for kind in MENTIONABLE_KINDS:
        numbers: dict[int, set[int]] = {}
        for (_, each), owner_id in owners.items():
            if owner_id is not None and each.noun == kind.name and each.iid is not None:
                numbers.setdefault(owner_id, set()).add(each.iid)
        if numbers:
            rows = await context.tuples(projects.ids_by_iid(kind.table, numbers, key_share=True))
            existing |= {(kind.name, owner_id, iid): key for key, owner_id, iid in rows}
    found = {}
    for key, owner_id in owners.items():
        if owner_id is not None:
            each = key[1]
            name = each.oid if each.iid is None else existing.get((each.noun, owner_id, each.iid)) or f"#{each.iid}"
            found[key] = ResolvedSource(owner_id, f"{each.noun}:{name}", each.mentioned)
    return found
