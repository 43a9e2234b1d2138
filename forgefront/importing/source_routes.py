"""The routes that are read, in both versions of the interface.

`{issue}` and `{merge_request}` are ids in v3 and numbers in the project (iids) in v4.
"""

from enum import StrEnum
from typing import Any
from urllib.parse import quote


class ApiVersion(StrEnum):
    V3 = "v3"
    V4 = "v4"


_PROJECT = "/projects/{project}"
ROUTES: dict[str, str | tuple[str, str]] = {
    "version": "/version",
    "current_user": "/user",
    "settings": "/application/settings",
    "users": "/users",
    "user": "/users/{user}",
    "user_keys": "/users/{user}/keys",
    "user_emails": "/users/{user}/emails",
    "namespaces": "/namespaces",
    "groups": "/groups",
    "group": "/groups/{group}",
    "group_members": "/groups/{group}/members",
    "group_projects": "/groups/{group}/projects",
    "projects": ("/projects/all", "/projects"),
    "own_projects": "/projects",
    "project": _PROJECT,
    "members": f"{_PROJECT}/members",
    "events": f"{_PROJECT}/events",
    "labels": f"{_PROJECT}/labels",
    "milestones": f"{_PROJECT}/milestones",
    "issues": f"{_PROJECT}/issues",
    "issue_notes": f"{_PROJECT}/issues/{{issue}}/notes",
    "merge_requests": f"{_PROJECT}/merge_requests",
    "merge_request_changes": f"{_PROJECT}/merge_requests/{{merge_request}}/changes",
    "merge_request_commits": f"{_PROJECT}/merge_requests/{{merge_request}}/commits",
    "merge_request_notes": f"{_PROJECT}/merge_requests/{{merge_request}}/notes",
    "snippets": f"{_PROJECT}/snippets",
    "snippet_content": f"{_PROJECT}/snippets/{{snippet}}/raw",
    "snippet_notes": f"{_PROJECT}/snippets/{{snippet}}/notes",
    "branches": (f"{_PROJECT}/repository/branches", f"{_PROJECT}/protected_branches"),
    "tags": f"{_PROJECT}/repository/tags",
    "commit_comments": f"{_PROJECT}/repository/commits/{{sha}}/comments",
    "commit_statuses": f"{_PROJECT}/repository/commits/{{sha}}/statuses",
    "builds": (f"{_PROJECT}/builds", f"{_PROJECT}/jobs"),
    "pipelines": f"{_PROJECT}/pipelines",
    "trace": (f"{_PROJECT}/builds/{{build}}/trace", f"{_PROJECT}/jobs/{{build}}/trace"),
    "artifacts": (f"{_PROJECT}/builds/{{build}}/artifacts", f"{_PROJECT}/jobs/{{build}}/artifacts"),
    "project_hooks": f"{_PROJECT}/hooks",
    "deploy_keys": (f"{_PROJECT}/keys", f"{_PROJECT}/deploy_keys"),
    "variables": f"{_PROJECT}/variables",
    "triggers": f"{_PROJECT}/triggers",
    "system_hooks": "/hooks",
    "runners": "/runners/all",
    "runner": "/runners/{runner}",
}


def route_path(api: ApiVersion, route: str, **values: Any) -> str:
    """`route_path(V3, "trace", project=3, build=7)` is `/api/v3/projects/3/builds/7/trace`."""
    paths = ROUTES[route]
    path = paths if isinstance(paths, str) else paths[api is ApiVersion.V4]
    return f"/api/{api}{path.format(**{name: quote(str(value), safe='') for name, value in values.items()})}"
