"""ROUTES: the rows of the protocol, in the order of wire facts 13.2."""

from ci_v1.reshape import build_details, no_folder, runner_and_token
from rest_v3.params import choice, integer, names, text
from rest_v3.reshape import nothing, yes
from rest_v3.route import Answer, Route

SECTION = "Runners"
ABOUT = tuple(text(name, also=(f"info[{name}]",)) for name in ("name", "version", "revision", "platform", "architecture"))
"""What a runner says of itself."""
BUILD = integer("id", required=True)
NOT_FOUND = (404, "404 Not Found")
NOBODY: dict[str, Answer] = {"UNAUTHENTICATED": 403}
"""A token that nobody has, or has any more."""
NOT_RUNNING: dict[str, Answer] = {
    **NOBODY,
    "CONFLICT": (403, "403 Forbidden - Build is not running!"),
    "NOT_ALLOWED": (403, "403 Forbidden - Build has been erased!"),
}

ROUTES: tuple[Route, ...] = (
    Route(
        call="POST /runners/register",
        params=(text("token", required=True), text("description"), names("tag_list"), *ABOUT),
        operation="RegisterRunner",
        gives="registerRunner",
        reshape=runner_and_token,
        no_store=True,
        section=SECTION,
        summary="Make a runner known, by a registration token",
    ),
    Route(
        call="DELETE /runners/delete",
        params=(text("token", required=True),),
        operation="UnregisterRunner",
        gives="unregisterRunner.runner",
        section=SECTION,
        summary="Forget a runner",
    ),
    Route(
        call="POST /builds/register",
        params=ABOUT,
        operation="ClaimBuild",
        gives="claimBuild.job",
        reshape=build_details,
        errors=NOBODY,
        missing="",
        no_store=True,
        section=SECTION,
        summary="Take the next build; 404 when there is none",
    ),
    Route(
        call="PUT /builds/:id",
        params=(BUILD, choice("state", "success", "failed", lenient=True)),
        operation="UpdateBuild",
        gives="updateBuild.build",
        reshape=yes,
        errors={**NOT_RUNNING, "CONFLICT": NOT_FOUND},
        missing="",
        section=SECTION,
        summary="Send the trace so far, and how the build ended",
    ),
    Route(
        call="POST /builds/:id/artifacts/authorize",
        params=(BUILD, integer("filesize")),
        operation="AuthorizeArtifact",
        gives="createArtifactUpload.upload",
        reshape=no_folder,
        errors=NOT_RUNNING,
        status=200,
        missing="",
        section=SECTION,
        summary="Ask whether an artifact may be sent, as proxies of the time do",
    ),
    Route(
        call="POST /builds/:id/artifacts",
        params=(BUILD, text("filename")),
        operation="SendArtifact",
        gives="createArtifactUpload.upload",
        errors=NOT_RUNNING,
        missing="",
        no_store=True,
        section=SECTION,
        summary="Send the artifact of a build",
    ),
    Route(
        call="GET /builds/:id/artifacts",
        params=(BUILD,),
        operation="JobArtifact",
        gives="jobArtifact",
        stream="stream",
        errors=NOT_RUNNING,
        missing="",
        section=SECTION,
        summary="Fetch the artifact of the build, or of one before it",
    ),
    Route(
        call="DELETE /builds/:id/artifacts",
        params=(BUILD,),
        operation="DeleteArtifact",
        gives="deleteArtifact.build",
        reshape=nothing,
        errors=NOT_RUNNING,
        missing="",
        section=SECTION,
        summary="Take the artifact of a build away",
    ),
)

DETAILS = Route(
    call="POST /builds/artifacts",
    params=(text("token", required=True),),
    operation="GivenJob",
    gives="job",
    reshape=build_details,
    errors=NOT_RUNNING,
    missing="",
    no_store=True,
)
"""What the sender of an artifact is answered; no path of its own leads here."""
