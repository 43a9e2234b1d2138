"""Who may do what: one table, action → rule. Nothing else compares access levels.

The table follows the interface document's section Authentication and, where that is silent, the roles of the service it describes.
A project that the viewer may not see is not found; one that is seen without the right is forbidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import or_

from graph.context import Context
from graph.errors import Forbidden
from graph.operations.loaders import Loader
from storage import tables
from storage.tables import AccessLevel, members, snippets
from storage.tables.base import Row

R = TypeVar("R", bound=Row)


class Action(StrEnum):
    """What a viewer may be allowed to do, as `noun:verb`."""

    READ_PROJECT = "project:read"
    UPDATE_PROJECT = "project:update"
    OWN_PROJECT = "project:own"
    READ_ISSUE = "issue:read"
    CREATE_ISSUE = "issue:create"
    UPDATE_ISSUE = "issue:update"
    TRIAGE_ISSUE = "issue:triage"
    READ_NOTE = "note:read"
    CREATE_NOTE = "note:create"
    UPDATE_NOTE = "note:update"
    READ_SNIPPET = "snippet:read"
    CREATE_SNIPPET = "snippet:create"
    UPDATE_SNIPPET = "snippet:update"
    CREATE_UPLOAD = "upload:create"
    FIND_UPLOAD = "upload:find"
    READ_CODE = "code:read"
    PUSH_CODE = "code:push"
    PUSH_PROTECTED = "code:push_protected"
    PROTECT_BRANCH = "branch:protect"
    COMMENT_COMMIT = "commit:comment"
    READ_CHECKS = "commit:read_checks"
    WRITE_CHECKS = "commit:write_checks"
    READ_BUILD = "build:read"
    CREATE_BUILD = "build:create"
    UPDATE_BUILD = "build:update"
    ADMIN_RUNNER = "runner:admin"
    READ_MERGE_REQUEST = "merge_request:read"
    CREATE_MERGE_REQUEST = "merge_request:create"
    UPDATE_MERGE_REQUEST = "merge_request:update"
    TRIAGE_MERGE_REQUEST = "merge_request:triage"
    FORK_PROJECT = "project:fork"
    READ_LABEL = "label:read"
    ADMIN_LABEL = "label:admin"
    READ_MILESTONE = "milestone:read"
    ADMIN_MILESTONE = "milestone:admin"
    READ_PROJECT_MEMBER = "project_member:read"
    ADMIN_PROJECT_MEMBER = "project_member:admin"
    READ_GROUP = "group:read"
    UPDATE_GROUP = "group:update"
    DELETE_GROUP = "group:delete"
    ADMIN_GROUP_MEMBER = "group_member:admin"
    CREATE_PROJECT = "group:create_project"
    CREATE_GROUP = "instance:create_group"
    ADMIN_USERS = "instance:admin_users"
    ADMIN_HOOKS = "instance:admin_hooks"
    ADMIN_SETTINGS = "instance:admin_settings"
    READ_ACCOUNT = "account:read"
    ADMIN_RUNNERS = "instance:admin_runners"
    TRANSFER_PROJECT = "instance:transfer_project"
    IMPORT_REPOSITORY = "instance:import_repository"


@dataclass(frozen=True)
class PolicyRule:
    """`min_level` is the least access level of a member. `includes_non_members`: any signed-in viewer of an internal or public project may
    as well, unless the thing itself is private; `visibility_switch` names the column of the project by which it gives this away or does
    not. `includes_author`: the author or assignee of the thing may, whatever their level. `feature` names the switch of the project that
    must be on, `any_feature` those of which one must be on; `requires_unarchived`: nobody may while the project is only kept.
    `includes_anonymous`: of a public project even who is not signed in may, at the doors that take such callers."""

    min_level: AccessLevel
    includes_non_members: bool = False
    includes_author: bool = False
    feature: str | None = None
    any_feature: tuple[str, ...] = ()
    requires_unarchived: bool = False
    includes_anonymous: bool = False
    visibility_switch: str | None = None


PROJECT_LEVELS_LOADER = "project levels"
"""The name of the loader."""

TRACKER_FEATURES = ("issues_enabled", "merge_requests_enabled")
"""What labels and milestones are for: they go only where both are switched off."""

RULES: dict[Action, PolicyRule] = {
    Action.READ_PROJECT: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.UPDATE_PROJECT: PolicyRule(AccessLevel.MASTER),
    Action.OWN_PROJECT: PolicyRule(AccessLevel.OWNER),
    Action.READ_ISSUE: PolicyRule(AccessLevel.GUEST, includes_non_members=True, feature="issues_enabled"),
    Action.CREATE_ISSUE: PolicyRule(AccessLevel.GUEST, includes_non_members=True, feature="issues_enabled"),
    Action.UPDATE_ISSUE: PolicyRule(AccessLevel.REPORTER, includes_author=True, feature="issues_enabled"),
    Action.TRIAGE_ISSUE: PolicyRule(AccessLevel.REPORTER, feature="issues_enabled"),
    Action.READ_NOTE: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.CREATE_NOTE: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.UPDATE_NOTE: PolicyRule(AccessLevel.MASTER, includes_author=True),
    Action.READ_SNIPPET: PolicyRule(AccessLevel.GUEST, includes_non_members=True, feature="snippets_enabled"),
    Action.CREATE_SNIPPET: PolicyRule(AccessLevel.REPORTER, feature="snippets_enabled"),
    Action.UPDATE_SNIPPET: PolicyRule(AccessLevel.MASTER, includes_author=True, feature="snippets_enabled"),
    Action.CREATE_UPLOAD: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.FIND_UPLOAD: PolicyRule(AccessLevel.MASTER, includes_author=True),
    Action.READ_CODE: PolicyRule(AccessLevel.REPORTER, includes_non_members=True, includes_anonymous=True),
    Action.PUSH_CODE: PolicyRule(AccessLevel.DEVELOPER, requires_unarchived=True),
    Action.PUSH_PROTECTED: PolicyRule(AccessLevel.MASTER, requires_unarchived=True),
    Action.PROTECT_BRANCH: PolicyRule(AccessLevel.MASTER),
    Action.COMMENT_COMMIT: PolicyRule(AccessLevel.REPORTER, includes_non_members=True),
    Action.READ_CHECKS: PolicyRule(AccessLevel.REPORTER, includes_non_members=True),
    Action.WRITE_CHECKS: PolicyRule(AccessLevel.DEVELOPER),
    Action.READ_BUILD: PolicyRule(
        AccessLevel.REPORTER, includes_non_members=True, visibility_switch="public_builds", feature="builds_enabled"
    ),
    Action.CREATE_BUILD: PolicyRule(AccessLevel.DEVELOPER, feature="builds_enabled"),
    Action.UPDATE_BUILD: PolicyRule(AccessLevel.DEVELOPER, feature="builds_enabled"),
    Action.ADMIN_RUNNER: PolicyRule(AccessLevel.MASTER),
    Action.READ_MERGE_REQUEST: PolicyRule(AccessLevel.GUEST, includes_non_members=True, feature="merge_requests_enabled"),
    Action.CREATE_MERGE_REQUEST: PolicyRule(AccessLevel.DEVELOPER, feature="merge_requests_enabled", requires_unarchived=True),
    Action.UPDATE_MERGE_REQUEST: PolicyRule(
        AccessLevel.MASTER, includes_author=True, feature="merge_requests_enabled", requires_unarchived=True
    ),
    Action.TRIAGE_MERGE_REQUEST: PolicyRule(AccessLevel.DEVELOPER, feature="merge_requests_enabled"),
    Action.FORK_PROJECT: PolicyRule(AccessLevel.REPORTER, includes_non_members=True),
    Action.READ_LABEL: PolicyRule(AccessLevel.GUEST, includes_non_members=True, any_feature=TRACKER_FEATURES),
    Action.ADMIN_LABEL: PolicyRule(AccessLevel.REPORTER, any_feature=TRACKER_FEATURES),
    Action.READ_MILESTONE: PolicyRule(AccessLevel.GUEST, includes_non_members=True, any_feature=TRACKER_FEATURES),
    Action.ADMIN_MILESTONE: PolicyRule(AccessLevel.MASTER, any_feature=TRACKER_FEATURES),
    Action.READ_PROJECT_MEMBER: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.ADMIN_PROJECT_MEMBER: PolicyRule(AccessLevel.MASTER),
    Action.READ_GROUP: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.UPDATE_GROUP: PolicyRule(AccessLevel.OWNER),
    Action.DELETE_GROUP: PolicyRule(AccessLevel.OWNER),
    Action.ADMIN_GROUP_MEMBER: PolicyRule(AccessLevel.OWNER),
    Action.CREATE_PROJECT: PolicyRule(AccessLevel.MASTER),
}
"""Actions on a project, on a thing in it, or on a group. Administrators may do all that the features of a project allow."""

INSTANCE_RULES: dict[Action, str] = {
    Action.CREATE_GROUP: "can_create_group",
    Action.ADMIN_USERS: "admin",
    Action.ADMIN_HOOKS: "admin",
    Action.ADMIN_SETTINGS: "admin",
    Action.ADMIN_RUNNERS: "admin",
    Action.TRANSFER_PROJECT: "admin",
    Action.IMPORT_REPOSITORY: "admin",
}
"""Actions on the instance → the attribute of the user that allows them."""


def _columns_of(rule: PolicyRule) -> set[str]:
    return {name for name in (*rule.any_feature, rule.feature, rule.visibility_switch) if name is not None}


POLICY_COLUMNS = frozenset(("id", "visibility_level", "archived")).union(*map(_columns_of, RULES.values()))
"""The attributes of a project that decide whether a viewer of known level sees it, and may do something in it."""


ACCOUNT_ACTIONS = frozenset((Action.READ_ACCOUNT,))
"""Actions on a user: what is the user's own business, and an administrator's."""

RUNNER_ACTIONS = frozenset((Action.READ_BUILD, Action.UPDATE_BUILD))
"""What a runner may, with the builds that it has."""


async def require(context: Context, action: Action, subject: Any = None) -> None:
    """Raises Forbidden unless the viewer may do this to the subject: a project, a thing in one, a group, a user, or nothing."""
    if not await can(context, action, subject):
        raise Forbidden


async def require_all(context: Context, action: Action, subjects: Sequence[Any]) -> None:
    """As `require` of each of these, which are of one kind. What is decided by their project alone is decided once for a project."""
    if len(subjects) > 1 and context.policy_context is context and _is_decided_by_project(action, subjects[0]):
        subjects = list({subject.project_id: subject for subject in subjects}.values())
    for subject in subjects:
        await require(context, action, subject)


def _is_decided_by_project(action: Action, subject: Any) -> bool:
    """Whether all things of the subject's kind in one project are decided alike."""
    rule = RULES.get(action)
    whole = isinstance(subject, tables.Project | tables.Namespace | tables.Build)
    return rule is not None and not rule.includes_author and not whole and not hasattr(subject, "visibility_level")


