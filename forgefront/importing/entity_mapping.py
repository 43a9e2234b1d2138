"""Maps what a source answered to the inputs of the import mutations. Pure functions; each raises InvalidEntity.

The fields have the names of the interface document, of servers of that time (`skype`, `linkedin`, `twitter`), and of v4.
"""

from collections.abc import Sequence
from typing import Any

from forgefront.importing.entity_fields import InvalidEntity, SourceEntity, drop_absent

Item = dict[str, Any]

USER_STATES = {"active": "ACTIVE", "blocked": "BLOCKED", "ldap_blocked": "BLOCKED", "banned": "BLOCKED", "deactivated": "BLOCKED"}
ISSUE_STATES = {"opened": "OPENED", "reopened": "OPENED", "closed": "CLOSED"}
MERGE_REQUEST_STATES = {"opened": "OPENED", "reopened": "REOPENED", "locked": "OPENED", "closed": "CLOSED", "merged": "MERGED"}
MILESTONE_STATES = {"active": "ACTIVE", "closed": "CLOSED"}
BUILD_STATUSES = {each: each.upper() for each in ("pending", "running", "success", "failed", "canceled")} | {
    "created": "PENDING",
    "preparing": "PENDING",
    "waiting_for_resource": "PENDING",
    "scheduled": "PENDING",
    "canceling": "CANCELED",
}
PROJECT_FEATURES = ("repository", "issues", "merge_requests", "builds", "snippets")
FINISHED_STATUSES = ("SUCCESS", "FAILED", "CANCELED")
BRANCH_PROTECTIONS = {0: "NONE", 1: "PARTIAL", 2: "FULL", 3: "FULL", 4: "FULL"}
MAX_DEVELOPER_LEVEL = 30
LINE_TYPES = {"new": "NEW", "old": "OLD"}


def map_settings(settings: SourceEntity) -> Item:
    protection = settings.integer("default_branch_protection")
    levels = settings.fields.get("restricted_visibility_levels")
    domains = settings.fields.get("restricted_signup_domains", settings.fields.get("domain_allowlist"))
    return drop_absent(
        defaultProjectsLimit=settings.integer("default_projects_limit"),
        signupEnabled=settings.boolean("signup_enabled"),
        signinEnabled=settings.boolean("signin_enabled", "password_authentication_enabled_for_web", "password_authentication_enabled"),
        avatarServiceEnabled=settings.boolean("avatar_service_enabled", "gravatar_enabled"),
        signInText=settings.text("sign_in_text"),
        homePageUrl=settings.text("home_page_url"),
        defaultBranchProtection=BRANCH_PROTECTIONS.get(protection) if protection is not None else None,
        microblogSharingEnabled=settings.boolean("microblog_sharing_enabled", "twitter_sharing_enabled"),
        restrictedVisibilityLevels=_visibilities(levels),
        maxAttachmentSize=settings.integer("max_attachment_size"),
        sessionExpireDelay=settings.integer("session_expire_delay"),
        defaultProjectVisibility=_visibility_of(settings.fields.get("default_project_visibility")),
        defaultSnippetVisibility=_visibility_of(settings.fields.get("default_snippet_visibility")),
        restrictedSignupDomains=[each for each in domains if isinstance(each, str)] if isinstance(domains, list) else None,
        userOauthApplications=settings.boolean("user_oauth_applications"),
        afterSignOutPath=settings.text("after_sign_out_path"),
    )


def _visibility_of(value: Any) -> str | None:
    return SourceEntity({"visibility": value}).visibility()


def _visibilities(values: Any) -> list[str] | None:
    return [level for value in values if (level := _visibility_of(value))] if isinstance(values, list) else None


