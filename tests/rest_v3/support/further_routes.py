"""The further routes of the server of that time, as the project's own data (docs/decisions.md 41).

They are not in the interface document. Parameters are those of the query or body, paging left out; a trailing "!" marks a required one.
"""

from tests.rest_v3.support.interface_document import DocumentedCall, describe_area

HOOK_SWITCHES = "push_events issues_events merge_requests_events tag_push_events note_events build_events enable_ssl_verification"
PROJECT_FILTERS = "archived visibility search order_by sort"
PROJECT_SETTINGS = (
    "path description issues_enabled merge_requests_enabled builds_enabled wiki_enabled snippets_enabled shared_runners_enabled"
    " public visibility_level import_url public_builds"
)

FURTHER_CALLS: tuple[DocumentedCall, ...] = (
    *describe_area(
        "branches",
        ("GET /projects/:id/repository/branches", None, ""),
        ("GET /projects/:id/repository/branches/:branch", None, ""),
        ("PUT /projects/:id/repository/branches/:branch/protect", None, ""),
        ("PUT /projects/:id/repository/branches/:branch/unprotect", None, ""),
        ("POST /projects/:id/repository/branches", None, "branch_name! ref!"),
        ("DELETE /projects/:id/repository/branches/:branch", None, ""),
    ),
    *describe_area(
        "builds",
        ("GET /projects/:id/builds/:build_id/trace", None, ""),
    ),
    *describe_area(
        "deploy_keys",
        ("GET /projects/:id/keys", None, ""),
        ("GET /projects/:id/keys/:key_id", None, ""),
        ("POST /projects/:id/keys", None, "title! key!"),
        ("DELETE /projects/:id/keys/:key_id", None, ""),
    ),
    *describe_area(
        "files",
        ("GET /projects/:id/repository/files", None, "file_path! ref!"),
        ("POST /projects/:id/repository/files", None, "file_path! branch_name! content! commit_message! encoding"),
        ("PUT /projects/:id/repository/files", None, "file_path! branch_name! content! commit_message! encoding"),
        ("DELETE /projects/:id/repository/files", None, "file_path! branch_name! commit_message!"),
    ),
    *describe_area(
        "keys",
        ("GET /keys/:id", None, ""),
    ),
    *describe_area(
        "merge_requests",
        ("GET /projects/:id/merge_requests/:merge_request_id/comments", None, ""),
        ("GET /projects/:id/merge_request/:merge_request_id/comments", None, ""),
        ("POST /projects/:id/merge_requests/:merge_request_id/comments", None, "note!"),
        ("POST /projects/:id/merge_request/:merge_request_id/comments", None, "note!"),
    ),
    *describe_area(
        "namespaces",
        ("GET /namespaces", None, "search"),
    ),
    *describe_area(
        "project_hooks",
        ("GET /projects/:id/hooks", None, ""),
        ("GET /projects/:id/hooks/:hook_id", None, ""),
        ("POST /projects/:id/hooks", None, f"url! {HOOK_SWITCHES}"),
        ("PUT /projects/:id/hooks/:hook_id", None, f"url! {HOOK_SWITCHES}"),
        ("DELETE /projects/:id/hooks/:hook_id", None, ""),
    ),
    *describe_area(
        "project_members",
        ("GET /projects/:id/members", None, "query"),
        ("GET /projects/:id/members/:user_id", None, ""),
        ("POST /projects/:id/members", None, "user_id! access_level!"),
        ("PUT /projects/:id/members/:user_id", None, "access_level!"),
        ("DELETE /projects/:id/members/:user_id", None, ""),
    ),
    *describe_area(
        "project_snippets",
        ("GET /projects/:id/snippets", None, ""),
        ("GET /projects/:id/snippets/:snippet_id", None, ""),
        ("POST /projects/:id/snippets", None, "title! file_name! code! visibility_level!"),
        ("PUT /projects/:id/snippets/:snippet_id", None, "title file_name code visibility_level"),
        ("DELETE /projects/:id/snippets/:snippet_id", None, ""),
        ("GET /projects/:id/snippets/:snippet_id/raw", None, ""),
    ),
    *describe_area(
        "projects",
        ("GET /projects", None, PROJECT_FILTERS),
        ("GET /projects/owned", None, PROJECT_FILTERS),
        ("GET /projects/starred", None, PROJECT_FILTERS),
        ("GET /projects/all", None, PROJECT_FILTERS),
        ("GET /projects/:id", None, ""),
        ("GET /projects/:id/events", None, ""),
        ("POST /projects", None, f"name! namespace_id {PROJECT_SETTINGS}"),
        ("POST /projects/user/:user_id", None, f"name! default_branch {PROJECT_SETTINGS}"),
        ("POST /projects/fork/:id", None, ""),
        ("PUT /projects/:id", None, f"name default_branch {PROJECT_SETTINGS}"),
        ("DELETE /projects/:id", None, ""),
        ("POST /projects/:id/fork/:forked_from_id", None, ""),
        ("DELETE /projects/:id/fork", None, ""),
        ("GET /projects/search/:query", None, "order_by sort"),
        ("GET /projects/:id/users", None, "search"),
    ),
    *describe_area(
        "repositories",
        ("GET /projects/:id/repository/tree", None, "ref_name path"),
        ("GET /projects/:id/repository/blobs/:sha", None, "filepath!"),
        ("GET /projects/:id/repository/commits/:sha/blob", None, "filepath!"),
        ("GET /projects/:id/repository/raw_blobs/:sha", None, ""),
        ("GET /projects/:id/repository/archive", None, "sha"),
        ("GET /projects/:id/repository/compare", None, "from! to!"),
        ("GET /projects/:id/repository/contributors", None, ""),
    ),
    *describe_area(
        "runners",
        ("GET /runners", None, "scope"),
        ("GET /runners/all", None, "scope"),
        ("GET /runners/:id", None, ""),
        ("PUT /runners/:id", None, "description active tag_list"),
        ("DELETE /runners/:id", None, ""),
        ("GET /projects/:id/runners", None, "scope"),
        ("POST /projects/:id/runners", None, "runner_id!"),
        ("DELETE /projects/:id/runners/:runner_id", None, ""),
    ),
    *describe_area(
        "tags",
        ("GET /projects/:id/repository/tags", None, ""),
        ("POST /projects/:id/repository/tags", None, "tag_name! ref! message release_description"),
        ("DELETE /projects/:id/repository/tags/:tag_name", None, ""),
        ("POST /projects/:id/repository/tags/:tag_name/release", None, "description!"),
        ("PUT /projects/:id/repository/tags/:tag_name/release", None, "description!"),
    ),
    *describe_area(
        "triggers",
        ("POST /projects/:id/trigger/builds", None, "ref! token! variables"),
        ("GET /projects/:id/triggers", None, ""),
        ("GET /projects/:id/triggers/:token", None, ""),
        ("POST /projects/:id/triggers", None, ""),
        ("DELETE /projects/:id/triggers/:token", None, ""),
    ),
    *describe_area(
        "variables",
        ("GET /projects/:id/variables", None, ""),
        ("GET /projects/:id/variables/:key", None, ""),
        ("POST /projects/:id/variables", None, "key! value!"),
        ("PUT /projects/:id/variables/:key", None, "value"),
        ("DELETE /projects/:id/variables/:key", None, ""),
    ),
)