async def can(context: Context, action: Action, subject: Any = None) -> bool:
    allowed = await _can(context.policy_context, action, subject)
    context.record_decision(action, subject, allowed)
    return allowed


async def _can(context: Context, action: Action, subject: Any) -> bool:
    if context.runner_identity_or_none is not None:
        return action in RUNNER_ACTIONS and isinstance(subject, tables.Build) and context.runner_identity_or_none.is_assigned(subject)
    viewer = context.viewer
    if action in INSTANCE_RULES:
        return bool(getattr(viewer, INSTANCE_RULES[action]))
    if action in ACCOUNT_ACTIONS:
        return can_read_account(context, subject.id)
    rule = RULES[action]
    if isinstance(subject, tables.Namespace):
        level = await load_group_level(context, subject)
        return level >= rule.min_level or (rule.includes_non_members and await can_see_group(context, subject))
    project = await load_project_of(context, subject)
    if rule.feature is not None and not getattr(project, rule.feature):
        return False
    if rule.any_feature and not any(getattr(project, feature) for feature in rule.any_feature):
        return False
    if rule.requires_unarchived and project.archived:
        return False
    level = await load_project_level(context, project)
    shared = rule.includes_non_members and (rule.visibility_switch is None or getattr(project, rule.visibility_switch))
    if level >= rule.min_level or (shared and _is_shared(project) and _is_shared(subject)):
        return True
    return (
        rule.includes_author
        and viewer.id in (subject.author_id, getattr(subject, "assignee_id", None))
        and await can_see_project(context, project)
    )


