"""Ref updates: their authorization and their effects, whether by a push, a mutation or a merge.

Branches follow the table of branch protection values of the interface document. Only masters may move or delete an existing tag, as in
the service that the document describes; the document is silent about tags.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from graph.context import Context, Services
from graph.errors import NotFound, Unavailable
from graph.events.publisher import publish_all
from graph.events.push_payloads import BranchPushed, TagPushed
from graph.operations.loaders import Loader
from graph.rules import settings
from graph.rules.ci import pipelines
from graph.rules.events import activities
from graph.rules.git import commit_index, indexed_commits, refs
from graph.rules.git.commit_index import RefUpdate
from graph.rules.issues import issue_closing
from graph.rules.merge_requests import moved_branches
from graph.rules.merge_requests.moved_branches import PreparedMergeRequests
from graph.rules.permissions.policy import Action, can
from graph.rules.validation import MAX_NAME_LENGTH, is_storable
from storage import tables
from storage.git.commits import GitCommit
from storage.git.protocol.push import PushDecision, PushRule, RefCommand
from storage.git.refs.ref_names import BRANCHES, TAGS, TYPED_ID, is_branch_name, is_ref_name
from storage.tables.git import protected_branches, releases
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects
from storage.tables.settings import BranchProtection


class BranchOperation(StrEnum):
    """An operation on a branch; creating one counts as pushing."""

    PUSH = "push"
    FORCE = "force"
    DELETE = "delete"


DEVELOPER_OPERATIONS: Mapping[BranchProtection, frozenset[BranchOperation]] = {
    BranchProtection.NONE: frozenset(BranchOperation),
    BranchProtection.PARTIAL: frozenset({BranchOperation.PUSH}),
    BranchProtection.FULL: frozenset(),
}
"""What developers may do to a branch with this protection; masters may do anything."""

REFUSAL_REASONS = {
    BranchOperation.PUSH: "You are not allowed to push to this protected branch.",
    BranchOperation.FORCE: "You are not allowed to force-push to this protected branch: fetch first, then merge or rebase.",
    BranchOperation.DELETE: "You are not allowed to delete this protected branch.",
}


async def authorize_updates(context: Context, project: tables.Project, updates: list[RefCommand]) -> list[PushDecision]:
    """The decision for each requested ref update; a refusal has its reason."""
    if not await can(context, Action.PUSH_CODE, project):
        return [_refuse(update, refusal_reason(project)) for update in updates]
    is_master = await can(context, Action.PUSH_PROTECTED, project)
    protections = await load_protections(context, project.id)
    return [_authorize_update(update, is_master, protections) for update in updates]


def refusal_reason(project: tables.Project) -> str:
    """Why the viewer may not push to this project at all."""
    return "The project is archived: nothing can be pushed." if project.archived else "You are not allowed to push to this project."


def _authorize_update(update: RefCommand, is_master: bool, protections: Mapping[str, BranchProtection]) -> PushDecision:
    name = update.ref.removeprefix(BRANCHES)
    if reason := _invalid_ref_reason(update):
        return _refuse(update, reason)
    if update.ref.startswith(TAGS):
        if update.old is None or is_master:
            return PushDecision(PushRule.ALLOW)
        return _refuse(update, "You are not allowed to change or delete existing tags.")
    allowed = frozenset(BranchOperation) if is_master else DEVELOPER_OPERATIONS[protections.get(name, BranchProtection.NONE)]
    operation = BranchOperation.DELETE if update.new is None else BranchOperation.PUSH
    if operation not in allowed:
        return _refuse(update, REFUSAL_REASONS[operation])
    if operation is BranchOperation.PUSH and update.old is not None and BranchOperation.FORCE not in allowed:
        return PushDecision(PushRule.FAST_FORWARD, f"{name}: {REFUSAL_REASONS[BranchOperation.FORCE]}")
    return PushDecision(PushRule.ALLOW)


def _refuse(update: RefCommand, reason: str) -> PushDecision:
    return PushDecision(PushRule.REJECT, f"{update.printable_ref.removeprefix(BRANCHES)}: {reason}")


def _invalid_ref_reason(update: RefCommand) -> str | None:
    """Why the ref may not be created; existing refs, as from an import, may be updated and deleted."""
    if not update.ref.startswith((BRANCHES, TAGS)):
        return "Only branches (refs/heads/) and tags (refs/tags/) can be pushed."
    if not is_storable(update.ref) or not is_ref_name(update.ref):
        return "This is not a valid branch or tag name."
    return None if update.old is not None or update.new is None else invalid_name_reason(update.ref)


def invalid_name_reason(ref: str) -> str | None:
    """Why a new branch or tag may not have this full name; None if it may."""
    name = ref.removeprefix(BRANCHES).removeprefix(TAGS)
    if len(name) > MAX_NAME_LENGTH:
        return f"The name is too long (maximum is {MAX_NAME_LENGTH} characters)."
    if TYPED_ID.fullmatch(name):
        return "A name of 40 hexadecimal digits is ambiguous with a commit id."
    # Tags follow the stricter rules of branches, because git commands would misread other names.
    return None if is_branch_name(name) else "This is not a valid branch or tag name."


async def load_protections(context: Context, project_id: int) -> Mapping[str, BranchProtection]:
    """The protected branches of a project by name; one statement for all projects of a level."""

    return await _protection_loader(context).get(project_id) or {}


def _protection_loader(context: Context) -> Loader[int, Mapping[str, BranchProtection]]:
    async def fetch(ids: list[int]) -> dict[int, dict[str, BranchProtection]]:
        found: dict[int, dict[str, BranchProtection]] = {key: {} for key in ids}
        for (row,) in await context.tuples(protected_branches.IN_PROJECTS, project_ids=ids):
            found[row.project_id][row.name] = BranchProtection.PARTIAL if row.developers_can_push else BranchProtection.FULL
        return found

    return context.loader("protected branches", fetch)


async def allowed_operations(context: Context, project: tables.Project, branch: str) -> frozenset[BranchOperation]:
    """What the viewer may do to a branch."""
    if not await can(context, Action.PUSH_CODE, project):
        return frozenset()
    if await can(context, Action.PUSH_PROTECTED, project):
        return frozenset(BranchOperation)
    return DEVELOPER_OPERATIONS[(await load_protections(context, project.id)).get(branch, BranchProtection.NONE)]


async def protect_branch(context: Context, project: tables.Project, branch: str, protection: BranchProtection) -> None:
    """Set the protection of a branch."""
    row = await context.first(protected_branches.named(project.id, [branch]))
    if protection is BranchProtection.NONE:
        if row is not None:
            await context.delete(row)
    else:
        open_to_developers = protection is BranchProtection.PARTIAL
        if row is None:
            await context.add(tables.ProtectedBranch(project_id=project.id, name=branch, developers_can_push=open_to_developers))
        elif row.developers_can_push != open_to_developers:
            row.developers_can_push, row.updated_at = open_to_developers, context.now()
            await context.session.flush()
    _protection_loader(context).clear(project.id)


@dataclass(frozen=True, slots=True)
class PreparedUpdates:
    """What git knows about ref updates before the transaction that makes them. All of it depends on commits only.

    `since` is the version of the refs at which objects were first looked for. `commits` are those that the index lacks.
    """

    ref_updates: tuple[RefUpdate, ...]
    merge_requests: PreparedMergeRequests
    since: int | None = None
    commits: tuple[GitCommit, ...] = ()

    @property
    def updates(self) -> list[RefCommand]:
        return [each.update for each in self.ref_updates]

    def only(self, updates: Collection[RefCommand]) -> "PreparedUpdates":
        """The same without the updates that are not among these."""
        return replace(self, ref_updates=tuple(each for each in self.ref_updates if each.update in updates))


async def prepare_updates(
    services: Services, project_id: int, updates: Sequence[RefCommand], *, since: int | None, merging_id: int | None = None
) -> PreparedUpdates:
    """Index the commits of ref updates, plan their pipelines, and compare their merge requests, outside of any writing transaction.

    `since` is the version of the refs that was read before any of the objects were looked for in the repository or written; None if nothing
    can have been deleted since then. `merging_id` is the merge request that the updates merge. The objects must be written and synced.
    Raises NotFound, Unavailable, NotARepository, GitCommandError.
    """
    if any(update.new is not None for update in updates):
        await refs.publish_objects(services, project_id)
    (indexed, unwritten), merge_requests = await asyncio.gather(
        commit_index.index_updates(services, project_id, updates),
        moved_branches.prepare(services, project_id, updates, merging_id=merging_id),
    )
    return PreparedUpdates(tuple(indexed), merge_requests, since, unwritten)


async def lock_projects(context: Context, project_id: int, prepared: PreparedUpdates, *others: int) -> tables.Project:
    """Lock the project and those whose merge requests the updates change, in the order of their ids.

    Raises NotFound, Unavailable, ObjectsDeleted.
    """
    found = await context.all(projects.all_for_update({project_id, *others, *prepared.merge_requests.project_ids}))
    project = next((each for each in found if each.id == project_id), None)
    if project is None:
        raise NotFound("Project")
    require_adopted(project)
    context.rows_by_id(tables.Project).prime(project.id, project)
    await require_objects(context, project, prepared)
    return project


async def require_objects(context: Context, project: tables.Project, prepared: PreparedUpdates) -> None:
    """Raises ObjectsDeleted if a collection may have deleted objects that the updates need, after they were looked for.

    The project is locked, or its commit finds out that it has changed.
    """
    needed = next((update for update in prepared.updates if update.new is not None), None)
    if needed is None or prepared.since is None:
        return
    if await refs.find_outdated(context, [(project.id, prepared.since)], {project.id: project.refs_version}):
        raise refs.ObjectsDeleted(needed)


def require_adopted(project: tables.Project) -> None:
    """Raises Unavailable if the refs of the project are not in the database."""
    if project.refs_version == 0:
        raise Unavailable(
            "The branches of this project could not be read at the start of the service. Ask an administrator to check its log."
        )


async def apply_updates(context: Context, locked: tables.Project, prepared: PreparedUpdates) -> None:
    """Move refs, with everything that follows, in the caller's transaction; every update of refs calls this.

    The caller has locked the projects and has found no conflicts. `context.viewer_or_none` is None for updates made outside of the service.
    Raises RefConflict.
    """
    updates = prepared.updates
    locked.last_activity_at = context.now()
    await _move_refs(context, locked, prepared)
    created = {update.ref.removeprefix(BRANCHES) for update in updates if update.old is None and update.ref.startswith(BRANCHES)}
    if locked.default_branch in created:
        await protect_default_branch(context, locked)
    await pipelines.create_pipelines(context, locked, prepared.ref_updates)
    commit_index.record_moves(context, locked.id, updates)
    if context.viewer_or_none is not None:
        await _notify(context, locked, prepared.ref_updates)
    await moved_branches.apply(context, locked, updates, prepared.merge_requests)


async def apply_imported(context: Context, locked: tables.Project, prepared: PreparedUpdates, head: str | None) -> None:
    """Move refs as the source of an import has moved them, with what the database derives from commits, but without effects of a push.

    `head` is the branch that HEAD of the source names. As `apply_updates` otherwise.
    """
    await _move_refs(context, locked, prepared)
    names = await refs.current(context, locked.id, [BRANCHES + head]) if head is not None and refs.can_be_default(head) else {}
    if names and head != locked.default_branch:
        locked.default_branch = head
        locked.refs_version = git_refs.next_version(locked.refs_version, context.now())
    commit_index.record_moves(context, locked.id, prepared.updates)
    await moved_branches.store_imported(context, locked, prepared.updates, prepared.merge_requests)


async def _move_refs(context: Context, locked: tables.Project, prepared: PreparedUpdates) -> None:
    """Move refs, delete what belongs to deleted ones, and choose a default branch if there is none."""
    updates = prepared.updates
    await refs.write_moves(context, locked, updates)
    indexed_commits.insert_commits(context.session, context.services, locked.id, prepared.commits)
    deleted = [update.ref.removeprefix(BRANCHES) for update in updates if update.new is None and update.ref.startswith(BRANCHES)]
    if deleted:
        keys = [{"of_project": locked.id, "branch": name} for name in deleted]
        # Without a lock only branches are deleted that were read as unprotected; the commit finds out whether they still are.
        if not all(context.require_later(protected_branches.UNPROTECTED, key) for key in keys):
            await context.session.execute(protected_branches.delete_named(locked.id, deleted))
            _protection_loader(context).clear(locked.id)
    deleted_tags = [update.ref.removeprefix(TAGS) for update in updates if update.new is None and update.ref.startswith(TAGS)]
    if deleted_tags:
        await context.session.execute(releases.delete_of_tags(locked.id, deleted_tags))
    if locked.default_branch is None or locked.default_branch in deleted:
        locked.default_branch = await refs.choose_default(context, locked)


async def _notify(context: Context, project: tables.Project, ref_updates: Sequence[RefUpdate]) -> None:
    """Publish the hook events of a push, record its activities, and apply the references in its commit messages."""
    for kind, folder in ((BranchPushed, BRANCHES), (TagPushed, TAGS)):
        await publish_all(context, kind, [(context, project, each) for each in ref_updates if each.update.ref.startswith(folder)])
    activities.record_pushes(context, project.id, ref_updates)
    for each in ref_updates:
        if each.mentioning:
            await issue_closing.close_after_push(context, project, each.mentioning)


async def protect_default_branch(context: Context, project: tables.Project) -> None:
    """Protect the new default branch as the instance settings say."""
    if project.default_branch is not None:
        protection = BranchProtection((await settings.load_settings(context)).default_branch_protection)
        if protection is not BranchProtection.NONE:
            await protect_branch(context, project, project.default_branch, protection)
