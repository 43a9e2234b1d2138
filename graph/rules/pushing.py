"""Who may move which ref, and what follows once refs have moved: by a push, by a mutation, by a merge.

Branches follow the table of branch protection values of the interface document. An existing tag is for masters to move or delete, as
in the service that the document describes; about tags the document is silent.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from graph.context import Context
from graph.errors import NotFound
from graph.events.publish import publish_all
from graph.events.push_payloads import BranchPushed, TagPushed
from graph.loading import Loader
from graph.rules import closing, refreshing, settings
from graph.rules.ci import pipelines
from graph.rules.commits import in_repository
from graph.rules.indexing import BRANCHES as BRANCHES
from graph.rules.indexing import News, write_heads
from graph.rules.naming import LONGEST_NAME, storable
from graph.rules.policy import Action, may
from graph.rules.projects import point_head
from storage import tables
from storage.git.pushes import Rule, Update, Verdict
from storage.git.repository import Repository, is_branch_name, is_ref_name
from storage.tables import projects, protected_branches
from storage.tables.settings import BranchProtection

TAGS = "refs/tags/"
LOOKS_LIKE_AN_ID = re.compile(r"[0-9a-fA-F]{40}")


class Move(StrEnum):
    """What can be done to a branch; making it counts as pushing."""

    PUSH = "push"
    FORCE = "force"
    DELETE = "delete"


DEVELOPERS: Mapping[BranchProtection, frozenset[Move]] = {
    BranchProtection.NONE: frozenset(Move),
    BranchProtection.PARTIAL: frozenset({Move.PUSH}),
    BranchProtection.FULL: frozenset(),
}
"""What a branch of this protection lets those do who may push, but not push to protected branches. Who may that may do anything."""

REASONS = {
    Move.PUSH: "You are not allowed to push to this protected branch.",
    Move.FORCE: "You are not allowed to force-push to this protected branch: fetch what is there, and merge or rebase.",
    Move.DELETE: "You are not allowed to delete this protected branch.",
}


async def judge(context: Context, project: tables.Project, updates: list[Update]) -> list[Verdict]:
    """Which of these refs the viewer may move as asked; each refusal says why."""
    if not await may(context, Action.PUSH_CODE, project):
        return [_refused(update, refusal(project)) for update in updates]
    masters = await may(context, Action.PUSH_PROTECTED, project)
    protections = await protections_of(context, project.id)
    return [_judge_one(update, masters, protections) for update in updates]


def refusal(project: tables.Project) -> str:
    """Why somebody may not push here at all."""
    return "The project is archived: nothing can be pushed." if project.archived else "You are not allowed to push to this project."


def _judge_one(update: Update, masters: bool, protections: Mapping[str, BranchProtection]) -> Verdict:
    name = update.ref.removeprefix(BRANCHES)
    if reason := _bad_name(update):
        return _refused(update, reason)
    if update.ref.startswith(TAGS):
        if update.old is None or masters:
            return Verdict(Rule.ALLOW)
        return _refused(update, "You are not allowed to change or delete tags that exist.")
    allowed = frozenset(Move) if masters else DEVELOPERS[protections.get(name, BranchProtection.NONE)]
    wanted = Move.DELETE if update.new is None else Move.PUSH
    if wanted not in allowed:
        return _refused(update, REASONS[wanted])
    if wanted is Move.PUSH and update.old is not None and Move.FORCE not in allowed:
        return Verdict(Rule.FORWARD, f"{name}: {REASONS[Move.FORCE]}")
    return Verdict(Rule.ALLOW)


def _refused(update: Update, reason: str) -> Verdict:
    shown = update.ref.removeprefix(BRANCHES).encode("utf-8", "replace").decode()
    return Verdict(Rule.REFUSE, f"{shown}: {reason}")


def _bad_name(update: Update) -> str | None:
    """Why no ref may get this name; one that is there already, from an import, may go on and go."""
    if not update.ref.startswith((BRANCHES, TAGS)):
        return "Only branches (refs/heads/) and tags (refs/tags/) can be pushed."
    if not storable(update.ref) or not is_ref_name(update.ref):
        return "This is not a name that a branch or tag can have."
    return None if update.old is not None or update.new is None else bad_name(update.ref)


def bad_name(ref: str) -> str | None:
    """What speaks against a new branch or tag of this whole name; None when nothing does."""
    name = ref.removeprefix(BRANCHES).removeprefix(TAGS)
    if len(name) > LONGEST_NAME:
        return f"The name is too long (maximum is {LONGEST_NAME} characters)."
    if LOOKS_LIKE_AN_ID.fullmatch(name):
        return "A name of 40 hexadecimal digits would be taken for a commit."
    # What git lets nobody call a branch is no good name for a tag either: every command would take it for something else.
    return None if is_branch_name(name) else "This is not a name that a branch or tag can have."


async def protections_of(context: Context, project_id: int) -> Mapping[str, BranchProtection]:
    """The protected branches of a project, by name; one statement for all the projects of a level."""

    return await _protections(context).get(project_id) or {}


def _protections(context: Context) -> Loader[int, Mapping[str, BranchProtection]]:
    async def fetch(ids: list[int]) -> dict[int, dict[str, BranchProtection]]:
        found: dict[int, dict[str, BranchProtection]] = {key: {} for key in ids}
        for row in await context.all(protected_branches.in_projects(ids)):
            found[row.project_id][row.name] = BranchProtection.PARTIAL if row.developers_can_push else BranchProtection.FULL
        return found

    return context.loader("protected branches", fetch)


async def moves_of(context: Context, project: tables.Project, branch: str) -> frozenset[Move]:
    """What the viewer may do to a branch."""
    if not await may(context, Action.PUSH_CODE, project):
        return frozenset()
    if await may(context, Action.PUSH_PROTECTED, project):
        return frozenset(Move)
    return DEVELOPERS[(await protections_of(context, project.id)).get(branch, BranchProtection.NONE)]


async def protect(context: Context, project: tables.Project, branch: str, protection: BranchProtection) -> None:
    """Gives a branch this protection, whatever it had."""
    row = await context.first(protected_branches.named(project.id, [branch]))
    if protection is BranchProtection.NONE:
        if row is not None:
            await context.session.delete(row)
            await context.session.flush()
    else:
        open_to_developers = protection is BranchProtection.PARTIAL
        if row is None:
            await context.add(tables.ProtectedBranch(project_id=project.id, name=branch, developers_can_push=open_to_developers))
        elif row.developers_can_push != open_to_developers:
            row.developers_can_push, row.updated_at = open_to_developers, context.now()
            await context.session.flush()
    _protections(context).forget(project.id)


async def pushed(context: Context, project: tables.Project, updates: list[Update], news: Sequence[News]) -> None:
    """What follows when refs have moved, whoever moved them: the one place for it. Runs in a writing transaction.

    The updates are facts: the repository has them already, and nothing here takes them back. `news` are what `indexing.index` gave
    for them, before the transaction. Nobody may have moved them (`context.viewer_or_none`): then it was done behind the service's back.
    """
    held = await context.first(projects.held(project.id))
    if held is None:
        raise NotFound("Project")
    held.last_activity_at = context.now()
    changed = [update for update in updates if update.ref.startswith(BRANCHES)]
    gone = [update.ref.removeprefix(BRANCHES) for update in changed if update.new is None]
    if gone:
        await context.session.execute(protected_branches.forget(held.id, gone))
        _protections(context).forget(held.id)
    made = {update.ref.removeprefix(BRANCHES) for update in changed if update.old is None and update.new is not None}
    if held.default_branch is None or held.default_branch in gone:
        await _choose_default_branch(context, held)
    if held.default_branch in made:
        await protect_default_branch(context, held)
    await context.session.flush()
    await refreshing.moved(context, held, updates)
    await pipelines.begin(context, held, news)
    # After its builds were made, so that a head at no moment seems to have none.
    await write_heads(context, held.id, news)
    if context.viewer_or_none is not None:
        await _tell(context, held, news)


async def _tell(context: Context, project: tables.Project, news: Sequence[News]) -> None:
    """Tells hooks what somebody pushed, and issues what the commits say of them."""
    for kind, refs in ((BranchPushed, BRANCHES), (TagPushed, TAGS)):
        await publish_all(context, kind, [(context, project, each) for each in news if each.update.ref.startswith(refs)])
    for each in news:
        if each.mentioning:
            await closing.by_push(context, project, each.mentioning)


async def protect_default_branch(context: Context, project: tables.Project) -> None:
    """Gives the default branch, which has just come, the protection that the instance's settings say."""
    if project.default_branch is not None:
        wanted = BranchProtection((await settings.current(context)).default_branch_protection)
        if wanted is not BranchProtection.NONE:
            await protect(context, project, project.default_branch, wanted)


async def _choose_default_branch(context: Context, project: tables.Project) -> None:
    """The branch that HEAD names, or another where that is not there; HEAD follows after the commit, so that clones agree."""
    name = await in_repository(context, project.id, Repository.default_branch)
    if name is not None and (len(name) > LONGEST_NAME or not is_branch_name(name)):
        name = None
    project.default_branch = name
    if name is not None:
        point_head(context, project.id, name)
