"""Projects. The interface document has no such section: these are routes of the server of that time (docs/wire-facts.md 14).

Lists contain archived projects too, unless `archived` says otherwise. `owner` is null for a project of a group.
"""

from rest_v3.requests.params import boolean, choice, integer, text
from rest_v3.reshape import access_objects, activity_keys, only_key
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

LEVELS = {0: "PRIVATE", 1: "INTERNAL", 2: "PUBLIC", 10: "INTERNAL", 20: "PUBLIC"}
"""The document's visibility levels, and those that legacy clients use."""
FEATURES = (
    text("path"),
    text("description", blank_clears=True),
    boolean("issues_enabled"),
    boolean("merge_requests_enabled"),
    boolean("builds_enabled"),
    boolean("wiki_enabled"),
    boolean("snippets_enabled"),
    boolean("shared_runners_enabled"),
    boolean("public"),
    integer("visibility_level", meanings=LEVELS, allowed=("PRIVATE", "INTERNAL", "PUBLIC")),
    boolean("public_builds"),
    text("import_url"),
)
NAMESPACE_INVALID = {"namespace": ["is not valid"]}
NAME_TAKEN = {"name": ["has already been taken"], "path": ["has already been taken"]}
LIMIT_REACHED = {"NOT_ALLOWED": (403, "{message}")}

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
    Route(
        call="GET /projects/:id/events",
        params=(PROJECT,),
        operation="ProjectActivities",
        result_path="project.activities",
        reshape=activity_keys,
        shape="Activity",
        section=SECTION,
        summary="List what happened in a project, newest first",
    ),
    Route(
        call="POST /projects",
        params=(text("name", required=True), text("namespace_id"), *FEATURES),
        operation="CreateProject",
        result_path="createProject.project",
        errors={**LIMIT_REACHED, "FORBIDDEN": (400, NAMESPACE_INVALID), "NOT_FOUND": (400, NAMESPACE_INVALID)},
        no_store=True,
        shape="ProjectWithToken",
        section=SECTION,
        summary="Create a project in the caller's namespace or in a group",
    ),
    Route(
        call="POST /projects/user/:user_id",
        params=(integer("user_id", required=True), text("name", required=True), text("default_branch"), *FEATURES),
        operation="CreateProjectForUser",
        result_path="createProject.project",
        guard="MayCreateForUser",
        not_found_noun={"User": "User"},
        errors={**LIMIT_REACHED, "REQUIRED": (400, {"name": ["can't be blank"]})},
        no_store=True,
        shape="ProjectWithToken",
        section=SECTION,
        summary="Create a project for a user; administrators only",
    ),
    Route(
        call="POST /projects/fork/:id",
        params=(PROJECT,),
        operation="ForkProject",
        result_path="forkProject.project",
        error_field_names={"visibility": "visibility_level"},
        errors={"TAKEN": (409, NAME_TAKEN), "NOT_ALLOWED": (409, "{message}")},
        shape="Project",
        section=SECTION,
        summary="Fork a project into the caller's namespace",
    ),
    Route(
        call="PUT /projects/:id",
        params=(PROJECT, text("name"), text("default_branch"), *FEATURES),
        operation="UpdateProject",
        result_path="updateProject.project",
        guard="MayUpdateProject",
        no_store=True,
        shape="ProjectWithToken",
        section=SECTION,
        summary="Update a project; only owners change the name and the visibility",
    ),
    Route(
        call="DELETE /projects/:id",
        params=(PROJECT,),
        operation="DeleteProject",
        result_path="deleteProject.deletedId",
        shape="JobId",
        section=SECTION,
        summary="Delete a project",
    ),
    Route(
        call="POST /projects/:id/fork/:forked_from_id",
        params=(PROJECT, text("forked_from_id", required=True)),
        operation="LinkFork",
        result_path="linkFork.forkLink",
        guard="MayAdministrate",
        shape="ForkLink",
        section=SECTION,
        summary="Make a project a fork of another one; administrators only",
    ),
    Route(
        call="DELETE /projects/:id/fork",
        params=(PROJECT,),
        operation="UnlinkFork",
        result_path="unlinkFork",
        reshape=only_key("forkLink"),
        shape="ForkLink",
        section=SECTION,
        summary="Make a project a fork of none; null if it was none",
    ),
    Route(
        call="GET /projects/:id/users",
        params=(PROJECT, text("search")),
        operation="ProjectTeam",
        result_path="project.team",
        shape="Author",
        section=SECTION,
        summary="List the members of a project and of its group",
    ),
)
