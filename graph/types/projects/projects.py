"""Projects."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar

import strawberry
from sqlalchemy import case
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connections import Connection, OrderDirection
from graph.fields.declarations import ToMany, column, computed, connection_field, make_order, make_window, project_lookup, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.row_sources import FromSql
from graph.rules import lookup
from graph.rules.permissions.policy import (
    POLICY_COLUMNS,
    Action,
    can,
    filter_allowed_projects,
    level_of_memberships,
    load_project_level,
)
from graph.rules.permissions.sql_policy import SqlViewer, can_in_sql, listed_conditions, visible_conditions
from graph.rules.projects import teams
from graph.rules.search_terms import validate_search
from graph.types.accounts.members import AccessLevel, ProjectMemberFields
from graph.types.accounts.users import User
from graph.types.builds.artifacts import ProjectArtifactFields
from graph.types.builds.build_stats import ProjectBuildStatsFields
from graph.types.builds.builds import ProjectBuildFields
from graph.types.builds.environments import ProjectEnvironmentFields
from graph.types.builds.flaky_builds import ProjectFlakyBuildFields
from graph.types.builds.pipelines import ProjectPipelineFields
from graph.types.builds.runner_registration import ProjectRunnerRegistrationFields
from graph.types.builds.runners import ProjectRunnerFields
from graph.types.builds.triggers import ProjectTriggerFields
from graph.types.builds.variables import ProjectVariableFields
from graph.types.git.archives import ProjectArchiveFields
from graph.types.git.branches import ProjectBranchFields
from graph.types.git.commits import ProjectCommitFields
from graph.types.git.comparisons import ProjectComparisonFields
from graph.types.git.contributors import ProjectContributorFields
from graph.types.git.file_commits import ProjectFileLimitFields
from graph.types.git.file_search import ProjectFileSearchFields
from graph.types.git.tags import ProjectTagFields
from graph.types.git.trees import ProjectTreeFields
from graph.types.hooks import ProjectHookFields
from graph.types.issues.issues import ProjectIssueFields
from graph.types.issues.labels import ProjectLabelFields
from graph.types.issues.milestones import ProjectMilestoneFields
from graph.types.markdown import ProjectMarkdownFields
from graph.types.merge_requests.merge_request_imports import ProjectMergeRequestImportFields
from graph.types.merge_requests.merge_request_stats import ProjectMergeRequestStatsFields
from graph.types.merge_requests.merge_requests import ProjectMergeRequestFields
from graph.types.projects.activities import ProjectActivityFields
from graph.types.projects.deploy_keys import ProjectDeployKeyFields
from graph.types.projects.forks import ProjectForkFields
from graph.types.projects.namespaces import Namespace
from graph.types.projects.project_imports import ProjectRepositoryImportFields
from graph.types.projects.project_paths import ProjectPathFields
from graph.types.projects.snippets import ProjectSnippetFields
from graph.types.projects.stars import ProjectStarFields
from graph.types.projects.teams import ProjectTeamFields
from graph.types.projects.uploads import ProjectUploadFields
from graph.types.visibility import Visibility
from storage import tables
from storage.tables.accounts import access_conditions, members
from storage.tables.issues import issues
from storage.tables.projects import projects, stars


@strawberry.type(description="Actions the viewer is allowed to perform on a project.")
class ProjectAbilities:
    update: bool = strawberry.field(
        description="Change the description, the features, the default branch and other settings not listed below."
    )
    rename: bool = strawberry.field(description="Change the name.")
    change_visibility: bool = strawberry.field(description="Change the visibility.")
    archive: bool = strawberry.field(description="Archive and unarchive it.")
    delete: bool = strawberry.field(description="Delete it and its repository.")
    transfer: bool = strawberry.field(description="Transfer it to a group.")
    admin_members: bool = strawberry.field(description="Add, change and remove members.")
    admin_hooks: bool = strawberry.field(description="See, add, change, test and delete hooks.")
    admin_deploy_keys: bool = strawberry.field(description="See, add and delete deploy keys.")
    read_code: bool = strawberry.field(description="Read the repository.")
    push_code: bool = strawberry.field(description="Push to new branches and to branches that are not protected.")
    post_statuses: bool = strawberry.field(description="Post commit statuses.")
    read_builds: bool = strawberry.field(description="See builds.")
    admin_runners: bool = strawberry.field(description="Administer runners of the project.")
    create_build: bool = strawberry.field(description="Create and update builds.")
    admin_builds: bool = strawberry.field(description="Administer variables and triggers of builds.")
    create_issue: bool = strawberry.field(description="Create issues.")
    triage_issues: bool = strawberry.field(description="Assign and label issues.")
    admin_labels: bool = strawberry.field(description="Create, update and delete labels.")
    admin_milestones: bool = strawberry.field(description="Create and update milestones.")
    create_merge_request: bool = strawberry.field(description="Create merge requests from its branches.")
    fork: bool = strawberry.field(description="Fork it.")
    create_snippet: bool = strawberry.field(description="Create snippets.")
    upload: bool = strawberry.field(description="Upload files.")


_POLICY_COLUMNS = tuple(getattr(tables.Project, name) for name in sorted(POLICY_COLUMNS))


@entity(
    tables.Project,
    description="A project: a git repository with issues, merge requests and builds.",
    project_key="id",
    action=Action.READ_PROJECT,
)
class Project(
    Node,
    ProjectPathFields,
    ProjectIssueFields,
    ProjectMergeRequestFields,
    ProjectMergeRequestStatsFields,
    ProjectMergeRequestImportFields,
    ProjectBuildFields,
    ProjectBuildStatsFields,
    ProjectFlakyBuildFields,
    ProjectRunnerFields,
    ProjectVariableFields,
    ProjectTriggerFields,
    ProjectArtifactFields,
    ProjectLabelFields,
    ProjectMilestoneFields,
    ProjectSnippetFields,
    ProjectUploadFields,
    ProjectMemberFields,
    ProjectHookFields,
    ProjectDeployKeyFields,
    ProjectCommitFields,
    ProjectBranchFields,
    ProjectTagFields,
    ProjectArchiveFields,
    ProjectContributorFields,
    ProjectFileSearchFields,
    ProjectFileLimitFields,
    ProjectTreeFields,
    ProjectComparisonFields,
    ProjectForkFields,
    ProjectStarFields,
    ProjectActivityFields,
    ProjectRepositoryImportFields,
    ProjectTeamFields,
    ProjectPipelineFields,
    ProjectEnvironmentFields,
    ProjectRunnerRegistrationFields,
    ProjectMarkdownFields,
):
    database_id: int = column(tables.Project.id, description="ID in the v3 API.")
    name: str = column(description="Display name.")
    path: str = column(description="Last segment of the full path.")
    description: str | None = column(description="Description.")
    default_branch: str | None = column(description="Default branch; null if the repository is empty.")
    visibility_level: int = column(description="Visibility as a number, as in v3: 0 private, 1 internal, 2 public.")
    creator: User | None = to_one(tables.Project.creator_id, description="User who created it; null if the account was deleted.")
    creator_id: int | None = column(description="v3 ID of the user who created it.")
    archived: bool = column(description="Whether it is archived, that is read-only.")
    avatar_url: str | None = column(description="URL of the image of the project.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    last_activity_at: datetime = column(
        description="When it was last active: the time of its newest activity, up to half a minute late except for pushes."
    )
    issues_enabled: bool = column(description="Whether issues are enabled.")
    merge_requests_enabled: bool = column(description="Whether merge requests are enabled.")
    builds_enabled: bool = column(description="Whether builds are enabled.")
    wiki_enabled: bool = column(description="Whether the wiki is enabled.")
    snippets_enabled: bool = column(description="Whether snippets are enabled.")
    shared_runners_enabled: bool = column(description="Whether shared runners run its builds.")
    public_builds: bool = column(description="Whether builds are visible to everyone who can see the internal or public project.")
    tag_list: list[str] = column(description="Tags of the project.")
    namespace: Namespace = to_one(tables.Project.namespace_id, description="Group or personal namespace of the project.")

    @computed(tables.Project.visibility_level, description="Visibility for users who are not members.")
    def visibility(self) -> Visibility:  # type: ignore[valid-type]
        return tables.Visibility(_as_row(self).visibility_level)

    @computed(
        tables.Project.visibility_level,
        from_columns=lambda settings, parent: lambda level: level == tables.Visibility.PUBLIC,
        description="Whether it is public.",
    )
    def public(self) -> bool:
        return _as_row(self).visibility_level == tables.Visibility.PUBLIC

    @computed(tables.Project.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_as_row(self).id}"

    @computed(
        *_POLICY_COLUMNS,
        batch=lambda info, rows: _count_open_issues(info.context, rows),
        from_row=FromSql(lambda project, viewer: [case((can_in_sql(Action.READ_ISSUE, project, viewer), issues.open_count(project)))]),
        description="Number of open issues; null if the viewer cannot see issues or they are disabled.",
    )
    async def open_issues_count(self, info: Info) -> int | None:
        return (await _count_open_issues(info.context, [_as_row(self)]))[0]

    @computed(
        *_POLICY_COLUMNS,
        from_row=FromSql(
            lambda project, viewer: [viewer.is_admin, *members.membership_levels(viewer.id, project)], derive=level_of_memberships
        ),
        description="Access level of the viewer, as a member of the project or its group, or as its owner; null if there is none.",
    )
    async def viewer_access_level(self, info: Info) -> AccessLevel | None:  # type: ignore[valid-type]
        level = await load_project_level(info.context, _as_row(self))
        return tables.AccessLevel(level) if level else None

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> ProjectAbilities:
        context, row = info.context, _as_row(self)
        owns = await can(context, Action.OWN_PROJECT, row)
        return ProjectAbilities(
            update=await can(context, Action.UPDATE_PROJECT, row),
            rename=owns,
            change_visibility=owns,
            archive=owns,
            delete=owns,
            transfer=await can(context, Action.TRANSFER_PROJECT),
            admin_members=await can(context, Action.ADMIN_PROJECT_MEMBER, row),
            admin_hooks=await can(context, Action.ADMIN_PROJECT_HOOK, row),
            admin_deploy_keys=await can(context, Action.ADMIN_DEPLOY_KEY, row),
            read_code=await can(context, Action.READ_CODE, row),
            push_code=await can(context, Action.PUSH_CODE, row),
            post_statuses=await can(context, Action.WRITE_CHECKS, row),
            read_builds=await can(context, Action.READ_BUILD, row),
            admin_runners=await can(context, Action.ADMIN_RUNNER, row),
            create_build=await can(context, Action.CREATE_BUILD, row),
            admin_builds=await can(context, Action.ADMIN_BUILD, row),
            create_issue=await can(context, Action.CREATE_ISSUE, row),
            triage_issues=await can(context, Action.TRIAGE_ISSUE, row),
            admin_labels=await can(context, Action.ADMIN_LABEL, row),
            admin_milestones=await can(context, Action.ADMIN_MILESTONE, row),
            create_merge_request=await can(context, Action.CREATE_MERGE_REQUEST, row),
            fork=await can(context, Action.FORK_PROJECT, row),
            create_snippet=await can(context, Action.CREATE_SNIPPET, row),
            upload=await can(context, Action.CREATE_UPLOAD, row),
        )


def _as_row(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]


async def _count_open_issues(context: Context, projects: Sequence[tables.Project]) -> list[int | None]:
    if not context.viewer.admin:
        # Other fields show the memberships too, so one statement serves both.
        await teams.load_memberships(context, [project.id for project in projects])
    readable = await filter_allowed_projects(context, Action.READ_ISSUE, projects)

    async def fetch(ids: list[int]) -> dict[int, int]:
        return dict(map(tuple, await context.tuples(issues.OPEN_COUNTS, project_ids=ids)))

    found = await context.loader("open issues", fetch).get_many(readable)
    return [(found[project.id] or 0) if project.id in found else None for project in projects]


@strawberry.enum(description="Fields by which projects can be sorted.")
class ProjectOrderField(Enum):
    ID = "id"
    NAME = "name"
    PATH = "path"
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    LAST_ACTIVITY_AT = "last_activity_at"


@strawberry.input(description="Sort order of projects.")
class ProjectOrder:
    field: ProjectOrderField = strawberry.field(description="Field to sort by.", default=ProjectOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Sort direction.", default=OrderDirection.DESC)
    ci_enabled_first: bool = strawberry.field(description="If true, projects with builds enabled come first.", default=False)

    def order(self) -> Order:
        order = make_order(getattr(tables.Project, self.field.value), self.direction)
        return replace(order, first=tables.Project.builds_enabled) if self.ci_enabled_first else order


@strawberry.input(description="Filters projects; all specified fields must match.")
class ProjectFilter:
    search: str | None = strawberry.field(description="Name, path or description contains this string, ignoring case.", default=None)
    archived: bool | None = strawberry.field(description="Whether archived; null matches both.", default=False)
    visibility: list[Visibility] | None = strawberry.field(description="Visibility is one of these.", default=None)  # type: ignore[valid-type]
    ci_enabled: bool | None = strawberry.field(description="Whether builds are enabled.", default=None)
    membership: bool | None = strawberry.field(
        description="If true, only projects of which the viewer is a member, directly or through the group, or the owner.", default=None
    )
    owned: bool | None = strawberry.field(description="If true, only personal projects of the viewer.", default=None)
    in_owned_namespaces: bool | None = strawberry.field(
        description="If true, only personal projects of the viewer and projects of groups that the viewer owns.", default=None
    )
    starred: bool | None = strawberry.field(description="If true, only projects that the viewer has starred.", default=None)
    name_contains: str | None = strawberry.field(description="Name contains this string, ignoring case.", default=None)
    all: bool | None = strawberry.field(
        description="If true, all projects of the instance. Administrators only, who see all projects anyway; others receive an error.",
        default=None,
    )

    search_attributes: ClassVar[tuple[str, ...]] = ("search", "name_contains")

    def conditions(self) -> list[Any]:
        project = tables.Project
        found: list[Any] = []
        if self.search:
            found.append(projects.matching(validate_search(self.search)))
        if self.name_contains:
            found.append(projects.is_named_like(validate_search(self.name_contains)))
        if self.archived is not None:
            found.append(col(project.archived).is_(self.archived))
        if self.visibility is not None:
            found.append(col(project.visibility_level).in_([int(level) for level in self.visibility]))
        if self.ci_enabled is not None:
            found.append(col(project.builds_enabled).is_(self.ci_enabled))
        return found

    def viewer_conditions(self, viewer_id: Any) -> list[Any]:
        """Conditions that depend on the viewer, whose id may be a parameter of the statement."""
        by_switch = (
            (self.membership, access_conditions.joined_projects),
            (self.owned, access_conditions.personal_projects),
            (self.in_owned_namespaces, access_conditions.projects_in_owned_namespaces),
            (self.starred, stars.is_starred_by),
        )
        return [condition(viewer_id) for switch, condition in by_switch if switch]

    @property
    def has_strings(self) -> bool:
        return bool(self.search or self.name_contains)

    @property
    def required_actions(self) -> tuple[Action, ...]:
        return (Action.LIST_ALL_PROJECTS,) if self.all else ()


NEWEST_FIRST = Order(tables.Project.created_at, descending=True)


def _viewer_conditions(visible: Callable[[SqlViewer], list[Any]], arguments: dict[str, Any], viewer: SqlViewer) -> list[Any]:
    """That the viewer may see the projects, by the conditions of `visible`, and those of the filter."""
    project_filter = arguments["filter"]
    # Members see their projects anyway.
    is_visible = project_filter.membership or project_filter.owned or project_filter.in_owned_namespaces
    return [*([] if is_visible else visible(viewer)), *project_filter.viewer_conditions(viewer.id)]


def projects_of(parent: Any) -> ToMany:
    """The projects that the viewer may see, of all or of those whose foreign key is `parent`; unarchived ones by default."""
    listing = KeysetListing(tables.Project, NEWEST_FIRST, parent=parent)
    # A list of all projects reads all of them, and the memberships of the viewer once; one of a parent reads few of each.
    visible = listed_conditions if parent is None else visible_conditions
    return ToMany(listing, action=None, default_filter=ProjectFilter, viewer_conditions=partial(_viewer_conditions, visible))


PROJECTS = projects_of(None)


async def build_project_listing(context: Context, arguments: dict[str, Any], parent: Any = None) -> KeysetListing:
    """The projects that the viewer may see and that match the arguments; unarchived ones by default.

    Raises Forbidden for a filter that the viewer may not use.
    """
    declared = PROJECTS if parent is None else projects_of(parent)
    await declared.require(context, arguments, [None])
    return declared.filtered_listing(arguments, SqlViewer(context.viewer.id, context.viewer.admin))


async def _resolve_projects(root: Any, info: Info, **arguments: Any) -> Any:
    listing = await build_project_listing(info.context, arguments)
    return await listing.page(info.context, make_window(arguments))


@strawberry.type
class ProjectQueries:
    projects: Connection[Project] = connection_field(
        _resolve_projects,
        filter=ProjectFilter,
        ordering=ProjectOrder,
        declared=PROJECTS,
        description="Projects visible to the viewer, newest first; archived projects only if the filter includes them.",
    )

    @project_lookup(description="Project by full path or v3 ID.")
    async def project(
        self, info: Info, path: Annotated[str, strawberry.argument(description="`namespace/name`, or the v3 ID.")]
    ) -> Project | None:
        return await lookup.get_project(info.context, path)  # type: ignore[return-value]
