"""Projects."""

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Annotated, Any
from urllib.parse import urlsplit

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order, OrderDirection
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, entrance, narrowed, order_of, to_many, to_one, window_of
from graph.rules import finding
from graph.rules.policy import Action, may, project_level, visible_projects
from graph.rules.searching import search_term
from graph.types.artifacts import ProjectArtifacts
from graph.types.branches import ProjectBranches
from graph.types.build_stats import ProjectBuildStats
from graph.types.builds import ProjectBuilds
from graph.types.commits import ProjectCommits
from graph.types.comparisons import ProjectComparisons
from graph.types.flaky_builds import ProjectFlakyBuilds
from graph.types.forks import ProjectForks
from graph.types.issues import ProjectIssues
from graph.types.labels import ProjectLabels
from graph.types.members import AccessLevel, ProjectMember
from graph.types.merge_request_imports import ProjectMergeRequestImports
from graph.types.merge_request_stats import ProjectMergeRequestStats
from graph.types.merge_requests import ProjectMergeRequests
from graph.types.milestones import ProjectMilestones
from graph.types.namespaces import Namespace
from graph.types.pipelines import ProjectPipelines
from graph.types.runner_registration import ProjectRunnerRegistration
from graph.types.runners import ProjectRunners
from graph.types.snippets import ProjectSnippets
from graph.types.trees import ProjectTrees
from graph.types.uploads import ProjectUploads
from graph.types.users import User
from graph.types.visibility import Visibility
from storage import tables
from storage.tables import issues, members, projects


@strawberry.type(description="What the viewer may do with a project.")
class ProjectAbilities:
    update: bool = strawberry.field(description="Change what is not named below: the description, the switches, the default branch.")
    rename: bool = strawberry.field(description="Change its name and path.")
    change_visibility: bool = strawberry.field(description="Change who sees it.")
    archive: bool = strawberry.field(description="Archive it and take it back.")
    delete: bool = strawberry.field(description="Remove it with its repository.")
    transfer: bool = strawberry.field(description="Move it to another group.")
    admin_members: bool = strawberry.field(description="Add, change and remove members.")
    read_code: bool = strawberry.field(description="See the repository.")
    push_code: bool = strawberry.field(description="Push to branches that are not protected, and to new ones.")
    post_statuses: bool = strawberry.field(description="Say of commits how far checks of them have come.")
    read_builds: bool = strawberry.field(description="See builds.")
    create_build: bool = strawberry.field(description="Make builds, and say how far they have come.")
    create_issue: bool = strawberry.field(description="Write issues.")
    triage_issues: bool = strawberry.field(description="Assign and label issues.")
    admin_labels: bool = strawberry.field(description="Create, change and delete labels.")
    admin_milestones: bool = strawberry.field(description="Create and change milestones.")
    create_merge_request: bool = strawberry.field(description="Open merge requests from its branches.")
    fork: bool = strawberry.field(description="Copy it into a namespace of one's own.")
    create_snippet: bool = strawberry.field(description="Write snippets.")
    upload: bool = strawberry.field(description="Attach files.")


