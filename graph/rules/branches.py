"""Branches and tags: the names that a repository gives to commits."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from graph.connections import Page, Window
from graph.context import Context
from graph.errors import BadRequest, NotFound
from graph.rules.commits import in_repository
from storage import tables
from storage.git.repository import Ref, Repository


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """A branch or a tag of one project."""

    project_id: int
    name: str
    oid: str


async def branches(context: Context, project: tables.Project, window: Window) -> Page:
    return _page(project, await in_repository(context, project.id, Repository.branches), window)


async def tags(context: Context, project: tables.Project, window: Window) -> Page:
    return _page(project, await in_repository(context, project.id, Repository.tags), window)


async def branch(context: Context, project: tables.Project, name: str | None) -> ProjectRef:
    """The branch of exactly this name, or the default one. Raises NotFound, Unavailable."""

    def work(repository: Repository) -> Ref | None:
        found = {ref.name: ref for ref in repository.branches()}
        if name is not None:
            return found.get(name)
        return found.get(project.default_branch or "") or found.get(repository.default_branch() or "")

    ref = await in_repository(context, project.id, work)
    if ref is None:
        raise NotFound("Branch")
    return ProjectRef(project.id, ref.name, ref.oid)


def _page(project: tables.Project, refs: Sequence[Ref], window: Window) -> Page:
    """A page of refs that are sorted by name; a cursor is a name, so pages stay exact while others come and go."""
    after = _name(window.after) if window.after is not None else None
    before = _name(window.before) if window.before is not None else None
    part = [ref for ref in refs if (after is None or ref.name.encode() > after) and (before is None or ref.name.encode() < before)]
    part = part[window.offset :]
    shown = part[max(len(part) - window.size, 0) :] if window.backward else part[: window.size]
    more = len(part) > window.size
    return Page(
        nodes=[ProjectRef(project.id, ref.name, ref.oid) for ref in shown],
        has_next=before is not None if window.backward else more,
        has_previous=more if window.backward else after is not None or window.offset > 0,
        cursor=lambda ref: base64.urlsafe_b64encode(orjson.dumps(["ref", ref.name])).decode().rstrip("="),
        count=lambda: len(refs),
    )


def _name(cursor: str) -> bytes:
    try:
        mark, name = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if mark != "ref":
            raise ValueError
        return bytes(name.encode())
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise BadRequest("This cursor is not one of this list.") from error
