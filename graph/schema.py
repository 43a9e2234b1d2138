"""The schema: Query, Mutation and Subscription are the sums of the type files."""

import strawberry
from strawberry.schema.config import StrawberryConfig

from graph.fields.enum_descriptions import describe_enum_values
from graph.fields.resolvers import attach_resolvers
from graph.fields.scalars import SCALARS
from graph.types.accounts.access_tokens import AccessTokenMutations
from graph.types.accounts.emails import EmailMutations, EmailQueries
from graph.types.accounts.groups import GroupMutations, GroupQueries
from graph.types.accounts.members import MemberMutations
from graph.types.accounts.openid_sign_ins import OpenIdMutations, OpenIdQueries
from graph.types.accounts.profile_mutations import ProfileMutations
from graph.types.accounts.sign_in_links import SignInLinkMutations
from graph.types.accounts.ssh_keys import SshKeyMutations, SshKeyQueries
from graph.types.accounts.user_mutations import UserMutations
from graph.types.accounts.users import UserQueries
from graph.types.builds.artifact_dependencies import JobMutations, JobQueries
from graph.types.builds.artifacts import ArtifactMutations
from graph.types.builds.build_mutations import BuildMutations
from graph.types.builds.build_subscriptions import BuildSubscriptions
from graph.types.builds.commit_statuses import CommitStatusMutations
from graph.types.builds.environments import EnvironmentMutations
from graph.types.builds.pipelines import PipelineQueries
from graph.types.builds.runner_jobs import BuildClaimMutations
from graph.types.builds.runner_registration import RunnerRegistrationMutations
from graph.types.builds.runners import RunnerMutations, RunnerQueries
from graph.types.builds.traces import TraceMutations
from graph.types.builds.triggers import TriggerMutations
from graph.types.builds.variables import VariableMutations
from graph.types.git.branch_subscriptions import BranchSubscriptions
from graph.types.git.branches import BranchMutations
from graph.types.git.commit_comments import CommitCommentMutations
from graph.types.git.file_commits import FileCommitMutations
from graph.types.git.releases import ReleaseMutations
from graph.types.git.tags import TagMutations
from graph.types.hooks import HookMutations, HookQueries
from graph.types.imports.accounts import ImportAccountMutations
from graph.types.imports.builds import ImportBuildMutations
from graph.types.imports.commit_comments import ImportCommitCommentMutations
from graph.types.imports.commit_statuses import ImportCommitStatusMutations
from graph.types.imports.instance_imports import InstanceImportMutations, InstanceImportQueries
from graph.types.imports.issues import ImportIssueMutations
from graph.types.imports.merge_requests import ImportMergeRequestMutations
from graph.types.imports.notes import ImportNoteMutations
from graph.types.imports.project_settings import ImportProjectSettingMutations
from graph.types.imports.projects import ImportProjectMutations
from graph.types.imports.releases import ImportReleaseMutations
from graph.types.imports.runners import ImportRunnerMutations
from graph.types.imports.settings import ImportSettingsMutations
from graph.types.imports.snippets import ImportSnippetMutations
from graph.types.imports.users import ImportUserMutations
from graph.types.instance_status import InstanceStatusQueries
from graph.types.issues.issue_subscriptions import IssueSubscriptions
from graph.types.issues.issues import IssueMutations, IssueQueries
from graph.types.issues.labels import LabelMutations
from graph.types.issues.milestones import MilestoneMutations
from graph.types.merge_requests.merge_mutations import MergeMutations
from graph.types.merge_requests.merge_request_import_mutations import MergeRequestImportMutations
from graph.types.merge_requests.merge_request_mutations import MergeRequestMutations
from graph.types.merge_requests.merge_request_subscriptions import MergeRequestSubscriptions
from graph.types.merge_requests.merge_requests import MergeRequestQueries
from graph.types.merge_requests.review_thread_mutations import ReviewThreadMutations
from graph.types.merge_requests.suggestions import SuggestionMutations
from graph.types.merge_requests.viewed_files import ViewedFileMutations
from graph.types.merge_requests.visit_mutations import MergeRequestVisitMutations
from graph.types.nodes import NodeQueries
from graph.types.notes import NoteMutations
from graph.types.projects.deploy_keys import DeployKeyMutations
from graph.types.projects.fork_mutations import ForkMutations
from graph.types.projects.namespaces import NamespaceQueries
from graph.types.projects.project_mutations import ProjectMutations
from graph.types.projects.projects import ProjectQueries
from graph.types.projects.snippets import SnippetMutations
from graph.types.projects.star_mutations import StarMutations
from graph.types.projects.uploads import UploadMutations
from graph.types.server import ServerQueries
from graph.types.settings import SettingsMutations, SettingsQueries


