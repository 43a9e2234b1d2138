"""Descriptions of enum values.

Most enums are defined in storage and in the rules, which do not know GraphQL, so their values are described here.
"""

from collections.abc import Mapping

from graphql import GraphQLEnumType, GraphQLSchema, is_introspection_type

_CREATED_AT = "Sort by creation time."
_UPDATED_AT = "Sort by the time of the last update."
_STATUSES = {
    "PENDING": "Waiting to run.",
    "RUNNING": "Running.",
    "SUCCESS": "Succeeded.",
    "FAILED": "Failed.",
    "CANCELED": "Canceled before it finished.",
    "MANUAL": "A job with `when: manual` that nobody has played yet. It does not count for its commit.",
}

DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "AccessLevel": {
        "GUEST": "Can read and write issues and comments; 10 in v3.",
        "REPORTER": "Can also read the code and manage labels and issues; 20 in v3.",
        "DEVELOPER": "Can also push, and merge into branches that are not protected; 30 in v3.",
        "MASTER": "Can also change the project, its members, milestones and protected branches; 40 in v3.",
        "OWNER": "Can do everything in a group and its projects; 50 in v3. Available in groups only.",
    },
    "ActivityAction": {
        "CREATED": "Created the project.",
        "PUSHED": "Created, moved or deleted a branch or a tag.",
        "OPENED": "Opened it.",
        "CLOSED": "Closed it.",
        "REOPENED": "Reopened it.",
        "ACCEPTED": "Merged it.",
        "COMMENTED": "Wrote a note or a comment.",
        "JOINED": "Became a member.",
        "LEFT": "Is no longer a member.",
    },
    "ActivitySubject": {
        "PROJECT": "The project.",
        "MEMBER": "A membership in the project.",
        "REF": "A branch or a tag.",
        "ISSUE": "An issue.",
        "MERGE_REQUEST": "A merge request.",
        "MILESTONE": "A milestone.",
        "ISSUE_NOTE": "A note on an issue.",
        "MERGE_REQUEST_NOTE": "A note on a merge request.",
        "COMMIT_COMMENT": "A comment on a commit.",
    },
    "ArtifactsWhen": {
        "ON_SUCCESS": "Upload files when the build succeeded.",
        "ON_FAILURE": "Upload files when the build failed.",
        "ALWAYS": "Upload files regardless of the result of the build.",
    },
    "BackgroundJobState": {
        "RUNNING": "It runs.",
        "WAITING": "The last run succeeded, and the next is not due yet.",
        "FAILED": "The last run failed, and the next is not due yet.",
        "FINISHED": "It has done its work, and does not run again.",
    },
    "BranchProtection": {
        "NONE": "Developers can push, force-push and delete.",
        "PARTIAL": "Developers can push, but cannot force-push or delete.",
        "FULL": "Only masters can push.",
    },
    "BuildDimension": {
        "PROJECT": "Group by the full path of the project.",
        "NAME": "Group by the name of the job.",
        "STAGE": "Group by stage.",
        "REF": "Group by branch or tag.",
        "AUTHOR": "Group by the username of the user who created the build.",
        "STATUS": "Group by status.",
    },
    "BuildFailureReason": {
        "SCRIPT_FAILURE": "A command of the build failed.",
        "STUCK_OR_TIMEOUT_FAILURE": "The build reached its time limit.",
        "RUNNER_SYSTEM_FAILURE": "The runner was lost, or could not run the build.",
    },
    "BuildStatus": _STATUSES,
    "ChecksState": {
        "NOT_FOUND": "There are no checks.",
        "PENDING": "All checks are pending.",
        "RUNNING": "At least one check has not finished, and not all are pending.",
        "SUCCESS": "All checks succeeded, or failed with `allowFailure`.",
        "FAILED": "All checks finished; at least one failed without `allowFailure`, or some but not all were canceled.",
        "CANCELED": "All checks were canceled.",
    },
    "DeliveryState": {
        "PENDING": "Waiting for the next attempt.",
        "DELIVERED": "Accepted by the receiver.",
        "FAILED": "All attempts failed; it is not retried unless it is redelivered.",
    },
    "ErrorCode": {
        "UNAUTHENTICATED": "No credentials were sent, or the token is invalid.",
        "FORBIDDEN": "The viewer can see the resource but is not allowed to perform the action.",
        "INSUFFICIENT_SCOPE": "The access token lacks a scope; `message` names it.",
        "NOT_FOUND": "The resource does not exist, or the viewer is not allowed to see it.",
        "PERSISTED_QUERY_NOT_SUPPORTED": "The hash matches no trusted document; send the query text instead.",
        "LIMIT_EXCEEDED": "The operation or the viewer exceeds a limit.",
        "UNAVAILABLE": "The database or a repository is temporarily unavailable; nothing was changed. Retry the request.",
        "BAD_REQUEST": "The operation is malformed.",
        "INTERNAL": "Internal error; the server log contains the details under the request ID.",
        "INVALID": "A value is invalid.",
        "REQUIRED": "A required value is missing.",
        "TAKEN": "The value is already used by another object.",
        "CONFLICT": "An equal object already exists, or the object was changed concurrently.",
        "NOT_ALLOWED": "The action is not allowed, or not allowed in the current state of the object.",
        "NOT_MERGEABLE": "The branches cannot be merged.",
        "NOT_SET": "There is nothing to cancel.",
        "TOO_LARGE": "The data exceeds the size limit of the instance.",
    },
    "GroupOrderField": {"ID": "Sort by ID.", "NAME": "Sort by name.", "PATH": "Sort by path.", "CREATED_AT": _CREATED_AT},
    "IssueOrderField": {"CREATED_AT": _CREATED_AT, "UPDATED_AT": _UPDATED_AT},
    "ImportState": {
        "QUEUED": "Waiting to run.",
        "RUNNING": "Running.",
        "FINISHED": "The import finished.",
        "FAILED": "The import failed; `error` has the reason. Merge requests imported until then remain.",
    },
    "ImportKind": {
        "USER": "Users.",
        "NAMESPACE": "Groups, and personal namespaces of users.",
        "EMAIL": "Secondary email addresses of users.",
        "SSH_KEY": "SSH keys of users.",
        "GROUP_MEMBER": "Members of groups, identified by `GROUP/USER`.",
        "PROJECT": "Projects.",
        "PROJECT_MEMBER": "Members of projects, identified by `PROJECT/USER`.",
        "PROJECT_STAR": "Stars of projects, identified by `PROJECT/USER`.",
        "LABEL": "Labels, identified by `PROJECT/NAME`.",
        "MILESTONE": "Milestones.",
        "HOOK": "Hooks of the instance and of projects.",
        "DEPLOY_KEY": "Deploy keys, identified by `PROJECT/ID`.",
        "VARIABLE": "Secret variables of projects, identified by `PROJECT/KEY`.",
        "TRIGGER": "Triggers of projects, identified by `PROJECT/SHA-256` of the token.",
        "PROTECTED_BRANCH": "Protected branches, identified by `PROJECT/NAME`.",
        "RUNNER": "Runners.",
        "REPOSITORY": "Repositories, with the IDs of their projects.",
        "SNIPPET": "Snippets.",
        "ISSUE": "Issues.",
        "MERGE_REQUEST": "Merge requests.",
        "NOTE": "Notes of issues, merge requests and snippets.",
        "COMMIT_COMMENT": "Comments on commits, identified by `PROJECT/SHA/SHA-256` of what they say.",
        "COMMIT_STATUS": "Commit statuses.",
        "BUILD": "Builds.",
        "TRACE": "Traces, with the IDs of their builds.",
        "ARTIFACT": "Artifacts, with the IDs of their builds.",
        "RELEASE": "Releases, identified by `PROJECT/TAG`.",
        "UPLOAD": "Uploads, identified by `PROJECT/SECRET`.",
    },
    "ImportOutcome": {
        "CREATED": "A row was created.",
        "UPDATED": "The row of the item was updated.",
        "UNCHANGED": "Nothing was written: the item says what was written last.",
        "SKIPPED": "Nothing was written: `errors` say why.",
    },
    "InstanceImportState": {"RUNNING": "Items can be imported.", "FINISHED": "It was finished; it can be begun again."},
    "IssueState": {"OPENED": "The issue is open.", "CLOSED": "The issue is closed."},
    "IssueStateEvent": {"CLOSE": "Close it.", "REOPEN": "Reopen it."},
    "RunnerScope": {
        "ACTIVE": "Builds are assigned to it.",
        "PAUSED": "No builds are assigned to it.",
        "ONLINE": "It called in the last five minutes.",
        "SPECIFIC": "It serves some projects.",
        "SHARED": "It serves all projects.",
    },
    "JobWhen": {
        "ON_SUCCESS": "Run the job when all earlier stages succeeded.",
        "ON_FAILURE": "Run the job when an earlier stage failed.",
        "ALWAYS": "Run the job regardless of the result of earlier stages.",
        "MANUAL": "Run the job when somebody plays it, after all earlier stages succeeded.",
    },
    "LineType": {"NEW": "The line was added.", "OLD": "The line was removed."},
    "MergeBlocker": {
        "CONFLICT": "The branches have merge conflicts.",
        "BUILD_RUNNING": "Checks of the newest commit have not finished.",
        "BUILD_FAILED": "Checks of the newest commit failed or were canceled.",
        "WORK_IN_PROGRESS": "The title marks it as work in progress.",
        "CLOSED": "The merge request is closed.",
        "MERGED": "It is already merged.",
        "NO_COMMITS": "It has no commits that are missing from the target branch.",
        "NO_PERMISSION": "The viewer is not allowed to push to the target branch.",
    },
    "MergeRequestOrderField": {"CREATED_AT": _CREATED_AT, "UPDATED_AT": _UPDATED_AT, "MERGED_AT": "Sort by the time of the merge."},
    "MergeRequestState": {
        "OPENED": "Open, never closed.",
        "REOPENED": "Open again after it was closed.",
        "CLOSED": "Closed without being merged.",
        "MERGED": "Merged.",
    },
    "MergeRequestStateEvent": {"CLOSE": "Close it.", "REOPEN": "Reopen it.", "MERGE": "Merge it, like `acceptMergeRequest`."},
    "MergeStatus": {
        "UNCHECKED": "Not checked since one of the branches changed.",
        "CAN_BE_MERGED": "The branches can be merged without conflicts.",
        "CANNOT_BE_MERGED": "The branches have merge conflicts, or there is nothing to merge.",
    },
    "MilestoneState": {"ACTIVE": "The milestone is active.", "CLOSED": "The milestone is closed."},
    "MilestoneStateEvent": {"CLOSE": "Close it.", "ACTIVATE": "Activate it again."},
    "NamespaceKind": {"USER": "Personal namespace of a user.", "GROUP": "Namespace of a group."},
    "NoteableType": {"ISSUE": "An issue.", "MERGE_REQUEST": "A merge request.", "SNIPPET": "A snippet."},
    "OrderDirection": {"ASC": "Ascending: smallest or oldest first.", "DESC": "Descending: largest or newest first."},
    "ProjectOrderField": {
        "ID": "Sort by ID.",
        "NAME": "Sort by name.",
        "PATH": "Sort by path.",
        "CREATED_AT": _CREATED_AT,
        "UPDATED_AT": _UPDATED_AT,
        "LAST_ACTIVITY_AT": "Sort by the time of the last activity.",
    },
    "RollupState": {
        "NONE": "There are no checks.",
        "PENDING": "All checks are pending.",
        "RUNNING": "At least one check has not finished, and not all are pending.",
        "FAILED": "All checks finished, and at least one failed without `allowFailure`.",
        "SUCCESS": "All checks finished; none failed without `allowFailure`, and not all were canceled.",
        "CANCELED": "All checks were canceled.",
    },
    "ArchiveFormat": {"TAR": "Tar.", "TAR_GZ": "Tar, compressed by gzip.", "TAR_BZ2": "Tar, compressed by bzip2.", "ZIP": "Zip."},
    "FileActionKind": {
        "CREATE": "Add a file that does not exist.",
        "UPDATE": "Replace the contents of a file; its mode stays.",
        "DELETE": "Remove a file.",
    },
    "FileEncoding": {"TEXT": "As text, which is stored as UTF-8.", "BASE64": "As base64; line breaks and spaces are ignored."},
    "TimeBucket": {
        "HOUR": "Clock hour.",
        "DAY": "Day, from midnight.",
        "WEEK": "Week, from Monday.",
        "MONTH": "Calendar month.",
    },
    "TokenScope": {
        "READ": "Queries and subscriptions, v3 requests that read, and fetches by git over HTTP.",
        "WRITE": "Everything that READ allows, and mutations and v3 requests that change something.",
        "GIT": "Fetches and pushes by git over HTTP.",
        "ADMIN": "With another scope: the rights of an administrator, if the user is one.",
    },
    "TreeEntryKind": {"TREE": "A directory.", "BLOB": "A file or a symbolic link.", "COMMIT": "A commit of a submodule."},
    "ArtifactEntryKind": {"FOLDER": "A folder.", "FILE": "A file.", "LINK": "A symbolic link; its contents are its target."},
    "UserState": {"ACTIVE": "The user can use the service.", "BLOCKED": "The user cannot use the service."},
    "Visibility": {
        "PRIVATE": "Visible to members only; 0 in v3.",
        "INTERNAL": "Visible to all signed-in users; 1 in v3.",
        "PUBLIC": "Visible to everyone; 2 in v3.",
    },
    "WorkScope": {
        "CREATED": "The viewer wrote them.",
        "ASSIGNED": "They are assigned to the viewer.",
        "ALL": "All, whether or not they are related to the viewer.",
    },
}
"""The name of an enum → its values with their descriptions."""


def describe_enum_values(schema: GraphQLSchema) -> None:
    """Sets the descriptions of the enum values of a finished schema."""
    for name, kind in schema.type_map.items():
        if isinstance(kind, GraphQLEnumType) and not is_introspection_type(kind):
            for key, value in kind.values.items():
                value.description = value.description or DESCRIPTIONS.get(name, {}).get(key)
