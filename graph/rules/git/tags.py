"""Tags: listing, lookup, creation and deletion."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.fields.connection_pages import ConnectionPage, Window
from graph.operations.loaders import Loader
from graph.rules import validation
from graph.rules.branches import branches
from graph.rules.branches.branches import ProjectRef
from graph.rules.git import ref_updates, refs, releases
from graph.rules.git.commits import run_in_repository
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.git.commit_writer import CommitSignature
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import TAGS
from storage.git.repository import Ref, Repository
from storage.git.tag_objects import read_message, write_tag


@dataclass(frozen=True, slots=True)
class TagRef(ProjectRef):
    """A tag. `oid` is its commit, `target` the object that it refers to: for an annotated tag a tag object, else the commit."""

    target: str

    @classmethod
    def of(cls, project_id: int, ref: Ref, target: str) -> Self:
        return cls(project_id, ref.name, ref.oid, target)


async def list_tags(context: Context, project: tables.Project, window: Window, *, descending: bool) -> ConnectionPage:
    found = await branches.list_refs(context, project.id, Repository.tags, TAGS, TagRef)
    return branches.page_of_refs(found, window, "tag", descending=descending)


async def tag_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """Like `branches.branch_nodes`, for tags."""
    return await branches.load_ref_nodes(context, keys, Repository.tags, TAGS, TagRef)


async def get_tag(context: Context, project: tables.Project, name: str) -> TagRef:
    """The tag with exactly this name. Raises NotFound, Unavailable."""
    known = await refs.named(context, project.id, TAGS + name)
    found = await branches.peel_refs(context, project.id, Repository.tags, known)
    if not found:
        raise NotFound("Tag")
    return TagRef.of(project.id, found[0], known[TAGS + name])


async def load_message(context: Context, tag: TagRef) -> str | None:
    """The message of an annotated tag; None for others. Those of a level are read together. Raises Unavailable."""

    async def fetch(keys: list[tuple[int, str]]) -> Mapping[tuple[int, str], str | None]:
        found: dict[tuple[int, str], str | None] = {}
        for project_id in {project_id for project_id, _ in keys}:
            oids = [oid for owner, oid in keys if owner == project_id]
            messages = await run_in_repository(context, project_id, partial(_read_messages, oids), cancellable=True)
            context.count_text(*messages.values())
            found |= {(project_id, oid): message for oid, message in messages.items()}
        return found

    if tag.target == tag.oid:
        return None
    messages: Loader[tuple[int, str], str | None] = context.loader("tag messages", fetch)
    return await messages.get((tag.project_id, tag.target))


def _read_messages(oids: list[str], repository: Repository) -> dict[str, str | None]:
    return {oid: read_message(repository, oid) for oid in oids}


async def create_tag(
    context: Context, project: tables.Project, name: str, start: str, *, message: str | None, release_description: str | None
) -> TagRef:
    """Create a tag at the commit that `start` names, with the effects of a push; an annotated one if there is a message.

    Raises Required, Invalid, Taken, Conflict, Forbidden, Unavailable.
    """
    name = validation.validate_title("name", name)
    if reason := ref_updates.invalid_name_reason(TAGS + name):
        raise Invalid("name", reason)
    if message is not None:
        validation.validate_string("message", message)
    signature = CommitSignature(context.viewer.name, context.viewer.email, context.now())

    def work(repository: Repository) -> tuple[str, str] | None:
        oid = repository.resolve(start)
        if oid is None:
            return None
        return oid, oid if message is None or not message.strip() else write_tag(repository, oid, name, message, signature)

    known = await refs.of_revisions(context, project.id, start)
    found = await run_in_repository(context, project.id, work, refs=known)
    if found is None:
        raise Invalid("ref", "is not a branch, a tag or a commit of the repository")
    commit, target = found
    update = RefCommand(TAGS + name, None, target)
    await branches.move_ref(context, project, update, partial(branches.authorize_move, context, update))
    if release_description is not None and release_description.strip():
        await releases.add_release(context, project, name, release_description)
    return TagRef(project.id, name, commit, target)


async def delete_tag(context: Context, project: tables.Project, name: str) -> TagRef:
    """Delete the tag and its release, with the effects of a push; returns its last state.

    The caller may push. Unlike by a push, developers may delete tags too. Raises NotFound, Conflict, Unavailable.
    """
    tag = await get_tag(context, project, name)
    await branches.move_ref(context, project, RefCommand(TAGS + name, tag.target, None), partial(require, context, Action.PUSH_CODE))
    return tag
