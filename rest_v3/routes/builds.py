"""The section Builds of the interface document, except for the route that responds with an artifact, and traces."""

from rest_v3.requests.params import choices, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
BUILD = (PROJECT, integer("build_id", required=True))
SCOPE = choices(
    "scope",
    *("pending", "running", "failed", "success", "canceled"),
    invalid_message="Scope contains invalid value(s)",
    description="Only builds in these states: one word or an array. Without it, all builds.",
)

BUILDS = (
    Route(
        call="GET /projects/:id/builds",
        params=(PROJECT, SCOPE),
        operation="ProjectBuilds",
        result_path="project.builds",
        guard="MayReadBuilds",
        shape="Build",
        section="Builds",
        summary="List the builds of a project, newest first",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/builds",
        params=(PROJECT, text("sha", required=True, description="The id of a commit, or the name of a branch or tag."), SCOPE),
        operation="CommitBuilds",
        result_path="project.commit.builds",
        guard="MayReadBuildsOfCommit",
        shape="Build",
        section="Builds",
        summary="List the builds of a commit, newest first",
    ),
    Route(
        call="GET /projects/:id/builds/:build_id",
        params=BUILD,
        operation="ProjectBuild",
        result_path="project.build",
        not_found_noun="",
        shape="Build",
        section="Builds",
        summary="Get a build",
    ),
)

BUILD_ACTIONS = (
    Route(
        call="POST /projects/:id/builds/:build_id/cancel",
        params=BUILD,
        operation="CancelBuild",
        error_codes=("NOT_ALLOWED",),
        result_path="cancelBuild.build",
        not_found_noun="",
        shape="Build",
        section="Builds",
        summary="Cancel a build; a finished build is not changed",
    ),
    Route(
        call="POST /projects/:id/builds/:build_id/retry",
        params=BUILD,
        operation="RetryBuild",
        error_codes=("NOT_ALLOWED",),
        result_path="retryBuild.build",
        not_found_noun="",
        shape="Build",
        section="Builds",
        summary="Retry a finished build",
    ),
    Route(
        call="POST /projects/:id/builds/:build_id/erase",
        params=BUILD,
        operation="EraseBuild",
        error_codes=("NOT_ALLOWED",),
        result_path="eraseBuild.build",
        not_found_noun="",
        shape="ErasedBuild",
        section="Builds",
        summary="Erase the trace and the artifacts of a finished build",
    ),
)

TRACES = (
    Route(
        call="GET /projects/:id/builds/:build_id/trace",
        params=BUILD,
        operation="BuildTrace",
        result_path="project.build",
        file_key="stream",
        file_type="text/plain; charset=utf-8",
        file_disposition="infile",
        not_found_noun="",
        section="Builds",
        summary="Download what a build printed; empty if there is nothing",
    ),
)
