"""Maps the accounts, groups, projects and settings of a source to the inputs of the import mutations. `content_mapping` has the rest.

Pure functions; each raises InvalidEntity.

The fields have the names of the interface document, of servers of that time (`skype`, `linkedin`, `twitter`), and of v4.
"""

from typing import Any

from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity, drop_absent, optional_id

USER_STATES = {"active": "ACTIVE", "blocked": "BLOCKED", "ldap_blocked": "BLOCKED", "banned": "BLOCKED", "deactivated": "BLOCKED"}
MILESTONE_STATES = {"active": "ACTIVE", "closed": "CLOSED"}
PROJECT_FEATURES = ("repository", "issues", "merge_requests", "builds", "snippets")
BRANCH_PROTECTIONS = {0: "NONE", 1: "PARTIAL", 2: "FULL", 3: "FULL", 4: "FULL"}
MAX_DEVELOPER_LEVEL = 30


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
        # An external user sees the internal projects of others here: only an administrator ends this block, no directory.
        state="BLOCKED" if user.boolean("external") else USER_STATES.get(state, "BLOCKED"),
        blockedByDirectory=True if state == "ldap_blocked" and not user.boolean("external") else None,
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


def map_public_key(owner_field: str, owner_id: str, key: SourceEntity) -> Item:
    """`owner_field` is userId, or projectId for a deploy key."""
    return {
        "sourceId": key.require_id(),
        owner_field: owner_id,
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
    if describe_members_only_features(project):
        visibility = "PRIVATE"
    return drop_absent(
        sourceId=project.require_id(),
        namespaceId=namespace.require_id(),
        creatorId=optional_id(project.integer("creator_id")),
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


def describe_members_only_features(project: SourceEntity) -> str | None:
    """What is left behind of a project of v4 of which only members see some features. Here all who see the project see its features."""
    features = ", ".join(name for name in PROJECT_FEATURES if project.text(f"{name}_access_level") == "private")
    return f"its visibility: only members see its {features}, so that the whole project is private here" if features else None


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
