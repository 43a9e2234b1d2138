"""Bodies for the hooks of projects, with the keys that receivers of GitLab 8.5 read.

System hooks get the shorter bodies of `object_payloads` and `push_payloads` for the same events (docs/decisions.md 30).
"""

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from graph.context import Context
from graph.events.payloads import format_timestamp, get_existing, timestamps_of
from graph.rules.accounts import accounts
from graph.rules.states import is_work_in_progress
from storage import tables
from storage.git.commits import GitCommit
from storage.git.diffs.changed_paths import ChangedPaths, list_changed_paths
from storage.git.repository import DamagedRepository, NotARepository, Repository, UnknownCommit
from storage.git.tag_objects import read_message

if TYPE_CHECKING:
    # A circular import otherwise: payloads use rules, and rules publish events.
    from graph.rules.git.commit_index import RefUpdate

Body = dict[str, Any]

MAX_COMMITS = 20
MAX_MESSAGE_CHARACTERS = 10_000
"""Maximum characters of a commit message."""
SHORT_REPOSITORY_KEYS = ("name", "url", "description", "homepage")
REPOSITORY_KEYS = (*SHORT_REPOSITORY_KEYS, "git_http_url", "git_ssh_url", "visibility_level")


async def issue_body(context: Context, issue: tables.Issue, action: str = "update") -> Body:
    """The body of an issue event; `action` is `open`, `update`, `close` or `reopen`."""
    project = await project_attributes(context, issue.project_id)
    attributes = {**_issue_attributes(issue), "url": f"{project['web_url']}/issues/{issue.iid}", "action": action}
    return await _object_body(context, "issue", project, attributes, issue.assignee_id)


async def merge_request_body(context: Context, merge_request: tables.MergeRequest, action: str = "update") -> Body:
    """The body of a merge request event; `action` is `open`, `update`, `close`, `reopen` or `merge`."""
    project = await project_attributes(context, merge_request.project_id)
    attributes = await _merge_request_attributes(context, merge_request, project)
    attributes |= {"url": f"{project['web_url']}/merge_requests/{merge_request.iid}", "action": action}
    return await _object_body(context, "merge_request", project, attributes, merge_request.assignee_id)


async def note_body(context: Context, note: tables.Note) -> Body:
    """The body of the event of a note on an issue, a merge request or a snippet, which it contains."""
    project = await project_attributes(context, note.project_id)
    target: Body
    if note.issue_id is not None:
        issue: tables.Issue = await get_existing(context, tables.Issue, note.issue_id)
        kind, page, target = "Issue", f"issues/{issue.iid}", _issue_attributes(issue)
    elif note.merge_request_id is not None:
        merge_request: tables.MergeRequest = await get_existing(context, tables.MergeRequest, note.merge_request_id)
        kind, page = "MergeRequest", f"merge_requests/{merge_request.iid}"
        target = await _merge_request_attributes(context, merge_request, project)
    else:
        assert note.snippet_id is not None  # noqa: S101 - a check of the table
        snippet: tables.Snippet = await get_existing(context, tables.Snippet, note.snippet_id)
        kind, page, target = "Snippet", f"snippets/{snippet.id}", _snippet_attributes(snippet)
    attributes = {
        **timestamps_of(note),
        "id": note.id,
        "note": note.body,
        "noteable_type": kind,
        "noteable_id": target["id"],
        "commit_id": None,
        "author_id": note.author_id,
        "project_id": note.project_id,
        "attachment": note.attachment,
        "line_code": None,
        "st_diff": None,
        "system": False,
        "url": f"{project['web_url']}/{page}#note_{note.id}",
    }
    key = {"Issue": "issue", "MergeRequest": "merge_request", "Snippet": "snippet"}[kind]
    return {**await _object_body(context, "note", project, attributes), "project_id": note.project_id, key: target}


