"""The tables: one module per noun, with its table, enums and statements."""

from storage.database.engine import metadata
from storage.tables.artifacts import Artifact, TracePart
from storage.tables.base import all_rows, any_row, lock
from storage.tables.branch_moves import BranchMove
from storage.tables.branches import Branch
from storage.tables.builds import Build, RunWhen
from storage.tables.changes import Change, ChangeKind
from storage.tables.closings import Closing
from storage.tables.commit_comments import CommitComment, LineType
from storage.tables.commit_statuses import CheckStatus, CommitStatus
from storage.tables.commits import Commit
from storage.tables.counters import Counter, CounterKind
from storage.tables.deliveries import Delivery, DeliveryState
from storage.tables.emails import Email
from storage.tables.events import Event
from storage.tables.health_checks_due import HealthCheckDue
from storage.tables.hooks import Hook
from storage.tables.issues import Issue, IssueState
from storage.tables.labels import IssueLabel, Label, MergeRequestLabel
from storage.tables.members import AccessLevel, GroupMember, ProjectMember
from storage.tables.merge_request_imports import ImportState, MergeRequestImport
from storage.tables.merge_requests import MergeIntent, MergeRequest, MergeRequestCommit, MergeRequestState, MergeStatus
from storage.tables.milestones import Milestone, MilestoneState
from storage.tables.namespaces import Namespace, NamespaceKind
from storage.tables.notes import Note
from storage.tables.pipelines import Pipeline
from storage.tables.projects import Project, Visibility
from storage.tables.protected_branches import ProtectedBranch
from storage.tables.registration_tokens import RegistrationToken
from storage.tables.runners import Runner, RunnerProject
from storage.tables.settings import BranchProtection, Settings
from storage.tables.snippets import Snippet
from storage.tables.ssh_keys import SshKey
from storage.tables.uploads import Upload
from storage.tables.users import Token, User, UserState

__all__ = [
    "AccessLevel",
    "Artifact",
    "Branch",
    "BranchMove",
    "BranchProtection",
    "Build",
    "Change",
    "ChangeKind",
    "CheckStatus",
    "Closing",
    "Commit",
    "CommitComment",
    "CommitStatus",
    "Counter",
    "CounterKind",
    "Delivery",
    "DeliveryState",
    "Email",
    "Event",
    "GroupMember",
    "HealthCheckDue",
    "Hook",
    "ImportState",
    "Issue",
    "IssueLabel",
    "IssueState",
    "Label",
    "LineType",
    "MergeIntent",
    "MergeRequest",
    "MergeRequestCommit",
    "MergeRequestImport",
    "MergeRequestLabel",
    "MergeRequestState",
    "MergeStatus",
    "Milestone",
    "MilestoneState",
    "Namespace",
    "NamespaceKind",
    "Note",
    "Pipeline",
    "Project",
    "ProjectMember",
    "ProtectedBranch",
    "RegistrationToken",
    "RunWhen",
    "Runner",
    "RunnerProject",
    "Settings",
    "Snippet",
    "SshKey",
    "Token",
    "TracePart",
    "Upload",
    "User",
    "UserState",
    "Visibility",
    "all_rows",
    "any_row",
    "lock",
    "metadata",
]
