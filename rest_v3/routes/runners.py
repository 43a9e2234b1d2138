"""Runners, which GitLab 8.5 served and the interface document leaves out."""

from rest_v3.requests.params import RouteParameter, boolean, choice, integer, names, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
RUNNER = integer("id", required=True)


def _scope(*words: str) -> RouteParameter:
    return choice("scope", *words, invalid_message="Scope contains invalid value", description="Only runners of this kind.")


STATES = ("active", "paused", "online")
ALL_SCOPES = _scope(*STATES, "specific", "shared")

RUNNERS = (
    Route(
        call="GET /runners",
        params=(_scope(*STATES),),
        operation="AvailableRunners",
        result_path="availableRunners",
        shape="Runner",
        section="Runners",
        summary="List the runners of the caller's projects",
    ),
    Route(
        call="GET /runners/all",
        params=(ALL_SCOPES,),
        operation="AllRunners",
        result_path="runners",
        guard="MaySeeRunners",
        shape="Runner",
        section="Runners",
        summary="List all runners",
    ),
    Route(
        call="GET /runners/:id",
        params=(RUNNER,),
        operation="Runner",
        result_path="runner",
        no_store=True,
        shape="RunnerDetails",
        section="Runners",
        summary="Get a runner",
    ),
    Route(
        call="PUT /runners/:id",
        params=(RUNNER, text("description"), boolean("active"), names("tag_list", blank_clears=True)),
        operation="UpdateRunner",
        result_path="updateRunner.runner",
        guard="MaySeeRunner",
        error_field_names={"tags": "tag_list"},
        no_store=True,
        shape="RunnerDetails",
        section="Runners",
        summary="Change a runner",
    ),
    Route(
        call="DELETE /runners/:id",
        params=(RUNNER,),
        operation="DeleteRunner",
        result_path="deleteRunner.runner",
        shape="Runner",
        section="Runners",
        summary="Delete a runner",
    ),
    Route(
        call="GET /projects/:id/runners",
        params=(PROJECT, ALL_SCOPES),
        operation="ProjectRunners",
        result_path="project.runners",
        guard="MayAdminRunners",
        shape="Runner",
        section="Runners",
        summary="List the runners that serve a project, shared ones too",
    ),
    Route(
        call="POST /projects/:id/runners",
        params=(PROJECT, integer("runner_id", required=True)),
        operation="AssignRunner",
        result_path="assignRunner.runner",
        guard="MayAdminRunners",
        shape="Runner",
        section="Runners",
        summary="Let a runner serve a project too",
    ),
    Route(
        call="DELETE /projects/:id/runners/:runner_id",
        params=(PROJECT, integer("runner_id", required=True)),
        operation="UnassignRunner",
        result_path="unassignRunner.runner",
        not_found_noun="Runner",
        shape="Runner",
        section="Runners",
        summary="Take a runner away from a project",
    ),
)
