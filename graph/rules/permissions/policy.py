"""The permission policy: one table that maps each action to a rule.

No other module compares access levels but `policy_conditions.py`, which has the policy of lists in SQL. The table follows the section
Authentication of the interface document and, where that is silent, the roles of the service it describes. A project that the viewer may
not see is not found; an action without the right to it in a visible project is forbidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from graph.context import Context
from graph.errors import Forbidden
from graph.operations.loaders import Loader
from storage import tables
from storage.tables import AccessLevel
from storage.tables.accounts import access_conditions, members
from storage.tables.base import Row

R = TypeVar("R", bound=Row)


class Action(StrEnum):
    """An action that the policy allows or forbids, as `noun:verb`."""

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
    ADMIN_BUILD = "build:admin"
    ADMIN_RUNNER = "runner:admin"
    READ_MERGE_REQUEST = "merge_request:read"
    CREATE_MERGE_REQUEST = "merge_request:create"
    UPDATE_MERGE_REQUEST = "merge_request:update"
    TRIAGE_MERGE_REQUEST = "merge_request:triage"
    RESOLVE_THREAD = "thread:resolve"
    FORK_PROJECT = "project:fork"
    READ_LABEL = "label:read"
    ADMIN_LABEL = "label:admin"
    READ_MILESTONE = "milestone:read"
    ADMIN_MILESTONE = "milestone:admin"
    READ_PROJECT_MEMBER = "project_member:read"
    ADMIN_PROJECT_MEMBER = "project_member:admin"
    ADMIN_PROJECT_HOOK = "project_hook:admin"
    ADMIN_DEPLOY_KEY = "deploy_key:admin"
    READ_GROUP = "group:read"
    UPDATE_GROUP = "group:update"
    DELETE_GROUP = "group:delete"
    ADMIN_GROUP_MEMBER = "group_member:admin"
    CREATE_PROJECT = "group:create_project"
    CREATE_GROUP = "instance:create_group"
    ADMIN_USERS = "instance:admin_users"
    ADMIN_HOOKS = "instance:admin_hooks"
    ADMIN_SETTINGS = "instance:admin_settings"
    READ_STATUS = "instance:read_status"
    READ_ACCOUNT = "account:read"
    ADMIN_RUNNERS = "instance:admin_runners"
    TRANSFER_PROJECT = "instance:transfer_project"
    LIST_ALL_PROJECTS = "instance:list_all_projects"
    CREATE_PROJECT_FOR_USER = "instance:create_project_for_user"
    LINK_FORK = "instance:link_fork"
    IMPORT_REPOSITORY = "instance:import_repository"
    IMPORT_INSTANCE = "instance:import"


@dataclass(frozen=True)
class PolicyRule:
    """The conditions under which a viewer may perform an action.

    - `min_level`: the minimum access level of a member.
    - `includes_non_members`: any signed-in viewer of an internal or public project may too, unless the object itself is private.
    - `visibility_switch`: the project column that must be true for `includes_non_members` to apply.
    - `includes_author`: the author or assignee of the object may, whatever their level.
    - `feature`: the project column of the feature that must be enabled; `any_feature`: columns of which at least one must be true.
    - `requires_unarchived`: nobody may while the project is archived.
    - `includes_anonymous`: in a public project anonymous callers may too, at the endpoints that accept them.
    """

    min_level: AccessLevel
    includes_non_members: bool = False
    includes_author: bool = False
    feature: str | None = None
    any_feature: tuple[str, ...] = ()
    requires_unarchived: bool = False
    includes_anonymous: bool = False
    visibility_switch: str | None = None


PROJECT_LEVELS_LOADER = "project levels"
"""Key of the loader in `Context.loaders`."""

TRACKER_FEATURES = ("issues_enabled", "merge_requests_enabled")
"""The features that use labels and milestones, which are unavailable only when both are disabled."""

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
    Action.ADMIN_BUILD: PolicyRule(AccessLevel.MASTER, feature="builds_enabled"),
    Action.ADMIN_RUNNER: PolicyRule(AccessLevel.MASTER),
    Action.READ_MERGE_REQUEST: PolicyRule(AccessLevel.GUEST, includes_non_members=True, feature="merge_requests_enabled"),
    Action.CREATE_MERGE_REQUEST: PolicyRule(AccessLevel.DEVELOPER, feature="merge_requests_enabled", requires_unarchived=True),
    Action.UPDATE_MERGE_REQUEST: PolicyRule(
        AccessLevel.MASTER, includes_author=True, feature="merge_requests_enabled", requires_unarchived=True
    ),
    Action.TRIAGE_MERGE_REQUEST: PolicyRule(AccessLevel.DEVELOPER, feature="merge_requests_enabled"),
    Action.RESOLVE_THREAD: PolicyRule(AccessLevel.DEVELOPER, includes_author=True, feature="merge_requests_enabled"),
    Action.FORK_PROJECT: PolicyRule(AccessLevel.REPORTER, includes_non_members=True),
    Action.READ_LABEL: PolicyRule(AccessLevel.GUEST, includes_non_members=True, any_feature=TRACKER_FEATURES),
    Action.ADMIN_LABEL: PolicyRule(AccessLevel.REPORTER, any_feature=TRACKER_FEATURES),
    Action.READ_MILESTONE: PolicyRule(AccessLevel.GUEST, includes_non_members=True, any_feature=TRACKER_FEATURES),
    Action.ADMIN_MILESTONE: PolicyRule(AccessLevel.MASTER, any_feature=TRACKER_FEATURES),
    Action.READ_PROJECT_MEMBER: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.ADMIN_PROJECT_MEMBER: PolicyRule(AccessLevel.MASTER),
    Action.ADMIN_PROJECT_HOOK: PolicyRule(AccessLevel.MASTER),
    Action.ADMIN_DEPLOY_KEY: PolicyRule(AccessLevel.MASTER),
    Action.READ_GROUP: PolicyRule(AccessLevel.GUEST, includes_non_members=True),
    Action.UPDATE_GROUP: PolicyRule(AccessLevel.OWNER),
    Action.DELETE_GROUP: PolicyRule(AccessLevel.OWNER),
    Action.ADMIN_GROUP_MEMBER: PolicyRule(AccessLevel.OWNER),
    Action.CREATE_PROJECT: PolicyRule(AccessLevel.MASTER),
}
"""Rules of actions on a project, on an object in it, or on a group.