async def commit_comment_body(context: Context, comment: tables.CommitComment) -> Body:
    """The body of the event of a comment on a commit, which it contains."""
    project = await project_attributes(context, comment.project_id)
    created_at = format_timestamp(comment.created_at)
    attributes = {
        "id": comment.id,
        "note": comment.note,
        "noteable_type": "Commit",
        "noteable_id": None,
        "commit_id": comment.sha,
        "author_id": comment.author_id,
        "project_id": comment.project_id,
        "attachment": None,
        "line_code": None,
        "st_diff": None,
        "system": False,
        "created_at": created_at,
        "updated_at": created_at,
        "url": f"{project['web_url']}/commit/{comment.sha}#note_{comment.id}",
    }
    commit = await find_commit(context, [comment.project_id], comment.sha)
    body = await _object_body(context, "note", project, attributes)
    return {**body, "project_id": comment.project_id, "commit": commit and commit_attributes(commit, project["web_url"])}


async def push_body(context: Context, kind: str, project: tables.Project, ref_update: "RefUpdate") -> Body:
    """The body of the event of a push to one ref; `kind` is `push` or `tag_push`. Tags have no commits."""
    attributes, viewer = await project_attributes(context, project.id), context.viewer
    commits = [*reversed(ref_update.commits[:MAX_COMMITS])]
    changes = await _list_changes(context, project.id, commits) if commits else []
    commit_id, message = await _resolve_pushed(context, project.id, ref_update.update.new)
    return {
        "object_kind": kind,
        **ref_update.update.describe(),
        "checkout_sha": commit_id,
        "message": message,
        "user_id": viewer.id,
        "user_name": viewer.name,
        "user_email": viewer.email,
        "user_avatar": (await person_attributes(context, viewer))["avatar_url"],
        "project_id": project.id,
        "project": attributes,
        "repository": {key: attributes[key] for key in REPOSITORY_KEYS},
        "commits": [
            {**commit_attributes(commit, attributes["web_url"]), "added": paths.added, "modified": paths.modified, "removed": paths.removed}
            for commit, paths in zip(commits, changes, strict=True)
        ],
        "total_commits_count": ref_update.total,
    }


async def project_attributes(context: Context, project_id: int) -> Body:
    """The project as all bodies contain it. `ssh_url`, `http_url` and `url` are older names."""
    project: tables.Project = await get_existing(context, tables.Project, project_id)
    namespace: tables.Namespace = await get_existing(context, tables.Namespace, project.namespace_id)
    services, path = context.services, f"{namespace.path}/{project.path}"
    ssh_url = f"{services.static_settings.ssh_prefix}{path}.git"
    web_url = f"{services.external_url}/{path}"
    return {
        "name": project.name,
        "description": project.description,
        "web_url": web_url,
        "avatar_url": project.avatar_url,
        "git_ssh_url": ssh_url,
        "git_http_url": f"{web_url}.git",
        "namespace": namespace.name,
        "visibility_level": project.visibility_level,
        "path_with_namespace": path,
        "default_branch": project.default_branch,
        "homepage": web_url,
        "url": ssh_url,
        "ssh_url": ssh_url,
        "http_url": f"{web_url}.git",
    }


async def find_commit(context: Context, project_ids: list[int], oid: str) -> GitCommit | None:
    """The commit in the first of the projects' repositories that has it."""
    for project_id in project_ids:
        try:
            return await context.services.repositories.read(project_id, lambda repository: repository.commit(oid))
        except (UnknownCommit, NotARepository, DamagedRepository):
            continue
    return None


async def person_attributes(context: Context, user: tables.User) -> Body:
    avatar: Any = accounts.build_avatar_url(context, user)
    return {"name": user.name, "username": user.username, "avatar_url": await avatar if isawaitable(avatar) else avatar}


def commit_attributes(commit: GitCommit, project_url: str) -> Body:
    return {
        "id": commit.oid,
        "message": commit.message[:MAX_MESSAGE_CHARACTERS],
        "timestamp": commit.committed_at.isoformat(timespec="seconds"),
        "url": f"{project_url}/commit/{commit.oid}",
        "author": {"name": commit.author_name, "email": commit.author_email},
    }


