"""Maps the snippets, issues, merge requests, notes and builds of a source to the inputs of the import mutations.

Pure functions; each raises InvalidEntity. The fields have the names of the interface document, of servers of that time, and of v4.
"""

from collections.abc import Sequence

from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity, drop_absent, optional_id

ISSUE_STATES = {"opened": "OPENED", "reopened": "OPENED", "closed": "CLOSED"}
MERGE_REQUEST_STATES = {"opened": "OPENED", "reopened": "REOPENED", "locked": "OPENED", "closed": "CLOSED", "merged": "MERGED"}
BUILD_STATUSES = {each: each.upper() for each in ("pending", "running", "success", "failed", "canceled")} | {
    "created": "PENDING",
    "preparing": "PENDING",
    "waiting_for_resource": "PENDING",
    "scheduled": "PENDING",
    "canceling": "CANCELED",
}
FINISHED_STATUSES = ("SUCCESS", "FAILED", "CANCELED")
LINE_TYPES = {"new": "NEW", "old": "OLD"}


def find_status(check: SourceEntity) -> str | None:
    """The status of a build or commit status; None if there is no such status here."""
    return BUILD_STATUSES.get(check.text("status") or "")


def map_snippet(project_id: str, snippet: SourceEntity, content: str) -> Item:
    created_at = snippet.require_time("created_at")
    return {
        **drop_absent(authorId=snippet.reference("author"), expiresAt=snippet.time("expires_at")),
        "sourceId": snippet.require_id(),
        "projectId": project_id,
        "title": snippet.require_text("title"),
        "fileName": snippet.text("file_name") or "snippet.txt",
        "content": content,
        # v3 does not show it; nobody sees more than before.
        "visibility": snippet.visibility() or "PRIVATE",
        "createdAt": created_at,
        "updatedAt": snippet.time("updated_at") or created_at,
    }


def map_issue(project_id: str, issue: SourceEntity) -> Item:
    state = ISSUE_STATES.get(issue.text("state") or "")
    if state is None:
        raise InvalidEntity("its state is unknown")
    created_at = issue.require_time("created_at")
    updated_at = issue.time("updated_at") or created_at
    return {
        "sourceId": issue.require_id(),
        "projectId": project_id,
        "iid": issue.require_integer("iid"),
        "authorId": issue.reference("author"),
        "assigneeId": issue.reference("assignee"),
        "milestoneId": issue.reference("milestone"),
        "title": issue.require_text("title"),
        "description": issue.text("description"),
        "state": state,
        "labels": issue.texts("labels"),
        "createdAt": created_at,
        "updatedAt": updated_at,
        "closedAt": (issue.time("closed_at") or updated_at) if state == "CLOSED" else None,
        **drop_absent(confidential=is_confidential(issue) or None),
    }


def map_merge_request(project_id: str, request: SourceEntity, commit_oids: Sequence[str] = ()) -> Item:
    """`commit_oids` are its commits, newest first: v3 has nothing else that shows its head."""
    state = MERGE_REQUEST_STATES.get(request.text("state") or "")
    if state is None:
        raise InvalidEntity("its state is unknown")
    created_at = request.require_time("created_at")
    updated_at = request.time("updated_at") or created_at
    merged_at = (request.time("merged_at") or updated_at) if state == "MERGED" else None
    return {
        "sourceId": request.require_id(),
        "projectId": project_id,
        "sourceProjectId": optional_id(request.integer("source_project_id")),
        "iid": request.require_integer("iid"),
        "authorId": request.reference("author"),
        "assigneeId": request.reference("assignee"),
        "milestoneId": request.reference("milestone"),
        "title": request.require_text("title"),
        "description": request.text("description"),
        "state": state,
        "sourceBranch": request.require_text("source_branch"),
        "targetBranch": request.require_text("target_branch"),
        "labels": request.texts("labels"),
        "mergeCommitOid": request.text("merge_commit_sha"),
        "mergeUserId": request.reference("merge_user", "merged_by"),
        "mergeWhenBuildSucceeds": request.boolean("merge_when_build_succeeds", "merge_when_pipeline_succeeds") or False,
        "createdAt": created_at,
        "updatedAt": updated_at,
        "mergedAt": merged_at,
        "closedAt": (request.time("closed_at") or updated_at) if state == "CLOSED" else None,
        **drop_absent(
            headOid=request.text("sha") or (commit_oids[0] if commit_oids else None),
            baseOid=request.entity("diff_refs").text("base_sha"),
            commitOids=list(commit_oids) or None,
        ),
    }


def is_confidential(entity: SourceEntity) -> bool:
    """Whether only members see an issue or a note of the source."""
    return bool(entity.boolean("confidential") or entity.boolean("internal"))


def map_note(project_id: str, parent_field: str, parent_id: str, note: SourceEntity) -> Item:
    """`parent_field` is issueId, mergeRequestId or snippetId."""
    body = note.text("body")
    if body is None:
        raise InvalidEntity("it has no body")
    return {
        **drop_absent(attachment=note.text("attachment"), updatedAt=note.time("updated_at"), confidential=is_confidential(note) or None),
        "sourceId": note.require_id(),
        "projectId": project_id,
        parent_field: parent_id,
        "authorId": note.reference("author"),
        "body": body,
        "system": note.boolean("system") or False,
        "upvote": note.boolean("upvote") or False,
        "downvote": note.boolean("downvote") or False,
        "createdAt": note.require_time("created_at"),
    }


def map_commit_comment(project_id: str, sha: str, comment: SourceEntity, committed_at: str) -> Item:
    """`committed_at` stands for the time of a comment where the source does not show it."""
    line_type = LINE_TYPES.get(comment.text("line_type") or "")
    return drop_absent(
        projectId=project_id,
        sha=sha,
        authorId=comment.reference("author"),
        note=comment.require_text("note"),
        path=comment.text("path"),
        line=comment.integer("line"),
        lineType=line_type,
        createdAt=comment.time("created_at") or committed_at,
    )


def map_commit_status(project_id: str, status: SourceEntity) -> Item:
    return {
        **_build_facts(status),
        "sourceId": status.require_id(),
        "projectId": project_id,
        "sha": status.require_text("sha"),
        "authorId": status.reference("author"),
        **drop_absent(ref=status.text("ref"), stage=status.text("stage")),
    }


def map_build(project_id: str, build: SourceEntity) -> Item:
    if build.entity("commit").text("id") is None:
        raise InvalidEntity("its commit is not in the repository")
    return {
        **_build_facts(build),
        "sourceId": build.require_id(),
        "projectId": project_id,
        "sha": build.entity("commit").require_text("id"),
        "ref": build.require_text("ref"),
        "tag": build.boolean("tag") or False,
        "stage": build.text("stage") or "test",
        "userId": build.reference("user"),
        **drop_absent(coverage=build.number("coverage"), runnerId=build.reference("runner")),
    }


def _build_facts(entity: SourceEntity) -> Item:
    status = find_status(entity)
    if status is None:
        raise InvalidEntity(f"the status {entity.text('status')} is unknown here")
    return drop_absent(
        name=entity.require_text("name"),
        status=status,
        description=entity.text("description"),
        targetUrl=entity.text("target_url"),
        allowFailure=entity.boolean("allow_failure"),
        createdAt=entity.require_time("created_at"),
        startedAt=entity.time("started_at"),
        finishedAt=entity.time("finished_at"),
    )
