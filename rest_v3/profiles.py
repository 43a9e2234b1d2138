"""Profiles: `document` follows the document exactly; `gitlab-8.5` answers as that server did (docs/profiles.md, docs/wire-facts.md 17).

A profile is data: fields of routes that it replaces, by call; conversions of responses, by their shape; and a file with the fragments and
operations that it uses instead of those of `routes/`, mostly for other names of keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rest_v3.operations import OperationRegistry
from rest_v3.pagination import PageRules
from rest_v3.profile_reshapes import Chain, EmptyLists, Identities, InnerConstants, KeyOrder, LastKeys, MappedValues, OmittedNulls
from rest_v3.reshape import add_keys, show_keys_to_admins
from rest_v3.route import Reshape, Route
from rest_v3.routes.users import TAKEN_AS_409

DOCUMENT = "document"

OPERATIONS_FOLDER = Path(__file__).parent / "profile_operations"

RouteChanges = Mapping[str, Mapping[str, Any]]

VISIBILITY_LEVELS = {1: 10, 2: 20}
NO_AVATAR = {"url": None}
VISIBILITY = MappedValues("VisibilityLevel", ("visibility_level",), VISIBILITY_LEVELS)
PROJECT = Chain(
    VISIBILITY,
    OmittedNulls("owner", "forked_from_project", "open_issues_count", "runners_token"),
    InnerConstants("namespace", avatar=NO_AVATAR),
)
SETTINGS = Chain(
    MappedValues(
        "VisibilityLevel",
        ("default_project_visibility", "default_snippet_visibility", "restricted_visibility_levels"),
        VISIBILITY_LEVELS,
    ),
    EmptyLists("restricted_visibility_levels", "restricted_signup_domains"),
    add_keys(domain_whitelist=[]),
)
GROUP = Chain(add_keys(avatar_url=None), KeyOrder("id", "name", "path", "description", "avatar_url", "web_url"))
MEMBERSHIP = KeyOrder("id", "access_level", "source_id", "source_type", "user_id", "notification_level")
HOOK_ROW = KeyOrder(
    *("id", "url", "project_id", "created_at", "updated_at", "service_id"),
    *("push_events", "issues_events", "merge_requests_events", "tag_push_events", "note_events", "enable_ssl_verification", "build_events"),
)
ACTIVITY = KeyOrder(
    *("title", "project_id", "action_name", "target_id", "target_type", "author_id", "data", "target_title", "created_at", "note"),
    *("author", "author_username"),
)
PROJECT_WITH_TOKEN = Chain(PROJECT, LastKeys("public_builds", "permissions"))
BUILD = OmittedNulls("artifacts_file")
NAMESPACE = Chain(add_keys(avatar=NO_AVATAR), KeyOrder("id", "name", "path", "owner_id", "created_at", "updated_at"))
KEYS_FOR_ADMINS = (
    *("email", "theme_id", "color_scheme_id", "projects_limit", "current_sign_in_at", "identities"),
    *("can_create_group", "can_create_project", "two_factor_enabled"),
)
PUBLIC_KEYS = ("created_at", "is_admin", "bio", "skype", "linkedin", "twitter", "website_url")

UNPAGED = {"is_unpaged": True}
INVALID_BY_VALUE = {"errors_by_value": {"labels": "title"}}
REASONS_AS_400 = {"errors": dict.fromkeys(("INVALID", "TAKEN", "CONFLICT", "NOT_ALLOWED", "TOO_LARGE"), 400)}


@dataclass(frozen=True, slots=True)
class Profile:
    """What differs from the rows of `routes/`. `errors` of a route are merged into its own; `reshapes` follow the route's `reshape`."""

    routes: RouteChanges = field(default_factory=dict)
    reshapes: Mapping[str, Reshape] = field(default_factory=dict)
    operations: str | None = None
    """The name of the file in OPERATIONS_FOLDER."""


