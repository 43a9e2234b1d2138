"""ROUTES: the rows of the protocol, in the order of docs/wire-facts.md 13.2."""

from ci_v1.reshape import format_authorization, format_build_details, format_registration
from rest_v3.requests.params import choice, integer, names, text
from rest_v3.reshape import return_null, return_true
from rest_v3.route import Route, StatusOverride

SECTION = "Runners"
RUNNER_INFO = tuple(text(name, aliases=(f"info[{name}]",)) for name in ("name", "version", "revision", "platform", "architecture"))
"""The runner's description of itself."""
BUILD = integer("id", required=True)
NOT_FOUND_RESPONSE = (404, "404 Not Found")
UNKNOWN_TOKEN: dict[str, StatusOverride] = {"UNAUTHENTICATED": 403}
"""The error for an unknown or revoked token."""
NOT_RUNNING: dict[str, StatusOverride] = {
    **UNKNOWN_TOKEN,
    "CONFLICT": (403, "403 Forbidden - Build is not running!"),
    "NOT_ALLOWED": (403, "403 Forbidden - Build has been erased!"),
}

ROUTES: tuple[Route, ...] = (
    Route(
        call="POST /runners/register",
        params=(text("token", required=True), text("description"), names("tag_list"), *RUNNER_INFO),
        operation="RegisterRunner",
        result_path="registerRunner",
        reshape=format_registration,
        no_store=True,
        section=SECTION,
        summary="Register a runner with a registration token",
    ),
    Route(
        call="DELETE /runners/delete",
        params=(text("token", required=True),),
        operation="UnregisterRunner",
        result_path="unregisterRunner.runner",
        section=SECTION,
        summary="Unregister a runner",
    ),
    Route(
        call="POST /builds/register",
        params=RUNNER_INFO,
        operation="ClaimBuild",
        result_path="claimBuild.job",
        reshape=format_build_details,
        errors=UNKNOWN_TOKEN,
        not_found_noun="",
        no_store=True,
        section=SECTION,
        summary="Take the next build; 404 if none is pending",
    ),
    Route(
        call="PUT /builds/:id",
        params=(BUILD, choice("state", "success", "failed", lenient=True)),
        operation="UpdateBuild",
        result_path="updateBuild.build",
        reshape=return_true,
        errors={**NOT_RUNNING, "CONFLICT": NOT_FOUND_RESPONSE},
        not_found_noun="",
        section=SECTION,
        summary="Update the trace and the state of a build",
    ),
    Route(
        call="POST /builds/:id/artifacts/authorize",
        params=(BUILD, integer("filesize")),
        operation="AuthorizeArtifact",
        result_path="createArtifactUpload.upload",
        reshape=format_authorization,
        errors=NOT_RUNNING,
        status=200,
        not_found_noun="",
        section=SECTION,
        summary="Check whether an artifact may be uploaded, as GitLab's proxy does",
    ),
    Route(
        call="POST /builds/:id/artifacts",
        params=(BUILD, text("filename")),
        operation="SendArtifact",
        result_path="createArtifactUpload.upload",
        errors=NOT_RUNNING,
        not_found_noun="",
        no_store=True,
        section=SECTION,
        summary="Upload the artifact of a build",
    ),
    Route(
        call="GET /builds/:id/artifacts",
        params=(BUILD,),
        operation="JobArtifact",
        result_path="jobArtifact",
        file_key="stream",
        errors=NOT_RUNNING,
        not_found_noun="",
        section=SECTION,
        summary="Download the artifact of the build, or of a build of an earlier stage",
    ),
    Route(
        call="DELETE /builds/:id/artifacts",
        params=(BUILD,),
        operation="DeleteArtifact",
        result_path="deleteArtifact.build",
        reshape=return_null,
        errors=NOT_RUNNING,
        not_found_noun="",
        section=SECTION,
        summary="Delete the artifact of a build",
    ),
)

BUILD_DETAILS = Route(
    call="POST /builds/artifacts",
    params=(text("token", required=True),),
    operation="GivenJob",
    result_path="job",
    reshape=format_build_details,
    errors=NOT_RUNNING,
    not_found_noun="",
    no_store=True,
)
"""The response to an artifact upload; no path leads to this route."""
