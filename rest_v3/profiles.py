"""Profiles: `document` follows the document exactly; `gitlab-8.5` is for clients of that version (docs/decisions.md 1, 38, 39).

A profile lists the fields of routes that it replaces, by call; `errors` are merged into the route's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rest_v3.reshape import add_keys
from rest_v3.route import Route

DOCUMENT = "document"

RouteChanges = Mapping[str, Mapping[str, Any]]

PROFILES: Mapping[str, RouteChanges] = {
    DOCUMENT: {},
    "gitlab-8.5": {
        "POST /projects/:id/issues": {"status": 201, "errors_by_value": {"labels": "title"}},
        "PUT /projects/:id/issues/:issue_id": {"errors_by_value": {"labels": "title"}},
        "POST /projects/:id/labels": {"status": 201},
        "POST /projects/:id/merge_requests": {"status": 201, "errors_by_value": {"labels": "title"}},
        "PUT /projects/:id/merge_requests/:merge_request_id": {
            "operation": "UpdateMergeRequestWithAnyTarget",
            "errors_by_value": {"labels": "title"},
        },
        "POST /hooks": {"reshape": None},
        "GET /application/settings": {"reshape": add_keys(domain_whitelist=[]), "shape": "ApplicationSettings85"},
        "PUT /application/settings": {"reshape": add_keys(domain_whitelist=[]), "shape": "ApplicationSettings85"},
        "GET /projects/:id/snippets/:snippet_id/notes/:note_id": {
            "operation": "SnippetNoteAsNote",
            "result_path": "project.snippet.note",
            "shape": "Note",
        },
        "PUT /users/:uid/block": {"errors": {"CONFLICT": (200, False)}},
        "GET /projects/:id/labels": {"is_unpaged": True},
        "GET /groups/:id/members": {"is_unpaged": True},
        "GET /hooks": {"is_unpaged": True},
        "GET /user/keys": {"is_unpaged": True},
        "GET /users/:uid/keys": {"is_unpaged": True},
        "GET /user/emails": {"is_unpaged": True},
        "GET /users/:uid/emails": {"is_unpaged": True},
        "GET /projects/:id/merge_requests/:merge_request_id/commits": {"is_unpaged": True},
    },
}


class UnknownProfileError(ValueError):
    """There is no profile of this name."""


def apply_profile(profile: str, routes: Iterable[Route]) -> tuple[Route, ...]:
    """The routes with the changes of a profile. Raises UnknownProfileError."""
    if profile not in PROFILES:
        raise UnknownProfileError(f"unknown profile {profile!r}; use one of {', '.join(PROFILES)}")
    changes = PROFILES[profile]
    return tuple(_apply_changes(route, changes.get(route.call)) for route in routes)


def _apply_changes(route: Route, changes: Mapping[str, Any] | None) -> Route:
    if changes is None:
        return route
    if "errors" in changes:
        changes = {**changes, "errors": {**route.errors, **changes["errors"]}}
    return replace(route, **changes)
