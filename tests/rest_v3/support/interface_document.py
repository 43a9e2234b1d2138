"""The interface document as the project's own data: every documented call, its status and its parameters.

`status` is None where the document shows none; docs/decisions.md 2 then holds. Parameters are those of the path and the query or
body, paging left out; a trailing "!" marks a required one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DocumentedCall:
    area: str
    call: str
    status: int | None
    params: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name.rstrip("!") for name in self.params)

    @property
    def required(self) -> frozenset[str]:
        """Those without which the call cannot be: marked ones and those of the path."""
        in_path = {segment[1:] for segment in self.call.split("/") if segment.startswith(":")}
        return frozenset(name[:-1] for name in self.params if name.endswith("!")) | in_path


def describe_area(area: str, *rows: tuple[str, int | None, str]) -> tuple[DocumentedCall, ...]:
    """The calls of an area by their rows: call, status, and the parameters that are not in the path."""
    found = []
    for call, status, others in rows:
        in_path = [segment[1:] for segment in call.split("/") if segment.startswith(":")]
        found.append(DocumentedCall(area, call, status, (*in_path, *others.split())))
    return tuple(found)


ISSUE_FILTERS = "state labels order_by sort"
SETTINGS = (
    "default_projects_limit signup_enabled signin_enabled avatar_service_enabled sign_in_text home_page_url "
    "default_branch_protection microblog_sharing_enabled restricted_visibility_levels max_attachment_size "
    "session_expire_delay default_project_visibility default_snippet_visibility restricted_signup_domains "
    "user_oauth_applications after_sign_out_path"
)
PROFILE = "messenger professional_profile microblog website_url extern_uid provider bio projects_limit admin can_create_group"


def _notes(parent: str) -> tuple[tuple[str, int | None, str], ...]:
    singular = parent.rstrip("s")
    base = f"/projects/:id/{parent}/:{singular}_id/notes"
    return (
        (f"GET {base}", 200, ""),
        (f"GET {base}/:note_id", 200, ""),
        (f"POST {base}", None, "body!"),
        (f"PUT {base}/:note_id", 200, "body!"),
    )


DOCUMENTED_CALLS: tuple[DocumentedCall, ...] = (
    *describe_area(
        "builds",
        ("GET /projects/:id/builds", 200, "scope"),
        ("GET /projects/:id/repository/commits/:sha/builds", 200, "scope"),
        ("GET /projects/:id/builds/:build_id", 200, ""),
        ("GET /projects/:id/builds/:build_id/artifacts", 200, ""),
        ("POST /projects/:id/builds/:build_id/cancel", None, ""),
        ("POST /projects/:id/builds/:build_id/retry", None, ""),
        ("POST /projects/:id/builds/:build_id/erase", None, ""),
    ),
    *describe_area(
        "issues",
        ("GET /issues", 200, ISSUE_FILTERS),
        ("GET /projects/:id/issues", 200, f"iid milestone {ISSUE_FILTERS}"),
        ("GET /projects/:id/issues/:issue_id", 200, ""),
        ("POST /projects/:id/issues", 200, "title! description assignee_id milestone_id labels"),
        (
            "PUT /projects/:id/issues/:issue_id",
            200,
            "title description assignee_id milestone_id labels state_event",
        ),
        ("DELETE /projects/:id/issues/:issue_id", 405, ""),
    ),
    *describe_area(
        "commits",
        ("GET /projects/:id/repository/commits", 200, "ref_name"),
        ("GET /projects/:id/repository/commits/:sha", 200, ""),
        ("GET /projects/:id/repository/commits/:sha/diff", 200, ""),
        ("GET /projects/:id/repository/commits/:sha/comments", 200, ""),
        ("POST /projects/:id/repository/commits/:sha/comments", None, "note! path line line_type"),
        ("GET /projects/:id/repository/commits/:sha/statuses", 200, "ref_name stage name all"),
        ("POST /projects/:id/statuses/:sha", None, "state! ref name target_url description"),
    ),
    *describe_area(
        "settings",
        ("GET /application/settings", 200, ""),
        ("PUT /application/settings", 200, SETTINGS),
    ),
    *describe_area(
        "hooks",
        ("GET /hooks", 200, ""),
        ("POST /hooks", None, "url!"),
        ("GET /hooks/:id", 200, ""),
        ("DELETE /hooks/:id", 200, ""),
    ),
    *describe_area(
        "labels",
        ("GET /projects/:id/labels", 200, ""),
        ("POST /projects/:id/labels", 200, "name! color!"),
        ("DELETE /projects/:id/labels", 200, "name!"),
        ("PUT /projects/:id/labels", 200, "name! new_name color"),
    ),
    *describe_area("notes", *_notes("issues"), *_notes("snippets"), *_notes("merge_requests")),
    *describe_area(
        "milestones",
        ("GET /projects/:id/milestones", 200, "iid"),
        ("GET /projects/:id/milestones/:milestone_id", 200, ""),
        ("POST /projects/:id/milestones", None, "title! description due_date"),
        ("PUT /projects/:id/milestones/:milestone_id", 200, "title description due_date state_event"),
        ("GET /projects/:id/milestones/:milestone_id/issues", 200, ""),
    ),
    *describe_area(
        "merge_requests",
        ("GET /projects/:id/merge_requests", 200, "iid state order_by sort"),
        ("GET /projects/:id/merge_requests/:merge_request_id", 200, ""),
        ("GET /projects/:id/merge_requests/:merge_request_id/commits", 200, ""),
        ("GET /projects/:id/merge_requests/:merge_request_id/changes", 200, ""),
        (
            "POST /projects/:id/merge_requests",
            200,
            "source_branch! target_branch! title! assignee_id description target_project_id labels milestone_id",
        ),
        (
            "PUT /projects/:id/merge_requests/:merge_request_id",
            200,
            "target_branch assignee_id title description state_event labels milestone_id",
        ),
        (
            "PUT /projects/:id/merge_requests/:merge_request_id/merge",
            200,
            "merge_commit_message should_remove_source_branch merged_when_build_succeeds",
        ),
        ("PUT /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds", 200, ""),
        ("GET /projects/:id/merge_requests/:merge_request_id/closes_issues", 200, ""),
    ),
    *describe_area(
        "users",
        ("GET /users", 200, "search username"),
        ("GET /users/:id", 200, ""),
        ("POST /users", None, f"email! password! username! name! {PROFILE} confirm"),
        ("PUT /users/:id", 200, f"email username name password {PROFILE}"),
        ("DELETE /users/:id", 200, ""),
        ("GET /user", 200, ""),
        ("GET /user/keys", 200, ""),
        ("GET /users/:uid/keys", 200, ""),
        ("GET /user/keys/:id", 200, ""),
        ("POST /user/keys", 201, "title! key!"),
        ("POST /users/:id/keys", 201, "title! key!"),
        ("DELETE /user/keys/:id", 200, ""),
        ("DELETE /users/:uid/keys/:id", 200, ""),
        ("GET /user/emails", 200, ""),
        ("GET /users/:uid/emails", 200, ""),
        ("GET /user/emails/:id", 200, ""),
        ("POST /user/emails", 201, "email!"),
        ("POST /users/:id/emails", 201, "email!"),
        ("DELETE /user/emails/:id", 200, ""),
        ("DELETE /users/:uid/emails/:id", 200, ""),
        ("PUT /users/:uid/block", 200, ""),
        ("PUT /users/:uid/unblock", 200, ""),
    ),
    *describe_area(
        "groups",
        ("GET /groups", 200, "search"),
        ("GET /groups/:id", 200, ""),
        ("POST /groups", None, "name! path! description"),
        ("DELETE /groups/:id", None, ""),
        ("GET /groups/:id/projects", 200, "archived visibility order_by sort search ci_enabled_first"),
        ("POST /groups/:id/projects/:project_id", None, ""),
        ("GET /groups/:id/members", 200, ""),
        ("POST /groups/:id/members", None, "user_id! access_level!"),
        ("PUT /groups/:id/members/:user_id", 200, "access_level!"),
        ("DELETE /groups/:id/members/:user_id", None, ""),
    ),
)