Administrators may do everything that the features of a project allow.
"""

INSTANCE_RULES: dict[Action, str] = {
    Action.CREATE_GROUP: "can_create_group",
    Action.ADMIN_USERS: "admin",
    Action.ADMIN_HOOKS: "admin",
    Action.ADMIN_SETTINGS: "admin",
    Action.READ_STATUS: "admin",
    Action.ADMIN_RUNNERS: "admin",
    Action.TRANSFER_PROJECT: "admin",
    Action.LIST_ALL_PROJECTS: "admin",
    Action.CREATE_PROJECT_FOR_USER: "admin",
    Action.LINK_FORK: "admin",
    Action.IMPORT_REPOSITORY: "admin",
    Action.IMPORT_INSTANCE: "admin",
}
"""Actions on the instance, mapped to the user attribute that allows them."""


def _columns_of(rule: PolicyRule) -> set[str]:
    return {name for name in (*rule.any_feature, rule.feature, rule.visibility_switch) if name is not None}


POLICY_COLUMNS = frozenset(("id", "visibility_level", "archived")).union(*map(_columns_of, RULES.values()))
"""Project columns that, with the viewer's access level, decide what the viewer may see and do."""


ACCOUNT_ACTIONS = frozenset((Action.READ_ACCOUNT,))
"""Actions on a user that only this user and administrators may perform."""

RUNNER_ACTIONS = frozenset((Action.READ_BUILD, Action.UPDATE_BUILD))
"""Actions that a runner may perform on the builds assigned to it."""


async def require(context: Context, action: Action, subject: Any = None) -> None:
    """Raises Forbidden unless the viewer may perform the action on the subject.

    The subject is a project, an object in a project, a group, a user, or None for actions on the instance.
    """
    if not await can(context, action, subject):
        raise Forbidden


async def require_all(context: Context, action: Action, subjects: Sequence[Any]) -> None:
    """Like `require` for each of these subjects, which are of one kind.

    An action that depends only on the project is checked once per project.
    """
    if len(subjects) > 1 and context.policy_context is context and _is_decided_by_project(action, subjects[0]):
        subjects = list({subject.project_id: subject for subject in subjects}.values())
    viewer = context.viewer_or_none
    if len(subjects) > 1 and isinstance(subjects[0], tables.Project) and viewer is not None and not viewer.admin:
        # One statement for all.
        await project_level_loader(context.policy_context).get_many([subject.id for subject in subjects])
    for subject in subjects:
        await require(context, action, subject)


def _is_decided_by_project(action: Action, subject: Any) -> bool:
    """Whether the decision is the same for every object of the subject's kind in one project."""
    rule = RULES.get(action)
    is_container = isinstance(subject, tables.Project | tables.Namespace | tables.Build)
    return rule is not None and not rule.includes_author and not is_container and not hasattr(subject, "visibility_level")


async def can(context: Context, action: Action, subject: Any = None) -> bool:
    """Whether the viewer may perform the action on the subject; see `require` for subjects."""
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
    if level >= rule.min_level:
        return True
    shared = rule.includes_non_members and (rule.visibility_switch is None or getattr(project, rule.visibility_switch))
    if shared and _is_shared(project) and _is_shared(subject):
        return True
    return (
        rule.includes_author
        and viewer.id in (subject.author_id, getattr(subject, "assignee_id", None))
        and await can_see_project(context, project)
    )


