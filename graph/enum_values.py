"""Descriptions of the values of enumerations.

Most enumerations are made of those of storage and of the rules, which know no GraphQL, so their values are described here.
"""

from collections.abc import Mapping

from graphql import GraphQLEnumType, GraphQLSchema, is_introspection_type

_CREATED_AT = "By when they were created."
_UPDATED_AT = "By when they were last changed."
_STATUSES = {
    "PENDING": "It waits to be run.",
    "RUNNING": "It runs.",
    "SUCCESS": "It succeeded.",
    "FAILED": "It failed.",
    "CANCELED": "It was canceled before it ended.",
}

DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "AccessLevel": {
        "GUEST": "May read and write issues and comments; v3's 10.",
        "REPORTER": "May also read the code and manage labels and issues; v3's 20.",
        "DEVELOPER": "May also push, and merge into branches that are not protected; v3's 30.",
        "MASTER": "May also change the project, its members, milestones and protected branches; v3's 40.",
        "OWNER": "May do everything in a group and its projects; v3's 50. Only groups have such members.",
    },
    "ArtifactsWhen": {
        "ON_SUCCESS": "Files are kept of a build that succeeded.",
        "ON_FAILURE": "Files are kept of a build that failed.",
        "ALWAYS": "Files are kept however the build ended.",
    },
    "BranchProtection": {
        "NONE": "Developers may push to it, force-push and delete it.",
        "PARTIAL": "Developers may push to it, but not force-push or delete it.",
        "FULL": "Only masters may push to it.",
    },
    "BuildDimension": {
        "PROJECT": "By the full path of the project.",
        "NAME": "By the name of the job.",
        "STAGE": "By the stage.",
        "REF": "By the branch or tag.",
        "AUTHOR": "By the username of who made the build.",
        "STATUS": "By the status.",
    },
    "BuildStatus": _STATUSES,
    "ChecksState": {
        "NOT_FOUND": "There are no checks.",
        "PENDING": "All of them wait.",
        "RUNNING": "One of them has not ended, and not all wait.",
        "SUCCESS": "All of them succeeded, or failed and were allowed to.",
        "FAILED": "All have ended; one failed that was not allowed to, or one was canceled and not all were.",
        "CANCELED": "All of them were canceled.",
    },
    "DeliveryState": {
        "PENDING": "It waits for its next attempt.",
        "DELIVERED": "The receiver has accepted it.",
        "FAILED": "All attempts failed; there will be no other unless it is sent again.",
    },
    "ErrorCode": {
        "UNAUTHENTICATED": "There is no viewer, or the token is not valid.",
        "FORBIDDEN": "The viewer sees the thing and is not allowed to do this.",
        "NOT_FOUND": "There is no such thing, or the viewer may not see it.",
        "PERSISTED_QUERY_NOT_SUPPORTED": "A hash was sent that no trusted document has; send the query itself.",
        "LIMIT_EXCEEDED": "The operation or the viewer asks for more than is allowed.",
        "UNAVAILABLE": "The database or a repository cannot answer now; nothing was changed. Try again.",
        "BAD_REQUEST": "The operation itself is wrong.",
        "INTERNAL": "A fault of the service; the log has it under the request id.",
        "INVALID": "A value is not allowed.",
        "REQUIRED": "A value is missing.",
        "TAKEN": "Another thing has this value.",
        "CONFLICT": "An equal thing exists, or the thing has changed meanwhile.",
        "NOT_ALLOWED": "This is never allowed, or not in the thing's present state.",
        "NOT_MERGEABLE": "The branches cannot be merged.",
        "NOT_SET": "There is nothing to take back.",
        "TOO_LARGE": "The data is larger than the instance allows.",
    },
    "GroupOrderField": {"ID": "By id.", "NAME": "By name.", "PATH": "By path.", "CREATED_AT": _CREATED_AT},
    "IssueOrderField": {"CREATED_AT": _CREATED_AT, "UPDATED_AT": _UPDATED_AT},
    "ImportState": {
        "QUEUED": "It waits to be run.",
        "RUNNING": "It runs.",
        "FINISHED": "It has ended; what was left out is counted.",
        "FAILED": "It ended early; the error says why. What was imported until then stays.",
    },
    "IssueState": {"OPENED": "It is open.", "CLOSED": "It is closed."},
    "IssueStateEvent": {"CLOSE": "Close it.", "REOPEN": "Open it again."},
    "JobWhen": {
        "ON_SUCCESS": "The job runs when all earlier stages succeeded.",
        "ON_FAILURE": "The job runs when an earlier stage failed.",
        "ALWAYS": "The job runs whatever became of the earlier stages.",
    },
    "LineType": {"NEW": "The line was added.", "OLD": "The line was removed."},
    "MergeBlocker": {
        "CONFLICT": "The branches cannot be merged without conflicts.",
        "BUILD_RUNNING": "Checks of the newest commit have not ended.",
        "BUILD_FAILED": "Checks of the newest commit failed or were canceled.",
        "WORK_IN_PROGRESS": "The title says that it is not to be merged yet.",
        "CLOSED": "It is closed.",
        "MERGED": "It is merged already.",
        "NO_COMMITS": "It has no commits that the target branch lacks.",
        "NO_PERMISSION": "The viewer may not push to the target branch.",
    },
    "MergeRequestOrderField": {"CREATED_AT": _CREATED_AT, "UPDATED_AT": _UPDATED_AT, "MERGED_AT": "By when they were merged."},
    "MergeRequestState": {
        "OPENED": "It is open and was never closed.",
        "REOPENED": "It was closed and is open again.",
        "CLOSED": "It is closed and not merged.",
        "MERGED": "It is merged.",
    },
    "MergeRequestStateEvent": {"CLOSE": "Close it.", "REOPEN": "Open it again.", "MERGE": "Merge it, as `acceptMergeRequest` does."},
    "MergeStatus": {
        "UNCHECKED": "Nobody has tried since one of the branches moved.",
        "CAN_BE_MERGED": "The branches can be merged without conflicts.",
        "CANNOT_BE_MERGED": "The branches cannot be merged without conflicts.",
    },
    "MilestoneState": {"ACTIVE": "It is being worked on.", "CLOSED": "It is closed."},
    "MilestoneStateEvent": {"CLOSE": "Close it.", "ACTIVATE": "Make it active again."},
    "NamespaceKind": {"USER": "A user's own.", "GROUP": "A group's."},
    "NoteableType": {"ISSUE": "An issue.", "MERGE_REQUEST": "A merge request.", "SNIPPET": "A snippet."},
    "OrderDirection": {"ASC": "The smallest or oldest first.", "DESC": "The largest or newest first."},
    "ProjectOrderField": {
        "ID": "By id.",
        "NAME": "By name.",
        "PATH": "By path.",
        "CREATED_AT": _CREATED_AT,
        "UPDATED_AT": _UPDATED_AT,
        "LAST_ACTIVITY_AT": "By when something last happened in them.",
    },
    "RollupState": {
        "NONE": "There are no checks.",
        "PENDING": "All of them wait.",
        "RUNNING": "One of them has not ended, and not all wait.",
        "FAILED": "All have ended, and one failed that was not allowed to.",
        "SUCCESS": "All have ended; none failed that was not allowed to, and not all were canceled.",
        "CANCELED": "All were canceled.",
    },
    "TimeBucket": {
        "HOUR": "An hour of the clock.",
        "DAY": "A day from midnight on.",
        "WEEK": "A week from Monday on.",
        "MONTH": "A month of the calendar.",
    },
    "TreeEntryKind": {"TREE": "A directory.", "BLOB": "A file or a symbolic link.", "COMMIT": "A commit of a submodule."},
    "UserState": {"ACTIVE": "The user may use the service.", "BLOCKED": "The user may not use the service."},
    "Visibility": {
        "PRIVATE": "Members alone see it; v3's 0.",
        "INTERNAL": "Everybody who is signed in sees it; v3's 1.",
        "PUBLIC": "Everybody sees it; v3's 2.",
    },
}
"""The name of an enumeration → its values, each with its description."""


def describe_enum_values(schema: GraphQLSchema) -> None:
    """Gives the values of a finished schema's enumerations their descriptions."""
    for name, kind in schema.type_map.items():
        if isinstance(kind, GraphQLEnumType) and not is_introspection_type(kind):
            for key, value in kind.values.items():
                value.description = value.description or DESCRIPTIONS.get(name, {}).get(key)
