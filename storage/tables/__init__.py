"""The tables: one module per noun, with its table, enums and statements."""

from storage.database.column_types import metadata
from storage.tables.accounts.emails import Email
from storage.tables.accounts.identities import Identity
from storage.tables.accounts.members import AccessLevel, GroupMember, ProjectMember
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.accounts.sign_in_links import SignInLink
from storage.tables.accounts.ssh_keys import SshKey
from storage.tables.accounts.users import Token, TokenScope, User, UserState
from storage.tables.base import all_rows, any_row, lock
from storage.tables.builds.artifacts import Artifact, TracePart
from storage.tables.builds.build_changes import BuildChange
from storage.tables.builds.builds import Build, RunWhen
from storage.tables.builds.commit_statuses import CheckStatus, CommitStatus
from storage.tables.builds.environments import Deployment, Environment
from storage.tables.builds.pipelines import Pipeline
from storage.tables.builds.registration_tokens import RegistrationToken
from storage.tables.builds.runners import Runner, RunnerProject
from storage.tables.builds.triggers import Trigger, TriggerRequest
from storage.tables.builds.variables import Variable
from storage.tables.counters import Counter, CounterKind
from storage.tables.events.activities import Activity, ActivityAction, ActivitySubject
from storage.tables.events.changes import Change, ChangeKind, PrunedChanges
from storage.tables.events.deliveries import Delivery, DeliveryState
from storage.tables.events.events import Event
from storage.tables.events.hooks import Hook
from storage.tables.git.branch_moves import BranchMove
from storage.tables.git.commit_comments import CommitComment, LineType
from storage.tables.git.commits import Commit
from storage.tables.git.health_checks_due import HealthCheckDue
from storage.tables.git.packs import Pack, RepackLease
from storage.tables.git.protected_branches import ProtectedBranch
from storage.tables.git.refs import GitRef
from storage.tables.git.releases import Release
from storage.tables.hosts import Host
from storage.tables.import_identities import ImportIdentity, ImportKind
from storage.tables.import_marks import ImportMark
from storage.tables.imports import ImportState
from storage.tables.instance_identity import InstanceIdentity
from storage.tables.instance_imports import InstanceImport, InstanceImportState
from storage.tables.issues.closings import Closing
from storage.tables.issues.issues import Issue, IssueState
from storage.tables.issues.labels import IssueLabel, Label, MergeRequestLabel
from storage.tables.issues.milestones import Milestone, MilestoneState
from storage.tables.issues.notes import Note
from storage.tables.job_leases import JobLease
from storage.tables.merge_requests.applied_suggestions import AppliedSuggestion
from storage.tables.merge_requests.merge_request_imports import MergeRequestImport
from storage.tables.merge_requests.merge_request_visits import MergeRequestVisit
from storage.tables.merge_requests.merge_requests import MergeRequest, MergeRequestCommit, MergeRequestState, MergeStatus
from storage.tables.merge_requests.review_threads import ReviewThread
from storage.tables.merge_requests.viewed_files import ViewedFile
from storage.tables.projects.deploy_keys import DeployKey
from storage.tables.projects.project_imports import ProjectImport
from storage.tables.projects.projects import Project, Visibility
from storage.tables.projects.snippets import Snippet
from storage.tables.projects.stars import ProjectStar
from storage.tables.projects.uploads import Upload
from storage.tables.row_counts import CountedKind, RowCount
from storage.tables.schema_compatibility import SchemaCompatibility
from storage.tables.settings import BranchProtection, Settings

__all__ = [
    "AccessLevel",
    "Activity",
    "ActivityAction",
    "ActivitySubject",
    "AppliedSuggestion",
    "Artifact",
    "BranchMove",
    "BranchProtection",
    "Build",
    "BuildChange",
    "Change",
    "ChangeKind",
    "CheckStatus",
    "Closing",
    "Commit",
    "CommitComment",
    "CommitStatus",
    "CountedKind",
    "Counter",
    "CounterKind",
    "Delivery",
    "DeliveryState",
    "DeployKey",
    "Deployment",
    "Email",
    "Environment",
    "Event",
    "GitRef",
    "GroupMember",
    "HealthCheckDue",
    "Hook",
    "Host",
    "Identity",
    "ImportIdentity",
    "ImportKind",
    "ImportMark",
    "ImportState",
    "InstanceIdentity",
    "InstanceImport",
    "InstanceImportState",
    "Issue",
    "IssueLabel",
    "IssueState",
    "JobLease",
    "Label",
    "LineType",
    "MergeRequest",
    "MergeRequestCommit",
    "MergeRequestImport",
    "MergeRequestLabel",
    "MergeRequestState",
    "MergeRequestVisit",
    "MergeStatus",
    "Milestone",
    "MilestoneState",
    "Namespace",
    "NamespaceKind",
    "Note",
    "Pack",
    "Pipeline",
    "Project",
    "ProjectImport",
    "ProjectMember",
    "ProjectStar",
    "ProtectedBranch",
    "PrunedChanges",
    "RegistrationToken",
    "Release",
    "RepackLease",
    "ReviewThread",
    "RowCount",
    "RunWhen",
    "Runner",
    "RunnerProject",
    "SchemaCompatibility",
    "Settings",
    "SignInLink",
    "Snippet",
    "SshKey",
    "Token",
    "TokenScope",
    "TracePart",
    "Trigger",
    "TriggerRequest",
    "Upload",
    "User",
    "UserState",
    "Variable",
    "ViewedFile",
    "Visibility",
    "all_rows",
    "any_row",
    "lock",
    "metadata",
]