@strawberry.type(description="Queries. Objects that the viewer is not allowed to see are reported as not found.")
class Query(
    NodeQueries,
    UserQueries,
    OpenIdQueries,
    SshKeyQueries,
    EmailQueries,
    GroupQueries,
    ProjectQueries,
    NamespaceQueries,
    IssueQueries,
    MergeRequestQueries,
    HookQueries,
    PipelineQueries,
    SettingsQueries,
    RunnerQueries,
    JobQueries,
    ServerQueries,
    InstanceStatusQueries,
    InstanceImportQueries,
):
    pass


@strawberry.type(description="Mutations. An operation has one mutation field and runs in one transaction.")
class Mutation(
    UserMutations,
    ProfileMutations,
    SignInLinkMutations,
    OpenIdMutations,
    AccessTokenMutations,
    SshKeyMutations,
    EmailMutations,
    GroupMutations,
    ProjectMutations,
    ForkMutations,
    StarMutations,
    MemberMutations,
    IssueMutations,
    MergeRequestMutations,
    MergeMutations,
    LabelMutations,
    NoteMutations,
    SnippetMutations,
    DeployKeyMutations,
    UploadMutations,
    MilestoneMutations,
    MergeRequestImportMutations,
    CommitCommentMutations,
    ReviewThreadMutations,
    SuggestionMutations,
    ViewedFileMutations,
    MergeRequestVisitMutations,
    CommitStatusMutations,
    BranchMutations,
    TagMutations,
    ReleaseMutations,
    FileCommitMutations,
    BuildMutations,
    EnvironmentMutations,
    BuildClaimMutations,
    JobMutations,
    RunnerMutations,
    VariableMutations,
    TriggerMutations,
    TraceMutations,
    ArtifactMutations,
    HookMutations,
    SettingsMutations,
    RunnerRegistrationMutations,
    InstanceImportMutations,
    ImportSettingsMutations,
    ImportUserMutations,
    ImportAccountMutations,
    ImportProjectMutations,
    ImportProjectSettingMutations,
    ImportBuildMutations,
    ImportCommitCommentMutations,
    ImportCommitStatusMutations,
    ImportIssueMutations,
    ImportMergeRequestMutations,
    ImportNoteMutations,
    ImportReleaseMutations,
    ImportRunnerMutations,
    ImportSnippetMutations,
):
    pass


@strawberry.type(
    description="Live updates at /graphql, over Server-Sent Events (`Accept: text/event-stream`) or WebSocket (graphql-transport-ws). To"
    " resume a closed stream pass `afterSeq`: no event is lost or repeated."
)
class Subscription(BuildSubscriptions, MergeRequestSubscriptions, IssueSubscriptions, BranchSubscriptions):
    pass


schema = strawberry.Schema(
    query=Query,
    mutation=Mutation,
    subscription=Subscription,
    config=StrawberryConfig(scalar_map=SCALARS, disable_field_suggestions=True),
)
graphql_schema = schema._schema
attach_resolvers(graphql_schema)
describe_enum_values(graphql_schema)


def print_schema() -> str:
    """Returns the schema in the format of `schema.graphql`."""
    return schema.as_str() + "\n"
