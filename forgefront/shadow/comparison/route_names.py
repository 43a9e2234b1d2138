"""Names of routes: what a request asks for, without ids and names."""

import re

from rest_v3.router import Router, split_path
from rest_v3.routes import EXTRA_ROUTES, ROUTES

V3_BASE = "/api/v3/"
MAX_SEGMENTS = 8
_ID = re.compile(r"\d+|[0-9a-f]{7,64}|.*(?:%2[Ff]).*|.{41,}|(?=.*\d)(?=.*[A-Za-z])[\w-]{16,}")
"""Numbers, hashes, escaped paths, and what looks like a token."""
_NAMED_FIRST = ("api", "ci", "-", "graphql", "q", "assets", "u", "groups", "users", "oauth", "help", "admin", "profile", "uploads")


class RouteNames:
    """Routes of v3 by the table of routes; others by the pattern of their path."""

    def __init__(self) -> None:
        self._router: Router[str] = Router()
        for route in (*ROUTES, *EXTRA_ROUTES):
            for path in route.paths:
                self._router.add(route.method, path, path, route.spanning_names)

    def find(self, method: str, target: str) -> str:
        """The name of a request's route.

        >>> RouteNames().find("GET", "/api/v3/projects/3/issues/41?page=2")
        'GET /api/v3/projects/:id/issues/:issue_id'
        >>> RouteNames().find("GET", "/api/v4/projects/group%2Fname/jobs/7")
        'GET /api/v4/projects/:id/jobs/:id'
        """
        path = re.sub(r"^https?://[^/]*", "", target.partition("?")[0])
        if path.startswith(V3_BASE):
            served_method = "GET" if method == "HEAD" else method
            found = self._router.find(split_path(path[len(V3_BASE) - 1 :].encode("latin-1", "replace")), served_method)
            if found is not None:
                template = found[0].methods.get(served_method)
                if template is not None:
                    return f"{method} {V3_BASE.rstrip('/')}{template}"
        segments = [segment for segment in path.split("/") if segment]
        if len(segments) >= 2 and segments[0] not in _NAMED_FIRST:
            name = ":project.git" if segments[1].endswith(".git") else ":project"
            segments[:2] = [":namespace", name]
        return f"{method} /" + "/".join(":id" if _ID.fullmatch(segment) else segment for segment in segments[:MAX_SEGMENTS])