def map_user(user: SourceEntity, *, namespace_id: int | None = None, private_token: str | None = None) -> Item:
    identities = user.fields.get("identities")
    identity = SourceEntity(identities[0]) if isinstance(identities, list) and identities else user
    state = user.text("state") or "active"
    return drop_absent(
        sourceId=user.require_id(),
        namespaceId=None if namespace_id is None else str(namespace_id),
        username=user.require_text("username"),
        name=user.text("name") or user.require_text("username"),
        email=user.text("email"),
        # An external user sees the internal projects of others here.
        state="BLOCKED" if user.boolean("external") else USER_STATES.get(state, "BLOCKED"),
        blockedByDirectory=True if state == "ldap_blocked" else None,
        # v3 does not say whether the address was confirmed.
        confirmed=user.time("confirmed_at") is not None if user.has("confirmed_at") else None,
        admin=user.boolean("is_admin"),
        bio=user.text("bio"),
        messenger=user.text("messenger", "skype"),
        professionalProfile=user.text("professional_profile", "linkedin"),
        microblog=user.text("microblog", "twitter"),
        websiteUrl=user.text("website_url"),
        externUid=identity.text("extern_uid"),
        provider=identity.text("provider"),
        themeId=user.integer("theme_id"),
        colorSchemeId=user.integer("color_scheme_id"),
        canCreateGroup=user.boolean("can_create_group"),
        projectsLimit=user.integer("projects_limit"),
        twoFactorEnabled=user.boolean("two_factor_enabled"),
        currentSignInAt=user.time("current_sign_in_at"),
        createdAt=user.require_time("created_at"),
        privateToken=private_token,
    )


def map_email(user_id: str, email: SourceEntity) -> Item:
    return {"sourceId": email.require_id(), "userId": user_id, "email": email.require_text("email")}


def map_ssh_key(user_id: str, key: SourceEntity) -> Item:
    return {
        "sourceId": key.require_id(),
        "userId": user_id,
        "title": key.text("title") or "key",
        "key": key.require_text("key"),
        "createdAt": key.require_time("created_at"),
    }


def map_group(group: SourceEntity, times: SourceEntity) -> Item:
    """A group; `times` has `created_at` and `updated_at`, which v3 shows only in projects. A nested group becomes one with a flat path."""
    return drop_absent(
        sourceId=group.require_id(),
        name=group.text("name") or group.require_text("path"),
        path=flat_path(group.text("full_path") or group.require_text("path")),
        description=group.text("description"),
        createdAt=group.time("created_at") or times.time("created_at"),
        updatedAt=times.time("updated_at"),
    )


def flat_path(path: str) -> str:
    """`a/b` becomes `a-b`, because groups here do not nest."""
    return path.strip("/").replace("/", "-")


def map_group_member(group_id: str, member: SourceEntity) -> Item:
    return {"groupId": group_id, "userId": member.require_id(), "accessLevel": member.access_level()}


def map_project_member(project_id: str, member: SourceEntity) -> Item:
    return {"projectId": project_id, "userId": member.require_id(), "accessLevel": member.access_level()}


def map_project(project: SourceEntity) -> Item:
    namespace = project.entity("namespace")
    visibility = project.visibility()
    if visibility is None:
        raise InvalidEntity("it has no valid visibility")
    if list_members_only_features(project):
        visibility = "PRIVATE"
    return drop_absent(
        sourceId=project.require_id(),
        namespaceId=namespace.require_id(),
        creatorId=_optional_id(project.integer("creator_id")),
        forkedFromId=project.reference("forked_from_project"),
        name=project.text("name") or project.require_text("path"),
        path=project.require_text("path"),
        description=project.text("description"),
        visibility=visibility,
        defaultBranch=project.text("default_branch"),
        issuesEnabled=project.boolean("issues_enabled"),
        mergeRequestsEnabled=project.boolean("merge_requests_enabled"),
        buildsEnabled=project.boolean("builds_enabled", "jobs_enabled"),
        wikiEnabled=project.boolean("wiki_enabled"),
        snippetsEnabled=project.boolean("snippets_enabled"),
        sharedRunnersEnabled=project.boolean("shared_runners_enabled"),
        publicBuilds=project.boolean("public_builds", "public_jobs"),
        archived=project.boolean("archived"),
        avatarUrl=project.text("avatar_url"),
        tagList=project.texts("tag_list", "topics"),
        createdAt=project.require_time("created_at"),
        lastActivityAt=project.time("last_activity_at"),
    )


def list_members_only_features(project: SourceEntity) -> list[str]:
    """The features of a project of v4 that only its members see. Here all who see the project see its features."""
    return [name for name in PROJECT_FEATURES if project.text(f"{name}_access_level") == "private"]


def _optional_id(value: int | None) -> str | None:
    return str(value) if value is not None and value > 0 else None


def map_label(project_id: str, label: SourceEntity) -> Item:
    return drop_absent(
        projectId=project_id,
        name=label.require_text("name", "title"),
        color=label.require_text("color"),
        description=label.text("description"),
    )