def can_anybody(action: Action, project: tables.Project) -> bool:
    """Whether callers may who are not signed in. The graph has none; this is for doors that take them, as for cloning."""
    return RULES[action].includes_anonymous and project.visibility_level == tables.Visibility.PUBLIC


def can_read_account(context: Context, user_id: int) -> bool:
    """Whether the viewer may know what concerns this user alone: one's own account, and every account for administrators."""
    return context.viewer.admin or context.viewer.id == user_id


async def load_project_of(context: Context, subject: Any) -> tables.Project:
    """The project that a thing belongs to; a project is its own."""
    if isinstance(subject, tables.Project):
        return subject
    project = context.policy_projects.get(subject.project_id) or await context.rows_by_id(tables.Project).get(subject.project_id)
    assert project is not None, "a foreign key keeps the project of a thing"  # noqa: S101
    return project


async def load_project_level(context: Context, project: tables.Project) -> int:
    """The viewer's level in a project: the highest of project and group membership, the owner's for administrators, 0 for none."""
    if context.viewer.admin:
        return AccessLevel.OWNER
    levels = project_level_loader(context)
    return (levels.known(project.id) if levels.knows(project.id) else await levels.get(project.id)) or 0


async def load_group_level(context: Context, group: tables.Namespace) -> int:
    if context.viewer.admin:
        return AccessLevel.OWNER

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(members.levels_in_groups(context.viewer.id, ids))))

    return await context.loader("group levels", fetch).get(group.id) or 0


