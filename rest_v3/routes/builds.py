"""The section Builds of the interface document, but for the row that is a file."""

from rest_v3.params import choices, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
BUILD = (PROJECT, integer("build_id", required=True))
SCOPE = choices(
    "scope",
    *("pending", "running", "failed", "success", "canceled"),
    wrong="Scope contains invalid value(s)",
    about="Those of these states: one word or an array of them. All builds without it.",
)

BUILDS = (
    Route(
        call="GET /projects/:id/builds",
        params=(PROJECT, SCOPE),
        operation="ProjectBuilds",
        gives="project.builds",
        guard="MayReadBuilds",
        shape="Build",
        section="Builds",
        summary="The builds of a project, the newest first",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/builds",
        params=(PROJECT, text("sha", required=True, about="The id of a commit, or the name of a branch or tag."), SCOPE),
        operation="CommitBuilds",
        gives="project.commit.builds",
        guard="MayReadBuildsOfCommit",
        shape="Build",
        section="Builds",
        summary="The builds of a commit, the newest first",
    ),
    Route(
        call="GET /projects/:id/builds/:build_id",
        params=BUILD,
        operation="ProjectBuild",
        gives="project.build",
        missing="",
        shape="Build",
        section="Builds",
        summary="One build",
    ),
)

BUILD_CHANGES = (
    Route(
        call="POST /projects/:id/builds/:build_id/cancel",
        params=BUILD,
        operation="CancelBuild",
        codes=("NOT_ALLOWED",),
        gives="cancelBuild.build",
        missing="",
        shape="Build",
        section="Builds",
        summary="Cancel a build; one that has ended stays as it is",
    ),
    Route(
        call="POST /projects/:id/builds/:build_id/retry",
        params=BUILD,
        operation="RetryBuild",
        codes=("NOT_ALLOWED",),
        gives="retryBuild.build",
        missing="",
        shape="Build",
        section="Builds",
        summary="Have a build that has ended run again",
    ),
    Route(
        call="POST /projects/:id/builds/:build_id/erase",
        params=BUILD,
        operation="EraseBuild",
        codes=("NOT_ALLOWED",),
        gives="eraseBuild.build",
        missing="",
        shape="ErasedBuild",
        section="Builds",
        summary="Take the trace and the artifacts of a build that has ended away",
    ),
)