def map_milestone(project_id: str, milestone: SourceEntity) -> Item:
    created_at = milestone.require_time("created_at")
    return drop_absent(
        sourceId=milestone.require_id(),
        projectId=project_id,
        iid=milestone.require_integer("iid"),
        title=milestone.require_text("title"),
        description=milestone.text("description"),
        dueDate=milestone.day("due_date"),
        state=MILESTONE_STATES.get(milestone.text("state") or "", "ACTIVE"),
        createdAt=created_at,
        updatedAt=milestone.time("updated_at") or created_at,
    )


def map_hook(project_id: str | None, hook: SourceEntity) -> Item:
    return drop_absent(
        sourceId=hook.require_id(),
        projectId=project_id,
        url=hook.require_text("url"),
        pushEvents=hook.boolean("push_events"),
        tagPushEvents=hook.boolean("tag_push_events"),
        issuesEvents=hook.boolean("issues_events"),
        mergeRequestsEvents=hook.boolean("merge_requests_events"),
        noteEvents=hook.boolean("note_events"),
        buildEvents=hook.boolean("build_events", "job_events"),
        enableSslVerification=hook.boolean("enable_ssl_verification"),
        createdAt=hook.require_time("created_at"),
    )


def map_deploy_key(project_id: str, key: SourceEntity) -> Item:
    return {
        "sourceId": key.require_id(),
        "projectId": project_id,
        "title": key.text("title") or "key",
        "key": key.require_text("key"),
        "createdAt": key.require_time("created_at"),
    }


def map_variable(project_id: str, variable: SourceEntity) -> Item:
    if variable.text("value") is None:
        raise InvalidEntity("its value is not shown")
    # Here all builds get a variable, and those who may push can print it.
    if variable.boolean("protected"):
        raise InvalidEntity("it is for protected branches alone")
    if variable.text("environment_scope") not in (None, "*"):
        raise InvalidEntity(f"it is for the environment {variable.text('environment_scope')} alone")
    if variable.text("variable_type") == "file":
        raise InvalidEntity("it is a file, which builds do not get here")
    return {"projectId": project_id, "key": variable.require_text("key"), "value": variable.text("value")}


def map_trigger(project_id: str, trigger: SourceEntity) -> Item:
    if trigger.time("deleted_at") is not None:
        raise InvalidEntity("it was deleted")
    if trigger.text("token") is None:
        raise InvalidEntity("its token is not shown")
    return drop_absent(
        projectId=project_id,
        token=trigger.require_text("token"),
        createdAt=trigger.require_time("created_at"),
        updatedAt=trigger.time("updated_at"),
        lastUsedAt=trigger.time("last_used"),
    )


def map_runner(runner: SourceEntity) -> Item:
    """The details of a runner."""
    projects = runner.fields.get("projects")
    return drop_absent(
        sourceId=runner.require_id(),
        token=runner.text("token"),
        description=runner.text("description") or runner.text("name") or f"runner {runner.id}",
        active=runner.boolean("active"),
        shared=runner.boolean("is_shared"),
        tags=runner.texts("tag_list"),
        runUntagged=runner.boolean("run_untagged"),
        projectIds=[str(each.id) for each in map(SourceEntity, projects) if each.id is not None] if isinstance(projects, list) else None,
        name=runner.text("name"),
        version=runner.text("version"),
        revision=runner.text("revision"),
        platform=runner.text("platform"),
        architecture=runner.text("architecture"),
        contactedAt=runner.time("contacted_at"),
    )


def map_protected_branch(project_id: str, branch: SourceEntity) -> Item:
    """A branch of v3, or a protected branch of v4."""
    levels = branch.fields.get("push_access_levels")
    allowed = [SourceEntity(level).integer("access_level") for level in levels] if isinstance(levels, list) else []
    may_push = branch.boolean("developers_can_push") or any(level is not None and 0 < level <= MAX_DEVELOPER_LEVEL for level in allowed)
    return {"projectId": project_id, "name": branch.require_text("name"), "developersCanPush": may_push}


def map_release(project_id: str, tag: SourceEntity) -> Item:
    return {"projectId": project_id, "tagName": tag.require_text("name"), "description": tag.entity("release").text("description") or ""}


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
        "sourceProjectId": _optional_id(request.integer("source_project_id")),
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
    status = BUILD_STATUSES.get(entity.text("status") or "")
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