async def _object_body(context: Context, kind: str, project: Body, attributes: Body, assignee_id: int | None = None) -> Body:
    body = {
        "object_kind": kind,
        "user": await person_attributes(context, context.viewer),
        "project": project,
        "repository": {key: project[key] for key in SHORT_REPOSITORY_KEYS},
        "object_attributes": attributes,
    }
    if assignee_id is not None:
        body["assignee"] = await person_attributes(context, await get_existing(context, tables.User, assignee_id))
    return body


def _issue_attributes(issue: tables.Issue) -> Body:
    return {
        **timestamps_of(issue),
        "id": issue.id,
        "iid": issue.iid,
        "project_id": issue.project_id,
        "title": issue.title,
        "description": issue.description,
        "state": str(issue.state),
        "author_id": issue.author_id,
        "assignee_id": issue.assignee_id,
        "milestone_id": issue.milestone_id,
        "branch_name": None,
        "position": 0,
    }


async def _merge_request_attributes(context: Context, merge_request: tables.MergeRequest, target: Body) -> Body:
    source_id = merge_request.source_project_id
    has_source = await context.rows_by_id(tables.Project).get(source_id) is not None
    head = merge_request.head_oid
    commit = await find_commit(context, [*([source_id] if has_source else []), merge_request.project_id], head) if head else None
    attributes = {
        **timestamps_of(merge_request),
        "id": merge_request.id,
        "iid": merge_request.iid,
        "title": merge_request.title,
        "description": merge_request.description,
        "state": str(merge_request.state),
        "merge_status": str(merge_request.merge_status),
        "source_branch": merge_request.source_branch,
        "source_project_id": source_id,
        "source": await project_attributes(context, source_id) if has_source else None,
        "target_branch": merge_request.target_branch,
        "target_project_id": merge_request.project_id,
        "target": target,
        "last_commit": commit and commit_attributes(commit, target["web_url"]),
        "work_in_progress": is_work_in_progress(merge_request.title),
        "author_id": merge_request.author_id,
        "assignee_id": merge_request.assignee_id,
        "milestone_id": merge_request.milestone_id,
        "position": 0,
        "locked_at": None,
    }
    if merge_request.assignee_id is not None:
        attributes["assignee"] = await person_attributes(context, await get_existing(context, tables.User, merge_request.assignee_id))
    return attributes


def _snippet_attributes(snippet: tables.Snippet) -> Body:
    return {
        **timestamps_of(snippet),
        "id": snippet.id,
        "title": snippet.title,
        "content": snippet.content,
        "file_name": snippet.file_name,
        "author_id": snippet.author_id,
        "project_id": snippet.project_id,
        "expires_at": format_timestamp(snippet.expires_at) if snippet.expires_at is not None else None,
        "type": "ProjectSnippet",
        "visibility_level": snippet.visibility_level,
    }


async def _list_changes(context: Context, project_id: int, commits: list[GitCommit]) -> list[ChangedPaths]:
    def read(repository: Repository) -> list[ChangedPaths]:
        return [list_changed_paths(repository, commit.oid, commit.parents[0] if commit.parents else None) for commit in commits]

    try:
        return await context.services.repositories.read(project_id, read)
    except (UnknownCommit, NotARepository, DamagedRepository):
        # The push succeeds all the same.
        return [ChangedPaths() for _ in commits]


async def _resolve_pushed(context: Context, project_id: int, oid: str | None) -> tuple[str | None, str | None]:
    """The commit of a ref's new object, and the message of an annotated tag."""
    if oid is None:
        return None, None
    try:
        commit_id, message = await context.services.repositories.read(
            project_id, lambda repository: (repository.peel_to_commit(oid), read_message(repository, oid))
        )
        return commit_id, message and message.rstrip("\n")
    except (UnknownCommit, NotARepository, DamagedRepository):
        return None, None