PROFILES: Mapping[str, Profile] = {
    DOCUMENT: Profile(),
    "gitlab-8.5": Profile(
        operations="gitlab-8.5.graphql",
        reshapes={
            "Activity": ACTIVITY,
            "Build": BUILD,
            "CurrentUser": Identities(),
            "DeletedHook": HOOK_ROW,
            "DeletedProjectHook": HOOK_ROW,
            "DeletedProjectSnippet": VISIBILITY,
            "DeletedSSHKey": add_keys(public=False),
            "DeletedLabel": add_keys(description=None),
            "File": KeyOrder("file_name", "file_path", "size", "encoding"),
            "Group": GROUP,
            "GroupDetails": Chain(GROUP, PROJECT),
            "ApplicationSettings": SETTINGS,
            "Project": PROJECT,
            "ProjectNamespace": NAMESPACE,
            "ProjectOfGroup": PROJECT,
            "ProjectWithAccess": PROJECT,
            "ProjectWithToken": PROJECT_WITH_TOKEN,
            "RemovedProjectMember": MEMBERSHIP,
            "SSHKeyWithUser": Identities(),
            "SingleProject": PROJECT_WITH_TOKEN,
            "Trigger": KeyOrder("token", "created_at", "updated_at", "deleted_at"),
            "UserForAdmin": Identities(),
        },
        routes={
            "POST /projects/:id/issues": {"status": 201, **INVALID_BY_VALUE},
            "PUT /projects/:id/issues/:issue_id": INVALID_BY_VALUE,
            "POST /projects/:id/labels": {"status": 201},
            "POST /projects/:id/merge_requests": {"status": 201, **INVALID_BY_VALUE},
            "PUT /projects/:id/merge_requests/:merge_request_id": {"operation": "UpdateMergeRequestWithAnyTarget", **INVALID_BY_VALUE},
            "PUT /projects/:id/merge_requests/:merge_request_id/merge": {"errors": {"NOT_MERGEABLE": (406, "Branch cannot be merged")}},
            "GET /projects/:id/merge_requests/:merge_request_id/commits": UNPAGED,
            "GET /projects/:id/repository/commits": {"page_rules": PageRules(first_number=0, max_size=10_000, has_headers=False)},
            "POST /hooks": {"reshape": None},
            "GET /projects/:id/snippets/:snippet_id/notes/:note_id": {
                "operation": "SnippetNoteAsNote",
                "result_path": "project.snippet.note",
                "shape": "Note",
            },
            "GET /projects/:id/labels": UNPAGED,
            "GET /groups/:id/members": UNPAGED,
            "GET /hooks": UNPAGED,
            "GET /user/keys": UNPAGED,
            "GET /users/:uid/keys": UNPAGED,
            "GET /user/emails": UNPAGED,
            "GET /users/:uid/emails": UNPAGED,
            "GET /users": {"reshape": Chain(Identities(), show_keys_to_admins(*KEYS_FOR_ADMINS, *PUBLIC_KEYS))},
            "GET /users/:id": {"reshape": Chain(Identities(), show_keys_to_admins(*KEYS_FOR_ADMINS))},
            "PUT /users/:id": {
                "errors": {
                    **TAKEN_AS_409,
                    **dict.fromkeys(("INVALID", "TAKEN", "REQUIRED", "NOT_ALLOWED", "TOO_LARGE"), 400),
                }
            },
            "DELETE /users/:id": {"errors": {"NOT_FOUND": 404}, "not_found_noun": "User"},
            "PUT /users/:uid/block": {"errors": {"CONFLICT": (200, False)}},
            "POST /users/:id/keys": REASONS_AS_400,
            "POST /users/:id/emails": REASONS_AS_400,
            "DELETE /user/keys/:id": {"shape": "DeletedSSHKey"},
            "DELETE /users/:uid/keys/:id": {"shape": "DeletedSSHKey"},
            "POST /groups/:id/members": {"errors": {"INVALID": 422}},
            "PUT /groups/:id/members/:user_id": {"errors": {"INVALID": 422}},
            "DELETE /groups/:id/members/:user_id": {
                "reshape": add_keys(
                    source_type="Namespace",
                    notification_level=3,
                    created_by_id=None,
                    invite_email=None,
                    invite_token=None,
                    invite_accepted_at=None,
                ),
                "shape": "RemovedProjectMember",
            },
        },
    ),
}


class UnknownProfileError(ValueError):
    """There is no profile of this name."""


def find_profile(name: str) -> Profile:
    """Raises UnknownProfileError."""
    if name not in PROFILES:
        raise UnknownProfileError(f"unknown profile {name!r}; use one of {', '.join(PROFILES)}")
    return PROFILES[name]


def apply_profile(name: str, routes: Iterable[Route]) -> tuple[Route, ...]:
    """The routes with the changes of a profile. Raises UnknownProfileError."""
    profile = find_profile(name)
    return tuple(_apply_changes(route, profile) for route in routes)


def replace_operations(name: str, operations: OperationRegistry) -> OperationRegistry:
    """The operations of a profile. Raises UnknownProfileError."""
    file_name = find_profile(name).operations
    return operations if file_name is None else operations.replaced_by((OPERATIONS_FOLDER / file_name).read_text(encoding="utf-8"))


def _apply_changes(route: Route, profile: Profile) -> Route:
    changes = dict(profile.routes.get(route.call, {}))
    if "errors" in changes:
        changes["errors"] = {**route.errors, **changes["errors"]}
    changed = replace(route, **changes)
    further = profile.reshapes.get(changed.shape or "")
    if further is None:
        return changed
    return replace(changed, reshape=further if changed.reshape is None else Chain(changed.reshape, further))