def can_anybody(action: Action, project: tables.Project) -> bool:
    """Whether anonymous callers may perform the action.

    GraphQL has no anonymous viewers; this is for endpoints that accept anonymous callers, such as git over HTTP.
    """
    return RULES[action].includes_anonymous and project.visibility_level == tables.Visibility.PUBLIC


def can_read_account(context: Context, user_id: int) -> bool:
    """Whether the viewer may read a user's private data: the user themselves and administrators may."""
    return context.viewer.admin or context.viewer.id == user_id


async def load_project_of(context: Context, subject: Any) -> tables.Project:
    """The project that the subject belongs to; for a project, the project itself."""
    if isinstance(subject, tables.Project):
        return subject
    project = context.policy_projects.get(subject.project_id) or await context.rows_by_id(tables.Project).get(subject.project_id)
    assert project is not None, "a foreign key guarantees that the project exists"  # noqa: S101
    return project


async def load_project_level(context: Context, project: tables.Project) -> int:
    """The viewer's highest access level in a project; OWNER for administrators, 0 for none."""
    if context.viewer.admin:
        return AccessLevel.OWNER
    levels, key = project_level_loader(context), project.id
    return (levels.get_loaded(key) if levels.is_loaded(key) else await levels.get(key)) or 0


def level_of_memberships(is_admin: bool, project_level: int | None, group_level: int | None) -> int | None:
    """As `load_project_level`, of the viewer's memberships; None for none."""
    return int(AccessLevel.OWNER) if is_admin else max(project_level or 0, group_level or 0) or None


async def load_group_level(context: Context, group: tables.Namespace) -> int:
    """The viewer's access level in a group: OWNER for administrators, 0 for none."""
    if context.viewer.admin:
        return AccessLevel.OWNER

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(members.levels_in_groups(context.viewer.id, ids))))

    return await context.loader("group levels", fetch).get(group.id) or 0


async def can_see_project(context: Context, project: tables.Project) -> bool:
    """Whether the project is internal or public, or the viewer is a member of it."""
    return _is_shared(project) or await load_project_level(context, project) > 0


async def can_see_group(context: Context, group: tables.Namespace) -> bool:
    """Whether the viewer is a member of the group or may see a project in it."""
    return context.viewer.admin or bool(await group_visibility_loader(context).get(group.id))


async def filter_allowed_projects(context: Context, action: Action, projects: Sequence[tables.Project]) -> set[int]:
    """The ids of those projects in which the viewer may perform the action, with at most one statement."""
    if not context.viewer.admin:
        await project_level_loader(context).get_many([project.id for project in projects])
    return {project.id for project in projects if await can(context, action, project)}


async def filter_visible_groups(context: Context, ids: list[int]) -> set[int]:
    """The ids of those groups that the viewer may see, loaded in one statement."""
    if context.viewer.admin:
        return set(ids)
    return {key for key, is_visible in (await group_visibility_loader(context).get_many(ids)).items() if is_visible}


async def filter_visible_projects(context: Context, ids: list[int]) -> set[int]:
    """The ids of those projects that the viewer may see, loaded in at most two statements."""
    projects = await context.rows_by_id(tables.Project).get_many(ids)
    if not context.viewer.admin:
        await project_level_loader(context).get_many(ids)
    return {key for key, project in projects.items() if project is not None and await can_see_project(context, project)}


def _is_shared(subject: Any) -> bool:
    """Whether the object's own visibility admits non-members.

    Objects without one are as visible as their project.
    """
    return getattr(subject, "visibility_level", tables.Visibility.INTERNAL) >= tables.Visibility.INTERNAL


def project_level_loader(context: Context) -> Loader[int, int]:
    """The loader of the viewer's access levels by project id; None for a project without a membership."""

    found = context.loaders.get(PROJECT_LEVELS_LOADER)
    if found is not None:
        return found

    async def fetch(ids: list[int]) -> Mapping[int, int]:
        return dict(map(tuple, await context.tuples(members.LEVELS_IN_PROJECTS, user_id=context.viewer.id, project_ids=ids)))

    return context.loader(PROJECT_LEVELS_LOADER, fetch)


def group_visibility_loader(context: Context) -> Loader[int, bool]:
    """The loader of the visibility of groups by id: True for visible groups, None for hidden ones."""

    async def fetch(ids: list[int]) -> Mapping[int, bool]:
        visible = await context.tuples(access_conditions.visible_group_ids(context.viewer.id, ids))
        return dict.fromkeys((row[0] for row in visible), True)

    return context.loader("visible groups", fetch)
