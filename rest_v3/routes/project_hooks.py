"""Hooks of projects (docs/wire-facts.md 14)."""

from rest_v3.requests.params import boolean, integer, text
from rest_v3.reshape import add_keys
from rest_v3.route import Route

PROJECT = text("id", required=True)
HOOK = (PROJECT, integer("hook_id", required=True))
TARGET = (
    text("url", required=True),
    boolean("push_events"),
    boolean("issues_events"),
    boolean("merge_requests_events"),
    boolean("tag_push_events"),
    boolean("note_events"),
    boolean("build_events"),
    boolean("enable_ssl_verification"),
    text("token", description="Sent in the X-Gitlab-Token header."),
)
INVALID_URL = {"INVALID": (422, "Invalid url given")}

PROJECT_HOOKS = (
    Route(
        call="GET /projects/:id/hooks",
        params=(PROJECT,),
        operation="ProjectHooks",
        result_path="project.hooks",
        shape="ProjectHook",
        section="Project hooks",
        summary="List the hooks of a project",
    ),
    Route(
        call="GET /projects/:id/hooks/:hook_id",
        params=HOOK,
        operation="ProjectHook",
        result_path="project.hook",
        shape="ProjectHook",
        section="Project hooks",
        summary="Get a hook of a project",
    ),
    Route(
        call="POST /projects/:id/hooks",
        params=(PROJECT, *TARGET),
        operation="CreateProjectHook",
        result_path="createProjectHook.hook",
        guard="MayAdminProjectHooks",
        errors=INVALID_URL,
        shape="ProjectHook",
        section="Project hooks",
        summary="Create a hook of a project",
    ),
    Route(
        call="PUT /projects/:id/hooks/:hook_id",
        params=(*HOOK, *TARGET),
        operation="UpdateProjectHook",
        result_path="updateProjectHook.hook",
        guard="MayUpdateProjectHook",
        errors=INVALID_URL,
        shape="ProjectHook",
        section="Project hooks",
        summary="Update a hook of a project",
    ),
    Route(
        call="DELETE /projects/:id/hooks/:hook_id",
        params=HOOK,
        operation="DeleteProjectHook",
        result_path="deleteProjectHook.hook",
        reshape=add_keys(service_id=None),
        shape="DeletedProjectHook",
        section="Project hooks",
        summary="Delete a hook of a project",
    ),
)
