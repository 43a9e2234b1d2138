"""The closed shapes of v3's answers, and the check of every answer against them.

A shape is a key set: a key too many fails as a missing one does. Types are written

    "integer" "text" "boolean" "number" "time" "day" "any"     a leading "?" allows null
    "opened|closed"                                            one of some words
    "Milestone"                                                another shape
    ["text"]                                                   an array

`time` is ISO 8601 with three digits of a second, and Z or an offset. Where the document leaves a key set open, the shape is
the choice of docs/decisions.md 8.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

import httpx

from rest_v3.api_docs.openapi import collect_error_statuses
from tests.rest_v3.support.legacy_shapes import LEGACY_SHAPES

Shape = dict[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)", re.ASCII)
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
SHA = "text"

USER_IN_LIST: Shape = {"id": "integer", "username": "text", "name": "text", "state": "active|blocked", "avatar_url": "?text"}

USER: Shape = {
    **USER_IN_LIST,
    "created_at": "time",
    "is_admin": "boolean",
    "bio": "?text",
    "messenger": "text",
    "professional_profile": "text",
    "microblog": "text",
    "website_url": "text",
}

USER_FOR_ADMIN: Shape = {
    **USER,
    "email": "text",
    "extern_uid": "?text",
    "provider": "?text",
    "theme_id": "integer",
    "color_scheme_id": "integer",
    "can_create_group": "boolean",
    "can_create_project": "boolean",
    "projects_limit": "integer",
}

AUTHOR: Shape = {**USER_IN_LIST, "web_url": "text"}

AUTHOR_WITH_EMAIL: Shape = {
    "id": "integer",
    "username": "text",
    "email": "text",
    "name": "text",
    "state": "active|blocked",
    "created_at": "time",
}

MILESTONE: Shape = {
    "id": "integer",
    "iid": "integer",
    "project_id": "integer",
    "title": "text",
    "description": "?text",
    "due_date": "?day",
    "state": "active|closed",
    "created_at": "time",
    "updated_at": "time",
}

COMMIT_OF_MERGE_REQUEST: Shape = {
    "id": SHA,
    "short_id": "text",
    "title": "text",
    "author_name": "text",
    "author_email": "text",
    "created_at": "time",
    "message": "text",
}

MERGE_REQUEST: Shape = {
    "id": "integer",
    "iid": "integer",
    "project_id": "integer",
    "source_project_id": "integer",
    "target_project_id": "integer",
    "title": "text",
    "description": "?text",
    "state": "opened|closed|merged|reopened",
    "source_branch": "text",
    "target_branch": "text",
    "upvotes": "integer",
    "downvotes": "integer",
    "author": "AuthorWithEmail",
    "assignee": "?AuthorWithEmail",
    "labels": ["text"],
    "milestone": "?Milestone",
    "work_in_progress": "boolean",
    "merge_when_build_succeeds": "boolean",
    "merge_status": "text",
}

BUILD_STATUS = "pending|running|failed|success|canceled"

BUILD: Shape = {
    "id": "integer",
    "name": "text",
    "stage": "text",
    "ref": "text",
    "tag": "boolean",
    "status": BUILD_STATUS,
    "created_at": "time",
    "started_at": "?time",
    "finished_at": "?time",
    "coverage": "?number",
    "download_url": "?text",
    "artifacts_file": "?ArtifactsFile",
    "runner": "?Runner",
    "commit": "?CommitOfMergeRequest",
    "user": "?User",
}

PROJECT_HOOK: Shape = {
    "id": "integer",
    "url": "text",
    "created_at": "time",
    "project_id": "integer",
    "push_events": "boolean",
    "issues_events": "boolean",
    "merge_requests_events": "boolean",
    "tag_push_events": "boolean",
    "note_events": "boolean",
    "build_events": "boolean",
    "enable_ssl_verification": "boolean",
}

HOOK: Shape = {"id": "integer", "url": "text", "created_at": "time"}

GROUP: Shape = {"id": "integer", "name": "text", "path": "text", "description": "?text"}

SETTINGS: Shape = {
    "id": "integer",
    "created_at": "time",
    "updated_at": "time",
    "default_projects_limit": "integer",
    "signup_enabled": "boolean",
    "signin_enabled": "boolean",
    "avatar_service_enabled": "boolean",
    "sign_in_text": "?text",
    "home_page_url": "?text",
    "default_branch_protection": "integer",
    "microblog_sharing_enabled": "boolean",
    "restricted_visibility_levels": "?Integers",
    "max_attachment_size": "integer",
    "session_expire_delay": "integer",
    "default_project_visibility": "integer",
    "default_snippet_visibility": "integer",
    "restricted_signup_domains": "?Texts",
    "user_oauth_applications": "boolean",
    "after_sign_out_path": "?text",
}

NOTE: Shape = {
    "id": "integer",
    "body": "text",
    "attachment": "?text",
    "author": "AuthorWithEmail",
    "created_at": "time",
    "system": "boolean",
    "upvote": "boolean",
    "downvote": "boolean",
    "noteable_id": "integer",
    "noteable_type": "Issue|MergeRequest|Snippet",
}

DIFF_ENTRY: Shape = {
    "diff": "text",
    "new_path": "text",
    "old_path": "text",
    "a_mode": "?text",
    "b_mode": "text",
    "new_file": "boolean",
    "renamed_file": "boolean",
    "deleted_file": "boolean",
}

PROJECT: Shape = {
    "id": "integer",
    "description": "?text",
    "default_branch": "?text",
    "tag_list": ["text"],
    "public": "boolean",
    "archived": "boolean",
    "visibility_level": "integer",
    "ssh_url_to_repo": "text",
    "http_url_to_repo": "text",
    "web_url": "text",
    "owner": "?Author",
    "name": "text",
    "name_with_namespace": "text",
    "path": "text",
    "path_with_namespace": "text",
    "issues_enabled": "boolean",
    "merge_requests_enabled": "boolean",
    "wiki_enabled": "boolean",
    "builds_enabled": "boolean",
    "snippets_enabled": "boolean",
    "created_at": "time",
    "last_activity_at": "time",
    "shared_runners_enabled": "boolean",
    "creator_id": "?integer",
    "namespace": "ProjectNamespace",
    "forked_from_project": "?ForkSource",
    "avatar_url": "?text",
    "star_count": "integer",
    "forks_count": "integer",
    "open_issues_count": "?integer",
    "public_builds": "boolean",
}

SHAPES: dict[str, Any] = {
    "Integers": ["integer"],
    "Texts": ["text"],
    "ArtifactsFile": {"filename": "text", "size": "integer"},
    "Runner": {"id": "integer", "description": "?text", "active": "boolean", "is_shared": "boolean", "name": "?text"},
    "RunnerProject": {
        "id": "integer",
        **dict.fromkeys(("name", "name_with_namespace", "path", "path_with_namespace"), "text"),
    },
    "RunnerDetails": {
        "id": "integer",
        "active": "boolean",
        "is_shared": "boolean",
        "tag_list": ["text"],
        "contacted_at": "?time",
        "projects": ["RunnerProject"],
        **dict.fromkeys(("description", "name", "version", "revision", "platform", "architecture", "token"), "?text"),
    },
    "UserInList": USER_IN_LIST,
    "UserInListForAdmin": {**USER_FOR_ADMIN, "current_sign_in_at": "?time", "two_factor_enabled": "boolean"},
    "User": USER,
    "UserForAdmin": USER_FOR_ADMIN,
    "CurrentUser": {
        **{key: kind for key, kind in USER_FOR_ADMIN.items() if key not in ("extern_uid", "provider")},
        "private_token": "?text",
    },
    "Author": AUTHOR,
    "AuthorWithEmail": AUTHOR_WITH_EMAIL,
    "AuthorInChanges": USER_IN_LIST,
    "Issue": {
        "id": "integer",
        "iid": "integer",
        "project_id": "integer",
        "title": "text",
        "description": "?text",
        "state": "opened|closed",
        "labels": ["text"],
        "milestone": "?Milestone",
        "assignee": "?Author",
        "author": "Author",
        "created_at": "time",
        "updated_at": "time",
    },
    "Milestone": MILESTONE,
    "Note": NOTE,
    "Snippet": {
        "id": "integer",
        "title": "text",
        "file_name": "text",
        "author": "AuthorWithEmail",
        "expires_at": "?time",
        "updated_at": "time",
        "created_at": "time",
    },
    "ProjectSnippet": {
        "id": "integer",
        "title": "text",
        "file_name": "text",
        "author": "Author",
        "expires_at": "?time",
        "updated_at": "time",
        "created_at": "time",
    },
    "DeletedProjectSnippet": {
        "id": "integer",
        "title": "text",
        "content": "text",
        "file_name": "text",
        "author_id": "integer",
        "project_id": "integer",
        "type": "ProjectSnippet|PersonalSnippet",
        "visibility_level": "integer",
        "expires_at": "?time",
        "updated_at": "time",
        "created_at": "time",
    },
    "MRNote": {"note": "text", "author": "Author"},
    "Trigger": {"token": "?text", "created_at": "time", "updated_at": "time", "deleted_at": "?time", "last_used": "?time"},
    "TriggerRequest": {"id": "integer", "variables": "any"},
    "Variable": {"key": "text", "value": "?text"},
    "Upload": {"alt": "text", "url": "text", "is_image": "boolean", "markdown": "text"},
    "Commit": {**COMMIT_OF_MERGE_REQUEST, "allow_failure": "boolean"},
    "CommitOfMergeRequest": COMMIT_OF_MERGE_REQUEST,
    "CommitSingle": {
        **COMMIT_OF_MERGE_REQUEST,
        "committed_date": "time",
        "authored_date": "time",
        "parent_ids": [SHA],
        "status": "text",
    },
    "CommitComment": {"note": "text", "author": "AuthorWithEmail"},
    "CommitCommentPosted": {
        "author": "Author",
        "created_at": "time",
        "note": "text",
        "path": "?text",
        "line": "?integer",
        "line_type": "?text",
    },
    "CommitStatus": {
        "id": "integer",
        "sha": SHA,
        "ref": "?text",
        "name": "text",
        "status": BUILD_STATUS,
        "description": "?text",
        "target_url": "?text",
        "allow_failure": "boolean",
        "created_at": "time",
        "started_at": "?time",
        "finished_at": "?time",
        "author": "?Author",
    },
    "DiffEntry": DIFF_ENTRY,
    "Branch": {"name": "text", "commit": "?HeadCommit", "protected": "boolean"},
    "DeletedBranch": {"branch_name": "text"},
    "HeadCommit": {
        "id": SHA,
        "message": "text",
        "parent_ids": [SHA],
        "authored_date": "time",
        "author_name": "text",
        "author_email": "text",
        "committed_date": "time",
        "committer_name": "text",
        "committer_email": "text",
    },
    "Tag": {"name": "text", "message": "?text", "commit": "?HeadCommit", "release": "?Release"},
    "DeletedTag": {"tag_name": "text"},
    "File": {
        "file_name": "text",
        "file_path": "text",
        "size": "integer",
        "encoding": "base64",
        "content": "text",
        "ref": "text",
        "blob_id": SHA,
        "commit_id": SHA,
        "last_commit_id": "?text",
    },
    "TreeEntry": {"id": SHA, "name": "text", "type": "tree|blob|commit", "mode": "text"},
    "Comparison": {
        "commit": "?CommitOfMergeRequest",
        "commits": ["CommitOfMergeRequest"],
        "diffs": ["DiffEntry"],
        "compare_timeout": "boolean",
        "compare_same_ref": "boolean",
    },
    "Contributor": {"name": "text", "email": "text", "commits": "integer", "additions": "integer", "deletions": "integer"},
    "ChangedFile": {"file_path": "text", "branch_name": "text"},
    "Release": {"tag_name": "text", "description": "text"},
    "Build": BUILD,
    "ErasedBuild": {key: kind for key, kind in BUILD.items() if key != "artifacts_file"},
    "Label": {"name": "text", "color": "text"},
    "DeletedLabel": {
        "id": "integer",
        "title": "text",
        "color": "text",
        "template": "boolean",
        "project_id": "integer",
        "created_at": "time",
        "updated_at": "time",
    },
    "MergeRequest": MERGE_REQUEST,
    "MergeRequestWithChanges": {
        **MERGE_REQUEST,
        "author": "AuthorInChanges",
        "assignee": "?AuthorInChanges",
        "created_at": "time",
        "updated_at": "time",
        "changes": ["DiffEntry"],
    },
    "Hook": HOOK,
    "DeletedHook": {
        **HOOK,
        "updated_at": "time",
        "project_id": "?integer",
        "service_id": "?integer",
        "enable_ssl_verification": "boolean",
        "push_events": "boolean",
        "tag_push_events": "boolean",
        "issues_events": "boolean",
        "merge_requests_events": "boolean",
        "note_events": "boolean",
    },
    "ProjectHook": PROJECT_HOOK,
    "DeletedProjectHook": {**PROJECT_HOOK, "updated_at": "time", "service_id": "?integer"},
    "HookTest": {
        "project_id": "integer",
        "owner_email": "text",
        "owner_name": "text",
        "name": "text",
        "path": "text",
        "event_name": "project_create",
    },
    "Group": GROUP,
    "GroupDetails": {**GROUP, "projects": ["ProjectOfGroup"]},
    "GroupMember": {**AUTHOR_WITH_EMAIL, "access_level": "integer"},
    "ProjectMember": {**AUTHOR, "access_level": "integer"},
    "RemovedProjectMember": {
        "id": "integer",
        "source_id": "integer",
        "source_type": "Project|Namespace",
        "user_id": "integer",
        "access_level": "integer",
        "notification_level": "integer",
        "created_at": "time",
        "updated_at": "time",
        "created_by_id": "?integer",
        "invite_email": "?text",
        "invite_token": "?text",
        "invite_accepted_at": "?time",
    },
    "ProjectOfGroup": {
        "id": "integer",
        "description": "?text",
        "default_branch": "?text",
        "public": "boolean",
        "visibility_level": "integer",
        "ssh_url_to_repo": "text",
        "http_url_to_repo": "text",
        "web_url": "text",
        "name": "text",
        "name_with_namespace": "text",
        "path": "text",
        "path_with_namespace": "text",
        "creator_id": "?integer",
        "archived": "boolean",
        "avatar_url": "?text",
        "created_at": "time",
        "last_activity_at": "time",
        "issues_enabled": "boolean",
        "merge_requests_enabled": "boolean",
        "builds_enabled": "boolean",
        "wiki_enabled": "boolean",
        "snippets_enabled": "boolean",
        "tag_list": ["text"],
        "owner": "ProjectOwner",
        "namespace": "ProjectNamespace",
    },
    "Project": PROJECT,
    "ProjectWithAccess": {**PROJECT, "permissions": "Permissions"},
    "ProjectWithToken": {**PROJECT, "runners_token": "?text"},
    "SingleProject": {**PROJECT, "permissions": "Permissions", "runners_token": "?text"},
    "Permissions": {"project_access": "?Access", "group_access": "?Access"},
    "Access": {"access_level": "integer", "notification_level": "integer"},
    "ForkSource": {"id": "integer", "name": "text", "name_with_namespace": "text", "path": "text", "path_with_namespace": "text"},
    "Namespace": {"id": "integer", "path": "text", "kind": "user|group"},
    "ForkLink": {
        "id": "integer",
        "forked_to_project_id": "integer",
        "forked_from_project_id": "integer",
        "created_at": "time",
        "updated_at": "time",
    },
    "JobId": "text",
    "Activity": {
        "title": "?text",
        "project_id": "integer",
        "action_name": "text",
        "target_id": "?integer",
        "target_type": "?text",
        "target_title": "?text",
        "author_id": "integer",
        "author": "Author",
        "author_username": "text",
        "data": "?Push",
        "note": "?Note",
        "created_at": "time",
    },
    "Push": {
        "ref": "text",
        "before": SHA,
        "after": SHA,
        "total_commits_count": "integer",
        "commits": ["PushedCommit"],
    },
    "PushedCommit": {"id": SHA, "message": "text", "timestamp": "time", "author": "PushedCommitAuthor"},
    "PushedCommitAuthor": {"name": "text", "email": "text"},
    "ProjectOwner": {"id": "integer", "name": "text", "created_at": "time"},
    "ProjectNamespace": {
        "id": "integer",
        "name": "text",
        "path": "text",
        "description": "?text",
        "owner_id": "?integer",
        "created_at": "time",
        "updated_at": "time",
    },
    "SSHKey": {"id": "integer", "title": "text", "key": "text", "created_at": "time"},
    "SSHKeyWithUser": {"id": "integer", "title": "text", "key": "text", "created_at": "time", "user": "UserInListForAdmin"},
    "DeletedDeployKey": {
        "id": "integer",
        "title": "text",
        "key": "text",
        "fingerprint": "text",
        "user_id": "?integer",
        "type": "DeployKey|Key",
        "public": "boolean",
        "created_at": "time",
        "updated_at": "time",
    },
    "Email": {"id": "integer", "email": "text"},
    "ApplicationSettings": SETTINGS,
    "True": "boolean",
}

ADMIN_SHAPES = {"UserInList": "UserInListForAdmin", "User": "UserForAdmin"}
"""The shapes of rows whose answer depends on who asks."""


SHAPES_OF_PROFILES: dict[str, dict[str, Any]] = {"document": SHAPES, "gitlab-8.5": {**SHAPES, **LEGACY_SHAPES}}


def check_shape(name: str, body: Any, profile: str = "document") -> None:
    """Fails with every difference between a body and the shape of a name."""
    shapes = SHAPES_OF_PROFILES[profile]
    differences = list(_differences(shapes, shapes[name], body, name))
    assert not differences, "\n".join(("the answer is not of its closed shape:", *differences))


def check_error(body: Any, by_value: Mapping[str, str] | None = None) -> None:
    """Fails unless a body is the object that every error is (docs/decisions.md 4).

    `by_value` has the fields whose message is by value, `{"a?": {"title": ["is invalid"]}}`, and the name inside (docs/decisions.md 38).
    """
    assert isinstance(body, dict), f"an error has to be an object, not {body!r}"
    assert body.keys() == {"message"}, f"an error has the key message alone, not {sorted(body)}"
    message = body["message"]
    if isinstance(message, dict):
        assert message, "an empty message"
        for field, name in (by_value or {}).items():
            if field in message:
                messages = list(message.pop(field).values())
                assert messages, "an empty message"
                assert all(each.keys() == {name} and is_string_list(each[name]) for each in messages), messages
        assert all(map(is_string_list, message.values())), f"a message by field has lists of texts, not {message!r}"
    elif isinstance(message, list):
        assert message, "an empty message"
        assert all(isinstance(text, str) for text in message), message
    else:
        assert isinstance(message, str), f"a message is text, not {message!r}"
        assert message, "an empty message"


def is_string_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


class RouteLookup(Protocol):
    def find_route(self, method: str, path: str) -> Any: ...
    def find_endpoint(self, method: str, path: str) -> Any: ...


def check_response(
    app: RouteLookup, method: str, path: str, response: httpx.Response, *, admin: bool = False, profile: str = "document"
) -> None:
    """Holds an answer against the shape of the row that gave it: entry by entry for a list, and errors against theirs."""
    if method in ("HEAD", "OPTIONS"):
        return
    if (endpoint := app.find_endpoint(method, path)) is not None:
        described = {endpoint.route.success_status, *collect_error_statuses(endpoint), *([206] if endpoint.route.file_key else [])}
        assert response.status_code in described, f"{endpoint.route.call}: {response.status_code} is not in the OpenAPI document"
    if response.is_success and (row := app.find_route(method, path)) is not None and row.file_key is not None:
        assert response.headers["content-type"] == row.file_type
        return
    if response.is_success and (row := app.find_route(method, path)) is not None and row.is_text:
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        return
    assert response.headers["content-type"].startswith("application/json"), response.headers["content-type"]
    body = response.json()
    if response.status_code >= 400:
        row = app.find_route(method, path)
        check_error(body, row.errors_by_value if row is not None else None)
        return
    route = app.find_route(method, path)
    assert route is not None, f"no route matches {method} {path}"
    if body is None:
        assert route.result_path is None or route.reshape is not None or any(_is_success(answer) for answer in route.errors.values())
        return
    if isinstance(body, dict) and any(isinstance(each, dict) and each.keys() == body.keys() for each in _constant_bodies(route)):
        return
    assert route.shape is not None, f"{route.call} names no shape"
    name = ADMIN_SHAPES.get(route.shape, route.shape) if admin else route.shape
    for entry in body if isinstance(body, list) and not isinstance(SHAPES_OF_PROFILES[profile][name], list) else [body]:
        check_shape(name, entry, profile)


def _constant_bodies(route: Any) -> list[Any]:
    return [answer[1] for answer in route.errors.values() if isinstance(answer, tuple) and _is_success(answer)]


def _is_success(answer: Any) -> bool:
    return (answer[0] if isinstance(answer, tuple) else answer) < 400


def _differences(shapes: Mapping[str, Any], shape: Any, value: Any, path: str) -> list[str]:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"  {path}: an object was expected, not {value!r}"]
        missing = [f"  {path}.{key}: is missing" for key, kind in shape.items() if key not in value and kind[:1] != "~"]
        leaked = [f"  {path}.{key}: is not in the shape ({value[key]!r})" for key in value if key not in shape]
        inside = [each for key in shape if key in value for each in _differences(shapes, shape[key], value[key], f"{path}.{key}")]
        return [*missing, *leaked, *inside]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"  {path}: an array was expected, not {value!r}"]
        return [each for index, part in enumerate(value) for each in _differences(shapes, shape[0], part, f"{path}[{index}]")]
    if shape.startswith("~"):
        return _differences(shapes, shape[1:], value, path)
    if shape.startswith("?"):
        return [] if value is None else _differences(shapes, shape[1:], value, path)
    if shape in shapes:
        return _differences(shapes, shapes[shape], value, path)
    return [] if _matches_kind(shape, value) else [f"  {path}: {shape} was expected, not {value!r}"]


def _matches_kind(kind: str, value: Any) -> bool:
    match kind:
        case "any":
            return True
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        case "day":
            return isinstance(value, str) and DAY.fullmatch(value) is not None
        case _:
            return str(value) in kind.split("|")