@entity(tables.Project, description="A repository and what is kept around it.", project_key="id", action=Action.READ_PROJECT)
class Project(
    Node,
    ProjectIssues,
    ProjectMergeRequests,
    ProjectMergeRequestStats,
    ProjectMergeRequestImports,
    ProjectBuilds,
    ProjectBuildStats,
    ProjectFlakyBuilds,
    ProjectRunners,
    ProjectArtifacts,
    ProjectLabels,
    ProjectMilestones,
    ProjectSnippets,
    ProjectUploads,
    ProjectCommits,
    ProjectBranches,
    ProjectTrees,
    ProjectComparisons,
    ProjectForks,
    ProjectPipelines,
    ProjectRunnerRegistration,
):
    database_id: int = column(tables.Project.id, description="The v3 id.")
    name: str = column(description="The name, in words.")
    path: str = column(description="The last segment of the full path.")
    description: str | None = column(description="What it is about.")
    default_branch: str | None = column(description="The branch that is meant where none is named; null while there is no commit.")
    visibility_level: int = column(description="The visibility as v3 spells it: 0 private, 1 internal, 2 public.")
    creator: User | None = to_one(tables.Project.creator_id, description="Who created it; null when the account is gone.")
    creator_id: int | None = column(description="The v3 id of who created it.")
    archived: bool = column(description="Whether it is only kept: nothing can be pushed or merged.")
    avatar_url: str | None = column(description="The project's picture.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    last_activity_at: datetime = column(description="When something last happened in it.")
    issues_enabled: bool = column(description="Whether it has issues.")
    merge_requests_enabled: bool = column(description="Whether it has merge requests.")
    builds_enabled: bool = column(description="Whether it has builds.")
    wiki_enabled: bool = column(description="Whether it has a wiki.")
    snippets_enabled: bool = column(description="Whether it has snippets.")
    public_builds: bool = column(description="Whether builds are seen by everybody who sees an internal or public project.")
    tag_list: list[str] = column(description="Words to find it by.")
    namespace: Namespace = to_one(tables.Project.namespace_id, description="The group, or the user's own space, that it lies in.")
    members: Connection[ProjectMember] = to_many(
        tables.ProjectMember.project_id,
        order_by=Order(tables.ProjectMember.id),
        action=Action.READ_PROJECT_MEMBER,
        description="The project's own members, the oldest membership first; members of its group are not repeated.",
    )

    @strawberry.field(description="Who may see it without being a member.")
    def visibility(self) -> Visibility:  # type: ignore[valid-type]
        return tables.Visibility(_row(self).visibility_level)

    @strawberry.field(description="Whether everybody may see it.")
    def public(self) -> bool:
        return _row(self).visibility_level == tables.Visibility.PUBLIC

    @strawberry.field(description="`namespace/path`; v3's `path_with_namespace`.")
    async def full_path(self, info: Info) -> str:
        return await _full_path(info.context, _row(self))

    @strawberry.field(description="The name of the namespace and of the project, as `Group / Project`.")
    async def name_with_namespace(self, info: Info) -> str:
        namespace = await _namespace(info.context, _row(self))
        return f"{namespace.name} / {_row(self).name}"

    @strawberry.field(description="The address of the project's page.")
    async def web_url(self, info: Info) -> str:
        return f"{info.context.services.external_url}/{await _full_path(info.context, _row(self))}"

    @strawberry.field(description="The address to clone it from over HTTP.")
    async def http_url_to_repo(self, info: Info) -> str:
        return f"{info.context.services.external_url}/{await _full_path(info.context, _row(self))}.git"

    @strawberry.field(description="The address to clone it from over SSH; where that is not served, the one that it would have.")
    async def ssh_url_to_repo(self, info: Info) -> str:
        services = info.context.services
        prefix = services.ssh_prefix or f"git@{urlsplit(services.external_url).hostname}:"
        return f"{prefix}{await _full_path(info.context, _row(self))}.git"

    @strawberry.field(description="Whose personal project it is; null for a project of a group.")
    async def owner(self, info: Info) -> User | None:
        namespace = await _namespace(info.context, _row(self))
        if namespace.owner_id is None:
            return None
        return await info.context.rows_by_id(tables.User).get(namespace.owner_id)  # type: ignore[return-value]

    @strawberry.field(description="How the paths of what it holds begin in v3, which has no path of the project itself.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_row(self).id}"

    @strawberry.field(description="How many issues are open; null where the viewer may not see issues, as when it has none.")
    async def open_issues_count(self, info: Info) -> int | None:
        context = info.context
        if not await may(context, Action.READ_ISSUE, _row(self)):
            return None

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(issues.open_in_projects(ids))))

        return await context.loader("open issues", fetch).get(_row(self).id) or 0

    @strawberry.field(description="The viewer's level, by a membership here or in the group, or as its owner; null without any.")
    async def viewer_access_level(self, info: Info) -> AccessLevel | None:  # type: ignore[valid-type]
        level = await project_level(info.context, _row(self))
        return tables.AccessLevel(level) if level else None

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> ProjectAbilities:
        context, row = info.context, _row(self)
        owns = await may(context, Action.OWN_PROJECT, row)
        return ProjectAbilities(
            update=await may(context, Action.UPDATE_PROJECT, row),
            rename=owns,
            change_visibility=owns,
            archive=owns,
            delete=owns,
            transfer=await may(context, Action.TRANSFER_PROJECT),
            admin_members=await may(context, Action.ADMIN_PROJECT_MEMBER, row),
            read_code=await may(context, Action.READ_CODE, row),
            push_code=await may(context, Action.PUSH_CODE, row),
            post_statuses=await may(context, Action.WRITE_CHECKS, row),
            read_builds=await may(context, Action.READ_BUILD, row),
            create_build=await may(context, Action.CREATE_BUILD, row),
            create_issue=await may(context, Action.CREATE_ISSUE, row),
            triage_issues=await may(context, Action.TRIAGE_ISSUE, row),
            admin_labels=await may(context, Action.ADMIN_LABEL, row),
            admin_milestones=await may(context, Action.ADMIN_MILESTONE, row),
            create_merge_request=await may(context, Action.CREATE_MERGE_REQUEST, row),
            fork=await may(context, Action.FORK_PROJECT, row),
            create_snippet=await may(context, Action.CREATE_SNIPPET, row),
            upload=await may(context, Action.CREATE_UPLOAD, row),
        )