async def can_see_project(context: Context, project: tables.Project) -> bool:
    return _is_shared(project) or await load_project_level(context, project) > 0


async def can_see_group(context: Context, group: tables.Namespace) -> bool:
    """Whether the viewer is a member of the group, or may see a project in it."""
    return context.viewer.admin or bool(await group_visibility_loader(context).get(group.id))


async def filter_visible_groups(context: Context, ids: list[int]) -> set[int]:
    """Which of these groups the viewer may see: one statement whatever their number."""
    if context.viewer.admin:
        return set(ids)
    return {key for key, seen in (await group_visibility_loader(context).get_many(ids)).items() if seen}


async def filter_visible_projects(context: Context, ids: list[int]) -> set[int]:
    """Which of these projects the viewer may see: two statements whatever their number."""
    projects = await context.rows_by_id(tables.Project).get_many(ids)
    if not context.viewer.admin:
        await project_level_loader(context).get_many(ids)
    return {key for key, project in projects.items() if project is not None and await can_see_project(context, project)}


def visible_project_conditions(context: Context) -> list[Any]:
    """The SQL conditions on `Project` for lists that span projects."""
    return [] if context.viewer.admin else [members.visible_projects(context.viewer.id)]


def allowed_project_conditions(context: Context, action: Action) -> list[Any]:
    """The SQL conditions on `Project` under which the viewer may do this there, for what any viewer may in an internal project."""
    rule = RULES[action]
    assert rule.includes_non_members and rule.visibility_switch is None and not rule.requires_unarchived, action  # noqa: S101
    features = [getattr(tables.Project, name) for name in (*((rule.feature,) if rule.feature else ()), *rule.any_feature)]
    switched = [or_(*features)] if features else []
    if rule.min_level <= AccessLevel.GUEST or context.viewer.admin:
        return [*visible_project_conditions(context), *switched]
    return [members.shared_or_at_level(context.viewer.id, rule.min_level), *switched]


def visible_group_conditions(context: Context) -> list[Any]:
    """The SQL conditions on `Namespace` for lists of groups."""
    return [] if context.viewer.admin else [members.visible_groups(context.viewer.id)]


def visible_snippet_conditions(context: Context) -> list[Any]:
    """The SQL conditions on `Snippet` for lists of the snippets of projects that the viewer sees."""
    return [] if context.viewer.admin else [snippets.visible_to(context.viewer.id)]


def _is_shared(thing: Any) -> bool:
    """Whether who is no member may see it, as far as the thing itself says; most are as visible as their project."""
    return getattr(thing, "visibility_level", tables.Visibility.INTERNAL) >= tables.Visibility.INTERNAL


def project_level_loader(context: Context) -> Loader[int, int]:
    """The loader of the viewer's levels in projects, by the project's id; None for none."""

    found = context.loaders.get(PROJECT_LEVELS_LOADER)
    if found is not None:
        return found

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(members.LEVELS_IN_PROJECTS, user_id=context.viewer.id, project_ids=ids)))

    return context.loader(PROJECT_LEVELS_LOADER, fetch)


def group_visibility_loader(context: Context) -> Loader[int, bool]:
    """The loader of which groups the viewer may see, by their id; None for those that are hidden."""

    async def fetch(ids: list[int]) -> Mapping[int, bool]:
        visible = await context.tuples(members.visible_group_ids(context.viewer.id, ids))
        return dict.fromkeys((row[0] for row in visible), True)

    return context.loader("seen groups", fetch)
