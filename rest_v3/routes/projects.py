"""Projects. The interface document has no such section: these are routes of the server of that time (docs/wire-facts.md 14).

Lists contain archived projects too, unless `archived` says otherwise. `owner` is null for a project of a group.
"""

from rest_v3.requests.params import boolean, choice, text
from rest_v3.reshape import access_objects
from rest_v3.route import Route

SECTION = "Projects"
PROJECT = text("id", required=True)
FILTERS = (
    boolean("archived", default=None),
    choice("visibility", "public", "internal", "private", lenient=True),
    text("search"),
    choice("order_by", "id", "name", "path", "created_at", "updated_at", "last_activity_at", lenient=True),
    choice("sort", "asc", "desc", lenient=True),
)

PROJECTS = (
    Route(
        call="GET /projects",
        params=FILTERS,
        operation="Projects",
        result_path="projects",
        reshape=access_objects,
        shape="ProjectWithAccess",
        section=SECTION,
        summary="List the projects that the caller is a member of",
    ),
    Route(
        call="GET /projects/owned",
        params=FILTERS,
        operation="OwnedProjects",
        result_path="projects",
        reshape=access_objects,
        shape="ProjectWithAccess",
        section=SECTION,
        summary="List the projects in the caller's namespace and in groups that the caller owns",
    ),
    Route(
        call="GET /projects/starred",
        params=FILTERS,
        operation="StarredProjects",
        result_path="projects",
        shape="Project",
        section=SECTION,
        summary="List the projects that the caller has starred",
    ),
    Route(
        call="GET /projects/all",
        params=FILTERS,
        operation="AllProjects",
        result_path="projects",
        reshape=access_objects,
        guard="MayListAllProjects",
        shape="ProjectWithAccess",
        section=SECTION,
        summary="List all projects; administrators only",
    ),
    Route(
        call="GET /projects/search/:query",
        params=(
            text("query", required=True),
            choice("order_by", "id", "name", "created_at", "last_activity_at", lenient=True),
            choice("sort", "asc", "desc", lenient=True),
        ),
        operation="SearchProjects",
        result_path="projects",
        shape="Project",
        section=SECTION,
        summary="List the projects that the caller may see by a part of the name",
    ),
    Route(
        call="GET /projects/:id",
        params=(PROJECT,),
        operation="Project",
        result_path="project",
        reshape=access_objects,
        no_store=True,
        shape="SingleProject",
        section=SECTION,
        summary="Get a project",
    ),
)
