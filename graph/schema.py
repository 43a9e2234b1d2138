"""The schema: Query, Mutation and Subscription are the sums of the type files."""

import strawberry
from strawberry.schema.config import StrawberryConfig

from graph.enum_values import describe_enum_values
from graph.installing import install
from graph.scalars import SCALARS
from graph.types.artifacts import ArtifactMutations
from graph.types.branches import BranchMutations
from graph.types.build_changes import BuildMutations
from graph.types.claiming import ClaimMutations
from graph.types.commit_comments import CommitCommentMutations
from graph.types.commit_statuses import CommitStatusMutations
from graph.types.dependencies import MachineMutations, MachineQueries
from graph.types.emails import EmailMutations, EmailQueries
from graph.types.groups import GroupMutations, GroupQueries
from graph.types.hooks import HookMutations, HookQueries
from graph.types.issues import IssueMutations, IssueQueries
from graph.types.labels import LabelMutations
from graph.types.live_branches import BranchSubscriptions
from graph.types.live_builds import BuildSubscriptions
from graph.types.live_merge_requests import MergeRequestSubscriptions
from graph.types.members import MemberMutations
from graph.types.merge_request_changes import MergeRequestMutations
from graph.types.merged_history import MergedHistoryMutations
from graph.types.merging import MergingMutations
from graph.types.milestones import MilestoneMutations
from graph.types.nodes import NodeQueries
from graph.types.notes import NoteMutations
from graph.types.pipelines import PipelineQueries
from graph.types.project_changes import ProjectMutations
from graph.types.projects import ProjectQueries
from graph.types.runner_registration import RunnerRegistrationMutations
from graph.types.runners import RunnerMutations, RunnerQueries
from graph.types.server import ServerQueries
from graph.types.settings import SettingsMutations, SettingsQueries
from graph.types.snippets import SnippetMutations
from graph.types.ssh_keys import SshKeyMutations, SshKeyQueries
from graph.types.traces import TraceMutations
from graph.types.uploads import UploadMutations
from graph.types.user_changes import UserMutations
from graph.types.users import UserQueries


@strawberry.type(description="Everything that can be asked. A thing that the viewer may not see is not found.")
class Query(
    NodeQueries,
    UserQueries,
    SshKeyQueries,
    EmailQueries,
    GroupQueries,
    ProjectQueries,
    IssueQueries,
    HookQueries,
    PipelineQueries,
    SettingsQueries,
    RunnerQueries,
    MachineQueries,
    ServerQueries,
):
    pass


@strawberry.type(description="Everything that can be changed; one field an operation, one transaction.")
class Mutation(
    UserMutations,
    SshKeyMutations,
    EmailMutations,
    GroupMutations,
    ProjectMutations,
    MemberMutations,
    IssueMutations,
    MergeRequestMutations,
    MergingMutations,
    LabelMutations,
    NoteMutations,
    SnippetMutations,
    UploadMutations,
    MilestoneMutations,
    MergedHistoryMutations,
    CommitCommentMutations,
    CommitStatusMutations,
    BranchMutations,
    BuildMutations,
    ClaimMutations,
    MachineMutations,
    RunnerMutations,
    TraceMutations,
    ArtifactMutations,
    HookMutations,
    SettingsMutations,
    RunnerRegistrationMutations,
):
    pass


@strawberry.type(
    description="What can be followed: by Server-Sent Events at /graphql (`Accept: text/event-stream`), or by a WebSocket that speaks "
    "graphql-transport-ws there. A stream that ends is taken up again with `afterSeq`: nothing is missed, and nothing comes twice."
)
class Subscription(BuildSubscriptions, MergeRequestSubscriptions, BranchSubscriptions):
    pass


schema = strawberry.Schema(
    query=Query,
    mutation=Mutation,
    subscription=Subscription,
    config=StrawberryConfig(scalar_map=SCALARS, disable_field_suggestions=True),
)
graphql_schema = schema._schema
install(graphql_schema)
describe_enum_values(graphql_schema)


def printed() -> str:
    """The schema as `schema.graphql` has it."""
    return schema.as_str() + "\n"
