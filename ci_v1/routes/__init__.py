"""ROUTES: the rows of the protocol, in the order of wire facts 13.2."""

from ci_v1.reshape import format_authorization, format_build_details, format_registration
from rest_v3.requests.params import choice, integer, names, text
from rest_v3.reshape import return_null, return_true
from rest_v3.route import Route, StatusOverride

SECTION = "Runners"
RUNNER_INFO = tuple(text(name, aliases=(f"info[{name}]",)) for name in ("name", "version", "revision", "platform", "architecture"))
"""What a runner says of itself."""
BUILD = integer("id", required=True)
NOT_FOUND_RESPONSE = (404, "404 Not Found")
UNKNOWN_TOKEN: dict[str, StatusOverride] = {"UNAUTHENTICATED": 403}
"""A token that nobody has, or has any more."""
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
        summary="Make a runner known, by a registration token",
    ),
    Route(
        call="DELETE /runners/delete",
        params=(text("token", required=True),),
        operation="UnregisterRunner",
        result_path="unregisterRunner.runner",
        section=SECTION,
        summary="Forget a runner",
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
        summary="Take the next build; 404 when there is none",
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
        summary="Send the trace so far, and how the build ended",
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
        summary="Ask whether an artifact may be sent, as proxies of the time do",
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
        summary="Send the artifact of a build",
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
        summary="Fetch the artifact of the build, or of one before it",
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
        summary="Take the artifact of a build away",
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
"""What the sender of an artifact is answered; no path of its own leads here."""