def _row(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]


async def _namespace(context: Context, project: tables.Project) -> tables.Namespace:
    found = await context.rows_by_id(tables.Namespace).get(project.namespace_id)
    assert found is not None, "a foreign key keeps the namespace of a project"  # noqa: S101
    return found


async def _full_path(context: Context, project: tables.Project) -> str:
    return f"{(await _namespace(context, project)).path}/{project.path}"


@strawberry.enum(description="What projects are sorted by.")
class ProjectOrderField(Enum):
    ID = "id"
    NAME = "name"
    PATH = "path"
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    LAST_ACTIVITY_AT = "last_activity_at"


@strawberry.input(description="How projects are sorted.")
class ProjectOrder:
    field: ProjectOrderField = strawberry.field(description="By what.", default=ProjectOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Which way.", default=OrderDirection.DESC)
    ci_enabled_first: bool = strawberry.field(description="True: those with builds before all others.", default=False)

    def order(self) -> Order:
        order = order_of(getattr(tables.Project, self.field.value), self.direction)
        return replace(order, first=tables.Project.builds_enabled) if self.ci_enabled_first else order


@strawberry.input(description="Which projects; every field given must match.")
class ProjectFilter:
    search: str | None = strawberry.field(description="With this text in the name, the path or the description.", default=None)
    archived: bool | None = strawberry.field(description="Archived or not; null means both.", default=False)
    visibility: list[Visibility] | None = strawberry.field(description="Of one of these.", default=None)  # type: ignore[valid-type]
    ci_enabled: bool | None = strawberry.field(description="With builds, or without.", default=None)
    membership: bool | None = strawberry.field(
        description="True: only where the viewer is a member, of the project or its group, or the owner.", default=None
    )
    owned: bool | None = strawberry.field(description="True: only the viewer's personal projects.", default=None)

    def conditions(self) -> list[Any]:
        project = tables.Project
        found: list[Any] = []
        if self.search:
            found.append(projects.matching(search_term(self.search)))
        if self.archived is not None:
            found.append(col(project.archived).is_(self.archived))
        if self.visibility is not None:
            found.append(col(project.visibility_level).in_([int(level) for level in self.visibility]))
        if self.ci_enabled is not None:
            found.append(col(project.builds_enabled).is_(self.ci_enabled))
        return found

    def of_viewer(self, viewer: tables.User) -> list[Any]:
        found: list[Any] = [members.member_projects(viewer.id)] if self.membership else []
        return [*found, members.owned_projects(viewer.id)] if self.owned else found


NEWEST_FIRST = Order(tables.Project.created_at, descending=True)


def listing_of(context: Context, arguments: dict[str, Any], parent: Any = None) -> Listing:
    """The projects that the viewer may see, as the arguments want them; without a filter, those not archived."""
    wanted = arguments.get("filter") or ProjectFilter()
    listing = Listing(tables.Project, NEWEST_FIRST, parent=parent).where(*visible_projects(context), *wanted.of_viewer(context.viewer))
    return narrowed(listing, {**arguments, "filter": wanted})


async def _projects(root: Any, info: Info, **arguments: Any) -> Any:
    return await listing_of(info.context, arguments).page(info.context, window_of(arguments))


@strawberry.type
class ProjectQueries:
    projects: Connection[Project] = connection_field(
        _projects,
        filter=ProjectFilter,
        ordering=ProjectOrder,
        description="The projects that the viewer may see, newest first; without archived ones unless the filter asks for them.",
    )

    @entrance(description="The project of a full path, or of a v3 id in digits.")
    async def project(
        self, info: Info, path: Annotated[str, strawberry.argument(description="`namespace/name`, or the v3 id in digits.")]
    ) -> Project | None:
        return await finding.project(info.context, path)  # type: ignore[return-value]
