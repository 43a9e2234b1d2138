"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_created_at"), ["created_at"], unique=False)

    op.create_table(
        "hooks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("sealed_credentials", sa.Text(), nullable=True),
        sa.Column("sealed_secret", sa.Text(), nullable=True),
        sa.Column("push_events", sa.Boolean(), nullable=False),
        sa.Column("tag_push_events", sa.Boolean(), nullable=False),
        sa.Column("issues_events", sa.Boolean(), nullable=False),
        sa.Column("merge_requests_events", sa.Boolean(), nullable=False),
        sa.Column("note_events", sa.Boolean(), nullable=False),
        sa.Column("enable_ssl_verification", sa.Boolean(), nullable=False),
        sa.Column("last_success_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hooks")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "settings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("default_projects_limit", sa.Integer(), nullable=False),
        sa.Column("signup_enabled", sa.Boolean(), nullable=False),
        sa.Column("signin_enabled", sa.Boolean(), nullable=False),
        sa.Column("avatar_service_enabled", sa.Boolean(), nullable=False),
        sa.Column("sign_in_text", sa.String(), nullable=True),
        sa.Column("home_page_url", sa.String(), nullable=True),
        sa.Column("default_branch_protection", sa.Integer(), nullable=False),
        sa.Column("microblog_sharing_enabled", sa.Boolean(), nullable=False),
        sa.Column("restricted_visibility_levels", sa.JSON(), nullable=True),
        sa.Column("max_attachment_size", sa.Integer(), nullable=False),
        sa.Column("session_expire_delay", sa.Integer(), nullable=False),
        sa.Column("default_project_visibility", sa.Integer(), nullable=False),
        sa.Column("default_snippet_visibility", sa.Integer(), nullable=False),
        sa.Column("restricted_signup_domains", sa.JSON(), nullable=True),
        sa.Column("user_oauth_applications", sa.Boolean(), nullable=False),
        sa.Column("after_sign_out_path", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_settings")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("username", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("password_hash", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("blocked_by_directory", sa.Boolean(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("bio", sa.String(length=255), nullable=True),
        sa.Column("messenger", sa.String(length=255), nullable=False),
        sa.Column("professional_profile", sa.String(length=255), nullable=False),
        sa.Column("microblog", sa.String(length=255), nullable=False),
        sa.Column("website_url", sa.String(length=255), nullable=False),
        sa.Column("extern_uid", sa.String(length=255), nullable=True),
        sa.Column("provider", sa.String(length=255), nullable=True),
        sa.Column("theme_id", sa.Integer(), nullable=False),
        sa.Column("color_scheme_id", sa.Integer(), nullable=False),
        sa.Column("can_create_group", sa.Boolean(), nullable=False),
        sa.Column("projects_limit", sa.Integer(), nullable=False),
        sa.Column("two_factor_enabled", sa.Boolean(), nullable=False),
        sa.Column("current_sign_in_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
        sa.UniqueConstraint("username", name=op.f("uq_users_username")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("hook_id", sa.Integer(), nullable=False),
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("event_name", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claimed_by", sa.String(length=64), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("response_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name=op.f("fk_deliveries_event_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["hook_id"], ["hooks.id"], name=op.f("fk_deliveries_hook_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deliveries_claimed_by"), ["claimed_by"], unique=False)
        batch_op.create_index(batch_op.f("ix_deliveries_event_id"), ["event_id"], unique=False)
        batch_op.create_index("ix_deliveries_hook_id_id", ["hook_id", "id"], unique=False)
        batch_op.create_index("ix_deliveries_hook_id_state_next_attempt_at", ["hook_id", "state", "next_attempt_at"], unique=False)

    op.create_table(
        "emails",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("is_primary", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_emails_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_emails")),
        sa.UniqueConstraint("email", name=op.f("uq_emails_email")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("emails", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_emails_user_id"), ["user_id"], unique=False)

    op.create_table(
        "namespaces",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("path_key", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("owner_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_namespaces_owner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_namespaces")),
        sa.UniqueConstraint("path_key", name=op.f("uq_namespaces_path_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("namespaces", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_namespaces_owner_id"), ["owner_id"], unique=False)

    op.create_table(
        "runners",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("token_digest", sa.String(length=64), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("run_untagged", sa.Boolean(), nullable=False),
        sa.Column("creator_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("version", sa.String(length=255), nullable=True),
        sa.Column("revision", sa.String(length=255), nullable=True),
        sa.Column("platform", sa.String(length=255), nullable=True),
        sa.Column("architecture", sa.String(length=255), nullable=True),
        sa.Column("contacted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["creator_id"], ["users.id"], name=op.f("fk_runners_creator_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runners")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_runners_token_digest")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_ssh_keys_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_ssh_keys_fingerprint")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("ssh_keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_ssh_keys_user_id"), ["user_id"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tokens_user_id"), ["user_id"], unique=False)

    op.create_table(
        "group_members",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("access_level", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["namespaces.id"], name=op.f("fk_group_members_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_group_members_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_group_members")),
        sa.UniqueConstraint("group_id", "user_id", name=op.f("uq_group_members_group_id_user_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("group_members", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_group_members_user_id"), ["user_id"], unique=False)

    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace_id", sa.Integer(), nullable=False),
        sa.Column("forked_from_id", sa.Integer(), nullable=True),
        sa.Column("creator_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("path_key", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("visibility_level", sa.SmallInteger(), nullable=False),
        sa.Column("default_branch", sa.String(length=255), nullable=True),
        sa.Column("issues_enabled", sa.Boolean(), nullable=False),
        sa.Column("merge_requests_enabled", sa.Boolean(), nullable=False),
        sa.Column("builds_enabled", sa.Boolean(), nullable=False),
        sa.Column("wiki_enabled", sa.Boolean(), nullable=False),
        sa.Column("snippets_enabled", sa.Boolean(), nullable=False),
        sa.Column("public_builds", sa.Boolean(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("avatar_url", sa.String(length=2000), nullable=True),
        sa.Column("tag_list", sa.JSON(), nullable=False),
        sa.Column("last_activity_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["creator_id"], ["users.id"], name=op.f("fk_projects_creator_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["forked_from_id"], ["projects.id"], name=op.f("fk_projects_forked_from_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["namespace_id"], ["namespaces.id"], name=op.f("fk_projects_namespace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("namespace_id", "path_key", name=op.f("uq_projects_namespace_id_path_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_projects_creator_id"), ["creator_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_projects_forked_from_id"), ["forked_from_id"], unique=False)

    op.create_table(
        "branch_looks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("sha", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_branch_looks_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branch_looks")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("branch_looks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_branch_looks_project_id"), ["project_id"], unique=False)

    op.create_table(
        "branch_moves",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("oid", sa.String(length=64), nullable=True),
        sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_branch_moves_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branch_moves")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("branch_moves", schema=None) as batch_op:
        batch_op.create_index("ix_branch_moves_project_id_name_moved_at_id", ["project_id", "name", "moved_at", "id"], unique=False)

    op.create_table(
        "branches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("oid", sa.String(length=64), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_health", sa.String(length=32), nullable=True),
        sa.Column("told_oid", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_branches_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branches")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_branches_project_id_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("branches", schema=None) as batch_op:
        batch_op.create_index("ix_branches_project_id_oid", ["project_id", "oid"], unique=False)

    op.create_table(
        "commit_comments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("line_type", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_commit_comments_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_commit_comments_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit_comments")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("commit_comments", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_commit_comments_author_id"), ["author_id"], unique=False)
        batch_op.create_index("ix_commit_comments_project_id_sha", ["project_id", "sha", "id"], unique=False)

    op.create_table(
        "commit_statuses",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("stage", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("allow_failure", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("target_url", sa.Text(), nullable=True),
        sa.Column("author_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_commit_statuses_author_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_commit_statuses_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit_statuses")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("commit_statuses", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_commit_statuses_author_id"), ["author_id"], unique=False)
        batch_op.create_index("ix_commit_statuses_project_id_sha", ["project_id", "sha", "name", "ref", "id"], unique=False)

    op.create_table(
        "commits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("oid", sa.String(length=64), nullable=False),
        sa.Column("first_parent", sa.String(length=64), nullable=True),
        sa.Column("parents", sa.JSON(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("author_email", sa.Text(), nullable=False),
        sa.Column("authored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("authored_offset", sa.SmallInteger(), nullable=False),
        sa.Column("committer_name", sa.Text(), nullable=False),
        sa.Column("committer_email", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("committed_offset", sa.SmallInteger(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_commits_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commits")),
        sa.UniqueConstraint("project_id", "oid", name=op.f("uq_commits_project_id_oid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("commits", schema=None) as batch_op:
        batch_op.create_index("ix_commits_project_id_committed_at", ["project_id", "committed_at"], unique=False)

    op.create_table(
        "counters",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_counters_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "kind", name=op.f("pk_counters")),
    )
    op.create_table(
        "labels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("color", sa.String(length=7), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("template", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_labels_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labels")),
        sa.UniqueConstraint("project_id", "title", name=op.f("uq_labels_project_id_title")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "milestones",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("iid", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("due_date", sa.Date(), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_milestones_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_milestones")),
        sa.UniqueConstraint("project_id", "iid", name=op.f("uq_milestones_project_id_iid")),
        sa.UniqueConstraint("project_id", "title", name=op.f("uq_milestones_project_id_title")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "pipelines",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("tag", sa.Boolean(), nullable=False),
        sa.Column("before_sha", sa.String(length=64), nullable=True),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("jobs", sa.JSON(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("skipped", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_pipelines_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_pipelines_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipelines")),
        sa.UniqueConstraint("project_id", "sha", "ref", name=op.f("uq_pipelines_project_id_sha_ref")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.create_index("ix_pipelines_project_id_id", ["project_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_pipelines_user_id"), ["user_id"], unique=False)

    op.create_table(
        "project_members",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("access_level", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_project_members_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_project_members_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_members")),
        sa.UniqueConstraint("project_id", "user_id", name=op.f("uq_project_members_project_id_user_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("project_members", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_project_members_user_id"), ["user_id"], unique=False)

    op.create_table(
        "protected_branches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("developers_can_push", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_protected_branches_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_protected_branches")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_protected_branches_project_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "registration_tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("scope", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_registration_tokens_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registration_tokens")),
        sa.UniqueConstraint("scope", name=op.f("uq_registration_tokens_scope")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("registration_tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_registration_tokens_project_id"), ["project_id"], unique=False)

    op.create_table(
        "runner_projects",
        sa.Column("runner_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_runner_projects_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["runner_id"], ["runners.id"], name=op.f("fk_runner_projects_runner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("runner_id", "project_id", name=op.f("pk_runner_projects")),
    )
    with op.batch_alter_table("runner_projects", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runner_projects_project_id"), ["project_id"], unique=False)

    op.create_table(
        "snippets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("file_name", sa.String(length=255), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("visibility_level", sa.SmallInteger(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_snippets_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_snippets_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snippets")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("snippets", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_snippets_author_id"), ["author_id"], unique=False)
        batch_op.create_index("ix_snippets_project_id_created_at", ["project_id", "created_at", "id"], unique=False)

    op.create_table(
        "uploads",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("secret", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_uploads_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_uploads_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
        sa.UniqueConstraint("secret", name=op.f("uq_uploads_secret")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_uploads_author_id"), ["author_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_uploads_project_id"), ["project_id"], unique=False)

    op.create_table(
        "builds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("pipeline_id", sa.Integer(), nullable=True),
        sa.Column("current_id", sa.Integer(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("tag", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("stage", sa.String(length=255), nullable=False),
        sa.Column("stage_index", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("allow_failure", sa.Boolean(), nullable=False),
        sa.Column("run_when", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("runner_id", sa.Integer(), nullable=True),
        sa.Column("commands", sa.Text(), nullable=True),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=True),
        sa.Column("coverage", sa.Float(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("target_url", sa.Text(), nullable=True),
        sa.Column("token_digest", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trace_size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("erased_by_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["current_id"], ["builds.id"], name=op.f("fk_builds_current_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["erased_by_id"], ["users.id"], name=op.f("fk_builds_erased_by_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipelines.id"], name=op.f("fk_builds_pipeline_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_builds_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["runner_id"], ["runners.id"], name=op.f("fk_builds_runner_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_builds_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_builds_current_id",
            ["current_id", "attempt"],
            unique=False,
            sqlite_where=sa.text("current_id IS NOT NULL"),
            postgresql_where=sa.text("current_id IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_builds_lease_until",
            ["lease_until"],
            unique=False,
            sqlite_where=sa.text("status = 'running' AND lease_until IS NOT NULL"),
            postgresql_where=sa.text("status = 'running' AND lease_until IS NOT NULL"),
        )
        batch_op.create_index(batch_op.f("ix_builds_pipeline_id"), ["pipeline_id"], unique=False)
        batch_op.create_index(
            "ix_builds_project_id_created_at",
            ["project_id", "created_at"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL"),
            postgresql_where=sa.text("current_id IS NULL"),
        )
        batch_op.create_index("ix_builds_project_id_finished_at", ["project_id", "finished_at"], unique=False)
        batch_op.create_index(
            "ix_builds_project_id_id",
            ["project_id", "id"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL"),
            postgresql_where=sa.text("current_id IS NULL"),
        )
        batch_op.create_index(
            "ix_builds_project_id_queue_id",
            ["project_id", "queue", "id"],
            unique=False,
            sqlite_where=sa.text("status = 'pending' AND queue IS NOT NULL"),
            postgresql_where=sa.text("status = 'pending' AND queue IS NOT NULL"),
        )
        batch_op.create_index("ix_builds_project_id_sha_id", ["project_id", "sha", "id"], unique=False)
        batch_op.create_index(
            "ix_builds_project_id_status_id",
            ["project_id", "status", "id"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL"),
            postgresql_where=sa.text("current_id IS NULL"),
        )
        batch_op.create_index(
            "ix_builds_queue_id",
            ["queue", "id"],
            unique=False,
            sqlite_where=sa.text("status = 'pending' AND queue IS NOT NULL"),
            postgresql_where=sa.text("status = 'pending' AND queue IS NOT NULL"),
        )
        batch_op.create_index(batch_op.f("ix_builds_runner_id"), ["runner_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_builds_user_id"), ["user_id"], unique=False)

    op.create_table(
        "issues",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("iid", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("assignee_id", sa.Integer(), nullable=True),
        sa.Column("milestone_id", sa.Integer(), nullable=True),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignee_id"], ["users.id"], name=op.f("fk_issues_assignee_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_issues_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["milestone_id"], ["milestones.id"], name=op.f("fk_issues_milestone_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_issues_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_issues")),
        sa.UniqueConstraint("project_id", "iid", name=op.f("uq_issues_project_id_iid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("issues", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_issues_assignee_id"), ["assignee_id"], unique=False)
        batch_op.create_index("ix_issues_author_id_created_at", ["author_id", "created_at", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_issues_milestone_id"), ["milestone_id"], unique=False)
        batch_op.create_index("ix_issues_project_id_created_at", ["project_id", "created_at", "id"], unique=False)
        batch_op.create_index("ix_issues_project_id_updated_at", ["project_id", "updated_at", "id"], unique=False)

    op.create_table(
        "merge_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("source_project_id", sa.Integer(), nullable=False),
        sa.Column("iid", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("assignee_id", sa.Integer(), nullable=True),
        sa.Column("milestone_id", sa.Integer(), nullable=True),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("source_branch", sa.String(length=255), nullable=False),
        sa.Column("target_branch", sa.String(length=255), nullable=False),
        sa.Column("merge_status", sa.String(length=32), nullable=False),
        sa.Column("head_oid", sa.String(length=64), nullable=True),
        sa.Column("base_oid", sa.String(length=64), nullable=True),
        sa.Column("commit_count", sa.Integer(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=True),
        sa.Column("additions", sa.Integer(), nullable=True),
        sa.Column("deletions", sa.Integer(), nullable=True),
        sa.Column("merge_when_build_succeeds", sa.Boolean(), nullable=False),
        sa.Column("merge_params", sa.JSON(), nullable=True),
        sa.Column("merge_user_id", sa.Integer(), nullable=True),
        sa.Column("merge_commit_oid", sa.String(length=64), nullable=True),
        sa.Column("merged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignee_id"], ["users.id"], name=op.f("fk_merge_requests_assignee_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_merge_requests_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["merge_user_id"], ["users.id"], name=op.f("fk_merge_requests_merge_user_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["milestone_id"], ["milestones.id"], name=op.f("fk_merge_requests_milestone_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_merge_requests_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merge_requests")),
        sa.UniqueConstraint("project_id", "iid", name=op.f("uq_merge_requests_project_id_iid")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("merge_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_requests_assignee_id"), ["assignee_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_merge_requests_author_id"), ["author_id"], unique=False)
        batch_op.create_index("ix_merge_requests_merge_commit_oid", ["merge_commit_oid"], unique=False)
        batch_op.create_index(batch_op.f("ix_merge_requests_merge_user_id"), ["merge_user_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_merge_requests_milestone_id"), ["milestone_id"], unique=False)
        batch_op.create_index("ix_merge_requests_project_id_created_at", ["project_id", "created_at", "id"], unique=False)
        batch_op.create_index("ix_merge_requests_project_id_updated_at", ["project_id", "updated_at", "id"], unique=False)
        batch_op.create_index("ix_merge_requests_source", ["source_project_id", "source_branch"], unique=False)
        batch_op.create_index(
            "ix_merge_requests_unchecked",
            ["id"],
            unique=False,
            sqlite_where=sa.text("merge_status = 'unchecked' AND state IN ('opened', 'reopened')"),
            postgresql_where=sa.text("merge_status = 'unchecked' AND state IN ('opened', 'reopened')"),
        )
        batch_op.create_index(
            "ix_merge_requests_waiting",
            ["id"],
            unique=False,
            sqlite_where=sa.text("merge_when_build_succeeds = 1"),
            postgresql_where=sa.text("merge_when_build_succeeds"),
        )
        batch_op.create_index(
            "uq_merge_requests_open",
            ["project_id", "target_branch", "source_project_id", "source_branch"],
            unique=True,
            sqlite_where=sa.text("state IN ('opened', 'reopened')"),
            postgresql_where=sa.text("state IN ('opened', 'reopened')"),
        )

    op.create_table(
        "artifacts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=False),
        sa.Column("filename", sa.String(length=255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_artifacts_build_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_artifacts_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("build_id", name=op.f("uq_artifacts_build_id")),
        sa.UniqueConstraint("key", name=op.f("uq_artifacts_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifacts_project_id"), ["project_id"], unique=False)

    op.create_table(
        "changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=True),
        sa.Column("merge_request_id", sa.Integer(), nullable=True),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("was", sa.String(length=32), nullable=True),
        sa.Column("became", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_changes_build_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["merge_request_id"], ["merge_requests.id"], name=op.f("fk_changes_merge_request_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_changes_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("changes", schema=None) as batch_op:
        batch_op.create_index("ix_changes_build_id_id", ["build_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_changes_merge_request_id"), ["merge_request_id"], unique=False)
        batch_op.create_index("ix_changes_project_id_id", ["project_id", "id"], unique=False)

    op.create_table(
        "closings",
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("described", sa.Boolean(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("iid", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["merge_request_id"], ["merge_requests.id"], name=op.f("fk_closings_merge_request_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_closings_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("merge_request_id", "described", "project_id", "iid", name=op.f("pk_closings")),
    )
    with op.batch_alter_table("closings", schema=None) as batch_op:
        batch_op.create_index("ix_closings_project_id_iid", ["project_id", "iid"], unique=False)

    op.create_table(
        "issue_labels",
        sa.Column("issue_id", sa.Integer(), nullable=False),
        sa.Column("label_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["issue_id"], ["issues.id"], name=op.f("fk_issue_labels_issue_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["label_id"], ["labels.id"], name=op.f("fk_issue_labels_label_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("issue_id", "label_id", name=op.f("pk_issue_labels")),
    )
    with op.batch_alter_table("issue_labels", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_issue_labels_label_id"), ["label_id"], unique=False)

    op.create_table(
        "merge_intents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("target_branch", sa.String(length=255), nullable=False),
        sa.Column("old_oid", sa.String(length=64), nullable=False),
        sa.Column("new_oid", sa.String(length=64), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_merge_intents_merge_request_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_merge_intents_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merge_intents")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("merge_intents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_intents_merge_request_id"), ["merge_request_id"], unique=False)

    op.create_table(
        "merge_request_commits",
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("oid", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_merge_request_commits_merge_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("merge_request_id", "position", name=op.f("pk_merge_request_commits")),
    )
    with op.batch_alter_table("merge_request_commits", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_request_commits_oid"), ["oid"], unique=False)

    op.create_table(
        "merge_request_labels",
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("label_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["label_id"], ["labels.id"], name=op.f("fk_merge_request_labels_label_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_merge_request_labels_merge_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("merge_request_id", "label_id", name=op.f("pk_merge_request_labels")),
    )
    with op.batch_alter_table("merge_request_labels", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_request_labels_label_id"), ["label_id"], unique=False)

    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("issue_id", sa.Integer(), nullable=True),
        sa.Column("merge_request_id", sa.Integer(), nullable=True),
        sa.Column("snippet_id", sa.Integer(), nullable=True),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attachment", sa.String(length=255), nullable=True),
        sa.Column("system", sa.Boolean(), nullable=False),
        sa.Column("upvote", sa.Boolean(), nullable=False),
        sa.Column("downvote", sa.Boolean(), nullable=False),
        sa.Column("source_project_id", sa.Integer(), nullable=True),
        sa.Column("source", sa.String(length=80), nullable=True),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_notes_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["issue_id"], ["issues.id"], name=op.f("fk_notes_issue_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["merge_request_id"], ["merge_requests.id"], name=op.f("fk_notes_merge_request_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_notes_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["snippet_id"], ["snippets.id"], name=op.f("fk_notes_snippet_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["source_project_id"], ["projects.id"], name=op.f("fk_notes_source_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notes")),
        sa.UniqueConstraint("source_project_id", "source", "issue_id", name=op.f("uq_notes_source_project_id_source_issue_id")),
        sa.UniqueConstraint(
            "source_project_id", "source", "merge_request_id", name=op.f("uq_notes_source_project_id_source_merge_request_id")
        ),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("notes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_notes_author_id"), ["author_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_notes_issue_id"), ["issue_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_notes_merge_request_id"), ["merge_request_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_notes_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_notes_snippet_id"), ["snippet_id"], unique=False)

    op.create_table(
        "trace_parts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_trace_parts_build_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trace_parts")),
        sa.UniqueConstraint("build_id", "start", name=op.f("uq_trace_parts_build_id_start")),
        sa.UniqueConstraint("key", name=op.f("uq_trace_parts_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("trace_parts", schema=None) as batch_op:
        batch_op.create_index(
            "ix_trace_parts_build_id_later",
            ["build_id"],
            unique=False,
            sqlite_where=sa.text("start > 0"),
            postgresql_where=sa.text("start > 0"),
        )
